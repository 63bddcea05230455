//! Whatever arrives, nothing panics.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "any number will do")]

use std::{cell::RefCell, collections::BTreeMap, fmt::Debug};

use proptest::{prelude::*, test_runner::TestRunner};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage as _, Value, prost::Message as _};

use super::{
    golden::schema,
    samples::{Crossing, Reading, crossings},
};

const CASES: u32 = 4000;

/// What a broken or hostile peer may make of a message.
#[derive(Debug, Clone)]
enum Damage {
    Cut(usize),
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    Twice(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<usize>();
    prop_oneof![
        place.prop_map(Damage::Cut),
        (any::<usize>(), any::<u8>()).prop_map(|(place, byte)| Damage::Set(place, byte)),
        (any::<usize>(), prop::collection::vec(any::<u8>(), 1..12))
            .prop_map(|(place, bytes)| Damage::Insert(place, bytes)),
        any::<usize>().prop_map(Damage::Twice),
    ]
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len() + 1;
        let at = |place: usize| place % length;
        match self {
            Damage::Cut(place) => bytes.truncate(at(*place)),
            Damage::Set(place, byte) => {
                if let Some(old) = bytes.get_mut(at(*place)) {
                    *old = *byte;
                }
            }
            Damage::Insert(place, more) => {
                let at = at(*place);
                bytes.splice(at..at, more.iter().copied());
            }
            Damage::Twice(place) => bytes.extend_from_within(at(*place)..),
        }
    }
}

/// Runs so many cases, and says how often bytes were no message, a message refused, and one taken.
fn run<D: Debug + 'static>(
    damage: impl Strategy<Value = D>,
    apply: impl Fn(&Crossing, &[u8], &D) -> Vec<u8>,
) {
    let crossings = crossings();
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let readings = RefCell::new(BTreeMap::new());
    let strategy = (0..crossings.len(), any::<prop::sample::Index>(), damage);
    let ran = runner.run(&strategy, |(crossing, sample, damage)| {
        let crossing = &crossings[crossing];
        let bytes = apply(crossing, sample.get::<Vec<u8>>(&crossing.samples), &damage);
        *readings.borrow_mut().entry(crossing.read(&bytes)).or_insert(0) += 1;
        Ok(())
    });
    ran.unwrap();
    let readings = readings.into_inner();
    println!("{readings:?}");
    for reading in [Reading::Refused, Reading::Taken] {
        assert!(readings.contains_key(&reading), "none was {reading:?}: {readings:?}");
    }
}

#[test]
fn a_message_with_damaged_bytes_never_panics_its_reader() {
    run(prop::collection::vec(damage(), 1..3), |_, sample, damages| {
        let mut bytes = sample.to_vec();
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        bytes
    });
}

#[test]
fn a_message_with_wild_values_never_panics_its_reader() {
    let schema = schema();
    run(prop::collection::vec(any::<u64>(), 1..60), move |crossing, sample, choices| {
        let message = schema.get_message_by_name(&format!("ctrl.v1.{}", crossing.message)).unwrap();
        let mut message = DynamicMessage::decode(message, sample).unwrap();
        let mut choices = Choices(choices.iter());
        for _ in 0..=choices.below(3) {
            change(&mut message, &mut choices);
        }
        message.encode_to_vec()
    });
}

/// What is to be done, drawn before: a failure can be made smaller.
struct Choices<'a>(std::slice::Iter<'a, u64>);

impl Choices<'_> {
    fn next(&mut self) -> u64 {
        self.0.next().copied().unwrap_or_default()
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }
}

/// Gives one field of a message, or of one inside it, another value.
fn change(message: &mut DynamicMessage, choices: &mut Choices<'_>) {
    let fields: Vec<FieldDescriptor> = message.descriptor().fields().collect();
    if fields.is_empty() {
        return;
    }
    // What is there is more often changed than something is added.
    let there: Vec<FieldDescriptor> =
        fields.iter().filter(|field| message.has_field(field)).cloned().collect();
    let fields = if there.is_empty() || choices.below(4) == 0 { fields } else { there };
    let field = &fields[choices.below(fields.len())];
    let value = message.get_field(field).into_owned();
    message.set_field(field, changed(value, &field.kind(), choices));
}

fn changed(value: Value, kind: &Kind, choices: &mut Choices<'_>) -> Value {
    match value {
        Value::Message(mut inner) => {
            change(&mut inner, choices);
            Value::Message(inner)
        }
        Value::List(mut list) => {
            match (choices.below(4), list.len()) {
                (0, _) | (_, 0) => list.push(Value::default_value(kind)),
                (1, length) => list.extend_from_within(choices.below(length)..),
                (2, length) => drop(list.remove(choices.below(length))),
                (_, length) => {
                    let nth = choices.below(length);
                    list[nth] = changed(list[nth].clone(), kind, choices);
                }
            }
            Value::List(list)
        }
        Value::String(text) => Value::String(wild_text(text, choices)),
        Value::Bytes(bytes) => {
            let text = wild_text(String::from_utf8_lossy(&bytes).into_owned(), choices);
            Value::Bytes(text.into_bytes().into())
        }
        Value::Bool(is) => Value::Bool(!is),
        Value::I32(_) => Value::I32(wild_number(choices) as i32),
        Value::I64(_) => Value::I64(wild_number(choices)),
        Value::U32(_) => Value::U32(wild_number(choices) as u32),
        Value::U64(_) => Value::U64(wild_number(choices) as u64),
        Value::EnumNumber(_) => Value::EnumNumber(wild_number(choices) as i32),
        Value::F32(_) | Value::F64(_) | Value::Map(_) => unreachable!("the schema has none"),
    }
}

fn wild_text(text: String, choices: &mut Choices<'_>) -> String {
    match choices.below(7) {
        0 => String::new(),
        1 => "\0".to_owned(),
        2 => text + "\u{301}",
        3 => "a".repeat(choices.below(3000)),
        4 => "ß".repeat(choices.below(3000)),
        5 => text.to_uppercase(),
        _ => text.chars().skip(1).collect(),
    }
}

fn wild_number(choices: &mut Choices<'_>) -> i64 {
    match choices.below(6) {
        0 => 0,
        1 => -1,
        2 => i64::MAX,
        3 => i64::MIN,
        4 => (choices.next() % 6).cast_signed(),
        _ => choices.next().cast_signed(),
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        thread_local!(static CROSSINGS: Vec<Crossing> = crossings());
        CROSSINGS.with(|crossings| {
            for crossing in crossings {
                let _ = crossing.read(&bytes);
            }
        });
    }
}
