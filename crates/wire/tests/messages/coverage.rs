//! Every field means something: of two values of it, two different things arrive, or it is known why not.
//!
//! For each message two samples are taken, one field is carried over from the second to the first, and both are
//! read. The samples are what our own servers and clients send, so that a field that nobody fills is found as
//! well as one that nobody reads.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{
    DynamicMessage, FieldDescriptor, MessageDescriptor, ReflectMessage as _, Value, prost::Message as _,
};

use super::{
    golden::schema,
    samples::{Crossing, Outcome, crossings},
};

/// Fields that change nothing at the other end, and why.
const UNUSED: &[(&str, &str)] = &[
    ("ApplyDeployment.build_id", "other clients have it; we know no builds, only images"),
    ("RouteEvent.change_id", "for people who look at the stream: a sentinel acts on no change by itself"),
    ("WatchDeploymentChangesRequest.replay", "accepted, and changes nothing: a stream begins anew by itself"),
];

/// Fields that say what the reader knows otherwise: of two values it takes one, and refuses the other.
const CHECKED: &[(&str, &str)] = &[
    ("ApplyDeployment.region", "the stream is of one region"),
    ("ApplySentinel.sentinel_id", "its credential is its own"),
    ("DeleteCiliumNetworkPolicy.version", "the version around it"),
    ("DeleteDeployment.version", "the version around it"),
    ("DeleteEnvironmentPolicies.environment_id", "the stream is of one environment"),
    ("DeleteSentinel.version", "the version around it"),
    ("DeploymentChangeEvent.change_id", "that of the state inside"),
    ("DeploymentChangeEvent.version", "that of the state inside"),
    ("EnvironmentPolicies.environment_id", "the stream is of one environment"),
    ("ReportApplyErrorRequest.kind", "the id is one of that kind"),
];

#[test]
fn two_values_of_a_field_are_two_things_at_the_other_end() {
    let outcomes = outcomes();
    let listed: BTreeSet<&str> = UNUSED.iter().chain(CHECKED).map(|(field, _)| *field).collect();
    let mut wrong = Vec::new();
    for (field, outcome) in &outcomes {
        let is_checked = CHECKED.iter().any(|(checked, _)| checked == field);
        let problem = match outcome {
            Some(Outcome::Different) if listed.contains(field.as_str()) => {
                "is listed as unused or only checked, and changes what is read"
            }
            Some(Outcome::Different) => continue,
            Some(Outcome::Refused) if is_checked => continue,
            Some(Outcome::Refused) => "is never taken with another value",
            Some(Outcome::Same) if listed.contains(field.as_str()) && !is_checked => continue,
            Some(Outcome::Same) => "changes nothing at the other end, and is not listed as unused",
            Some(Outcome::Unread) | None => "has never two values in what we send",
        };
        wrong.push(format!("{field} {problem}"));
    }
    let unknown = listed.iter().filter(|field| !outcomes.contains_key(**field));
    wrong.extend(unknown.map(|field| format!("{field} is listed, and is no field")));
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(outcomes.len() > 200, "there are {} fields", outcomes.len());
}

#[test]
fn every_message_of_every_call_is_looked_at() {
    let looked_at: BTreeSet<&str> = crossings().iter().map(|crossing| crossing.message).collect();
    let schema = schema();
    let methods = schema.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let messages = methods.flat_map(|method| [method.input(), method.output()]);
    let missing: BTreeSet<String> = messages
        .filter(|message| message.fields().len() > 0 && !looked_at.contains(message.name()))
        .map(|message| message.full_name().to_owned())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// For each field of the schema the strongest thing that another value of it led to.
fn outcomes() -> BTreeMap<String, Option<Outcome>> {
    let schema = schema();
    let messages = schema.all_messages().filter(|message| message.package_name() == "ctrl.v1");
    let fields = messages.flat_map(|message| message.fields().collect::<Vec<_>>());
    let mut outcomes: BTreeMap<String, Option<Outcome>> = fields.map(|field| (name(&field), None)).collect();
    for crossing in crossings() {
        let message = schema.get_message_by_name(&format!("ctrl.v1.{}", crossing.message));
        compare(&crossing, &message.expect("it is in the schema"), &mut outcomes);
    }
    outcomes
}

fn compare(
    crossing: &Crossing,
    message: &MessageDescriptor,
    outcomes: &mut BTreeMap<String, Option<Outcome>>,
) {
    let decode = |bytes: &Vec<u8>| DynamicMessage::decode(message.clone(), bytes.as_slice()).unwrap();
    let samples: Vec<(&Vec<u8>, DynamicMessage)> =
        crossing.samples.iter().map(|bytes| (bytes, decode(bytes))).collect();
    for (bytes, one) in &samples {
        for (_, other) in &samples {
            carry_over(one, other, &mut |field, changed| {
                let strongest = outcomes.get_mut(&name(field)).expect("all fields are there");
                if *strongest != Some(Outcome::Different) {
                    let outcome = crossing.compare(bytes, &changed().encode_to_vec());
                    *strongest = (*strongest).max(Some(outcome));
                }
            });
        }
    }
}

/// Gives, for each field that the two have different values of, the first message with the second's value.
fn carry_over(
    one: &DynamicMessage,
    other: &DynamicMessage,
    found: &mut dyn FnMut(&FieldDescriptor, &dyn Fn() -> DynamicMessage),
) {
    for field in one.descriptor().fields() {
        let is_choice = field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic());
        let differs = one.has_field(&field) != other.has_field(&field)
            || one.get_field(&field) != other.get_field(&field);
        // A choice that is taken away leaves nothing, which is another matter.
        if differs && (other.has_field(&field) || !is_choice) {
            found(&field, &|| {
                let mut changed = one.clone();
                if other.has_field(&field) {
                    changed.set_field(&field, other.get_field(&field).into_owned());
                } else {
                    changed.clear_field(&field);
                }
                changed
            });
        }
        if let (Some(inner), Some(others)) = (first(one, &field), first(other, &field)) {
            carry_over(&inner, &others, &mut |inside, changed| {
                found(inside, &|| with_first(one, &field, changed()));
            });
        }
    }
}

/// The message in a field, or the first of them.
fn first(message: &DynamicMessage, field: &FieldDescriptor) -> Option<DynamicMessage> {
    if !message.has_field(field) {
        return None;
    }
    match message.get_field(field).as_ref() {
        Value::Message(inner) => Some(inner.clone()),
        Value::List(list) => list.first()?.as_message().cloned(),
        _ => None,
    }
}

fn with_first(message: &DynamicMessage, field: &FieldDescriptor, inner: DynamicMessage) -> DynamicMessage {
    let mut changed = message.clone();
    match message.get_field(field).into_owned() {
        Value::List(mut list) => {
            list[0] = Value::Message(inner);
            changed.set_field(field, Value::List(list));
        }
        _ => changed.set_field(field, Value::Message(inner)),
    }
    changed
}

fn name(field: &FieldDescriptor) -> String {
    field.full_name().strip_prefix("ctrl.v1.").expect("everything is in our package").to_owned()
}
