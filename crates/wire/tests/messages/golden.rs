//! The schema as text, one line for each field, value and call: a number never changes by accident.

use std::collections::BTreeSet;

use expect_test::expect_file;
use prost_reflect::{
    DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, ServiceDescriptor,
};

const PACKAGE: &str = "ctrl.v1.";
const BASE: &str = include_str!("../../golden/base.txt");

/// The schema that the code was made of.
pub fn schema() -> DescriptorPool {
    DescriptorPool::decode(wire::DESCRIPTOR).expect("the schema compiled")
}

/// If this fails: a change of a name, a number or a type breaks every client that is out there. To add a field is no
/// break; accept it with `UPDATE_EXPECT=1 cargo test -p wire --test messages` and read the diff.
#[test]
fn the_schema_is_the_one_that_was_agreed_on() {
    let lines = lines().join("\n") + "\n";
    expect_file!["../../golden/ctrl.v1.txt"].assert_eq(&lines);
}

#[test]
fn the_interface_of_other_clients_is_kept_to_the_number() {
    let ours: BTreeSet<String> = lines().into_iter().collect();
    let base: BTreeSet<&str> = base().collect();
    let missing: Vec<&&str> = base.iter().filter(|line| !ours.contains(**line)).collect();
    assert!(missing.is_empty(), "other clients know these, and the schema does not have them: {missing:#?}");
}

#[test]
fn what_we_add_to_the_messages_of_others_is_numbered_from_100() {
    let message = |line: &str| {
        line.split(" = ").next().and_then(|path| path.rsplit_once('.')).map(|(m, _)| m.to_owned())
    };
    let number = |line: &str| line.split(" = ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    let base: BTreeSet<&str> = base().collect();
    let of_others: BTreeSet<String> = base.iter().filter_map(|line| message(line)).collect();
    let ours = lines();
    let added: Vec<&String> = ours
        .iter()
        .filter(|line| !line.starts_with("rpc ") && !line.starts_with("enum "))
        .filter(|line| message(line).is_some_and(|message| of_others.contains(&message)))
        .filter(|line| !base.contains(line.as_str()))
        .collect();
    let low: Vec<&&String> =
        added.iter().filter(|line| number(line).is_none_or(|number: u32| number < 100)).collect();
    assert!(low.is_empty(), "these could collide with what others add: {low:#?}");
    assert!(added.len() > 50, "we add {} fields", added.len());
}

fn base() -> impl Iterator<Item = &'static str> {
    BASE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn lines() -> Vec<String> {
    let schema = schema();
    let mut lines = Vec::new();
    for service in schema.services() {
        lines.extend(calls(&service));
    }
    for value in schema.all_enums().filter(|value| value.full_name().starts_with(PACKAGE)) {
        lines.extend(values(&value));
    }
    for message in schema.all_messages().filter(|message| message.full_name().starts_with(PACKAGE)) {
        lines.extend(fields(&message));
    }
    lines.sort();
    lines
}

fn calls(service: &ServiceDescriptor) -> Vec<String> {
    let stream = |is_stream| if is_stream { "stream " } else { "" };
    let call = |method: prost_reflect::MethodDescriptor| {
        let (input, output) = (method.input(), method.output());
        format!(
            "rpc {}({}{}) returns ({}{})",
            short(method.full_name()),
            stream(method.is_client_streaming()),
            short(input.full_name()),
            stream(method.is_server_streaming()),
            short(output.full_name()),
        )
    };
    service.methods().map(call).collect()
}

fn values(descriptor: &EnumDescriptor) -> Vec<String> {
    let name = short(descriptor.full_name()).to_owned();
    descriptor.values().map(|value| format!("enum {name}.{} = {}", value.name(), value.number())).collect()
}

fn fields(message: &MessageDescriptor) -> Vec<String> {
    let name = short(message.full_name()).to_owned();
    let line = |field: FieldDescriptor| {
        format!("{name}.{} = {} {}{}", field.name(), field.number(), kind(&field), label(&field))
    };
    message.fields().map(line).collect()
}

fn kind(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(message) => short(message.full_name()).to_owned(),
        Kind::Enum(values) => short(values.full_name()).to_owned(),
        plain => format!("{plain:?}").to_lowercase(),
    }
}

fn label(field: &FieldDescriptor) -> String {
    match field.containing_oneof() {
        _ if field.is_list() => " repeated".to_owned(),
        Some(oneof) if !oneof.is_synthetic() => format!(" oneof {}", oneof.name()),
        Some(_) => " optional".to_owned(),
        None => String::new(),
    }
}

fn short(name: &str) -> &str {
    name.strip_prefix(PACKAGE).expect("everything is in our package")
}
