//! Every field of what an agent is told to run means something: of two values of it, two different manifests are made,
//! or it is known why not.
//!
//! Two messages are taken, one field is carried over from the second to the first, and both are read and made objects
//! of. The fields are those of the schema, so that a new one is found.

#[path = "kinds/cases.rs"]
#[expect(dead_code, reason = "only a part of it is wanted here")]
mod cases;

use std::collections::{BTreeMap, BTreeSet};

use agent::{deployment::Deployments, kind::Kind, object::Manifest, sentinel::Sentinels};
use model::{
    id::{AppId, EnvironmentId, ProjectId, SentinelId, WorkspaceId},
    name::Placement,
    sentinel::{Generation, Sentinel},
    size::{CpuMillis, MemoryMib},
    watch::{Event, Version},
};
use prost_reflect::{DescriptorPool, Kind as FieldKind, MessageDescriptor};
use serde_json::{Value, json};
use wire::watch::Stamp;

/// Fields that change nothing in the cluster, and why.
const UNUSED: &[(&str, &str)] = &[
    ("ApplyDeployment.build_id", "other clients have it; we know no builds, only images"),
    (
        "ApplyDeployment.created_at_ms",
        "orders deployments for those who choose among them; a pod is no older for it",
    ),
    (
        "ApplyDeployment.upstream_protocol",
        "how a sentinel talks to an instance, which it is told with its routes",
    ),
];

/// Fields that say what is known otherwise: of two values one is refused.
const CHECKED: &[(&str, &str)] = &[
    ("ApplyDeployment.region", "the stream is of one region"),
    ("ApplySentinel.sentinel_id", "its credential is its own"),
];

/// What became of a message with another value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Same,
    Refused,
    Different,
}

#[test]
fn two_values_of_a_field_are_two_manifests() {
    let pool = DescriptorPool::decode(wire::DESCRIPTOR).expect("the schema compiled");
    let message =
        |name: &str| pool.get_message_by_name(&format!("ctrl.v1.{name}")).expect("it is in the schema");
    let mut outcomes = BTreeMap::new();
    compare(&message("ApplyDeployment"), &deployments(), &made_of_deployment, &mut outcomes);
    compare(&message("ApplySentinel"), &sentinels(), &made_of_sentinel, &mut outcomes);
    let mut wrong = Vec::new();
    for (field, outcome) in &outcomes {
        let is_in = |list: &[(&str, &str)]| list.iter().any(|(listed, _)| listed == field);
        let expected = match (is_in(UNUSED), is_in(CHECKED)) {
            (true, _) => Outcome::Same,
            (_, true) => Outcome::Refused,
            (false, false) => Outcome::Different,
        };
        if *outcome != Some(expected) {
            wrong.push(format!("{field}: {outcome:?}, and should be {expected:?}"));
        }
    }
    let listed: BTreeSet<&str> = UNUSED.iter().chain(CHECKED).map(|(field, _)| *field).collect();
    wrong.extend(
        listed
            .iter()
            .filter(|field| !outcomes.contains_key(**field))
            .map(|field| format!("{field}: is no field")),
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(outcomes.len() > 45, "there are {} fields", outcomes.len());
}

/// For each field of the message the strongest thing that another value of it led to; nothing, if it has never two.
fn compare(
    message: &MessageDescriptor,
    samples: &[Value],
    made: &dyn Fn(&Value) -> Option<Vec<Manifest>>,
    outcomes: &mut BTreeMap<String, Option<Outcome>>,
) {
    let mut paths = Vec::new();
    fields(message, "", &mut paths);
    for (name, pointer) in paths {
        let strongest = outcomes.entry(name).or_default();
        for one in samples {
            // One that is refused is there for the values of its fields.
            let Some(before) = made(one) else { continue };
            for other in samples.iter().filter(|other| other.pointer(&pointer) != one.pointer(&pointer)) {
                let Some(changed) = carried_over(one, other, &pointer) else { continue };
                let outcome = match made(&changed) {
                    None => Outcome::Refused,
                    Some(after) if after == before => Outcome::Same,
                    Some(_) => Outcome::Different,
                };
                *strongest = (*strongest).max(Some(outcome));
            }
        }
    }
}

/// Every field with its place in the message's JSON, those of messages inside too.
fn fields(message: &MessageDescriptor, above: &str, found: &mut Vec<(String, String)>) {
    for field in message.fields() {
        let pointer = format!("{above}/{}", field.json_name());
        found.push((format!("{}.{}", message.name(), field.name()), pointer.clone()));
        if let FieldKind::Message(inner) = field.kind() {
            fields(&inner, &pointer, found);
        }
    }
}

/// The first message with the second's value of a field; nothing, if the first has no place for it.
fn carried_over(one: &Value, other: &Value, pointer: &str) -> Option<Value> {
    let mut changed = one.clone();
    let (above, name) = pointer.rsplit_once('/').expect("a pointer");
    let place = changed.pointer_mut(above)?.as_object_mut()?;
    match other.pointer(pointer) {
        Some(value) => place.insert(name.to_owned(), value.clone()),
        None => place.remove(name),
    };
    Some(changed)
}

fn stamp() -> Stamp {
    Stamp { version: Version::new(7), gone: false, change: None }
}

/// Messages as our own control plane writes them, and as one does that has fewer fields or more.
fn deployments() -> Vec<Value> {
    let workloads = [cases::workload_plain(), cases::workload_of_everything(), cases::workload_of_others()];
    let sent = workloads.iter().map(|workload| {
        let state = wire::deployment::state(workload, &stamp());
        serde_json::to_value(state).expect("a message is JSON")["apply"].clone()
    });
    let mut all: Vec<Value> = sent.collect();
    for replicas in [2, 4] {
        let mut older = all[0].clone();
        let fields = older.as_object_mut().expect("an object");
        fields.remove("fixedReplicas");
        fields.remove("autoscaling");
        fields.insert("replicas".to_owned(), json!(replicas));
        fields.insert("buildId".to_owned(), json!(format!("build-{replicas}")));
        all.push(older);
    }
    let mut elsewhere = all[0].clone();
    elsewhere["region"] = json!("aws/eu-west-1");
    all.push(elsewhere);
    all
}

fn sentinels() -> Vec<Value> {
    let sample = Sentinel::sample();
    let mut other = Sentinel { id: SentinelId::sample(2), ..sample.clone() };
    (other.workspace, other.project) = (WorkspaceId::sample(2), ProjectId::sample(2));
    (other.app, other.environment) = (AppId::sample(2), EnvironmentId::sample(2));
    other.k8s_name = other.id.kubernetes_name();
    let mut newer = sample.clone().with_replicas(3);
    newer.desired.image = "krane/sentinel:2".parse().expect("an image");
    newer.desired.cpu = CpuMillis::new(2000).expect("a size");
    newer.desired.memory = MemoryMib::new(1024).expect("a size");
    newer.desired.settings = "log = 'debug'".into();
    (newer.desired.credential, newer.desired.gossip) = (Generation(5), Generation(6));
    let sent = [sample, other, newer].map(|sentinel| {
        let state = wire::sentinel::state(&sentinel, &cases::credentials(&sentinel), &stamp());
        serde_json::to_value(state).expect("a message is JSON")["apply"].clone()
    });
    sent.into()
}

/// The objects that an agent makes when it is sent this; nothing, if it refuses it.
fn made_of_deployment(apply: &Value) -> Option<Vec<Manifest>> {
    let state = serde_json::from_value(json!({ "apply": apply, "version": "7" })).expect("a message");
    let event = wire::deployment::event(state, &Placement::sample()).ok()?;
    let Event::Apply(change) = event else { panic!("an apply is one") };
    Deployments::default().manifests(&change.state, None).ok()
}

fn made_of_sentinel(apply: &Value) -> Option<Vec<Manifest>> {
    let state = serde_json::from_value(json!({ "apply": apply, "version": "7" })).expect("a message");
    let event = wire::sentinel::event(state, &Placement::sample()).ok()?;
    let Event::Apply(change) = event else { panic!("an apply is one") };
    Sentinels::default().manifests(&change.state, None).ok()
}
