//! Drift: strangers who edit and delete what is ours, and pods that fail.

use agent::object::{Ref, Type};
use runtime::random::Random;
use serde_json::{Value, json};

use super::world::World;

/// What happens in a cluster without anybody having asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drift {
    /// A field of ours is set to something else.
    Edit,
    /// Something is added that we do not care about.
    Decorate,
    /// The number of pods is changed.
    Rescale,
    Delete,
    DeletePod,
    CrashPod,
}

impl Drift {
    pub const ALL: [Drift; 6] =
        [Drift::Edit, Drift::Decorate, Drift::Rescale, Drift::Delete, Drift::DeletePod, Drift::CrashPod];
}

/// Does something to one object of a region; says what, if there was anything to do it to.
pub fn meddle(world: &World, region: usize, random: &Random) -> Option<Drift> {
    let drift = Drift::ALL[usize::try_from(random.below(Drift::ALL.len() as u64)).expect("an index fits")];
    let stage = &world.regions[region].stage;
    let is_meant = |object: &Ref| match drift {
        Drift::Edit | Drift::Decorate | Drift::Delete => object.ty != Type::Pod,
        Drift::Rescale => matches!(object.ty, Type::ReplicaSet | Type::Deployment),
        Drift::DeletePod | Drift::CrashPod => object.ty == Type::Pod,
    };
    let all = stage.all().into_iter().filter(|(object, json)| {
        // What is not managed by us is nobody's business, and a namespace takes everything with it.
        let is_ours = json["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "krane";
        is_ours && is_meant(object) && (object.ty != Type::Namespace || drift != Drift::Delete)
    });
    let all: Vec<Ref> = all.map(|(object, _)| object).collect();
    let at = usize::try_from(random.below(all.len().max(1) as u64)).expect("an index fits");
    let object = all.get(at)?;
    world.transcript.say(format_args!("stranger: {drift:?} {object}"));
    let is_done = match drift {
        Drift::Edit => stage.edit(object, edit(object, random)),
        Drift::Decorate => {
            let note = random.u64().to_string();
            stage.edit(object, json!({ "metadata": { "annotations": { "example.com/note": note } } }))
        }
        Drift::Rescale => stage.edit(object, json!({ "spec": { "replicas": random.below(4) } })),
        Drift::Delete | Drift::DeletePod => stage.remove(object),
        Drift::CrashPod => stage.crash(object),
    };
    is_done.then_some(drift)
}

/// A change of something that we set, or of what we remember by.
fn edit(object: &Ref, random: &Random) -> Value {
    let of_type = match object.ty {
        Type::Namespace => {
            json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "privileged" } } })
        }
        Type::ServiceAccount => json!({ "automountServiceAccountToken": true }),
        Type::CiliumNetworkPolicy => {
            json!({ "spec": { "endpointSelector": { "matchLabels": { "a": "b" } } } })
        }
        Type::Secret => json!({ "data": { "token": "c3RvbGVu" } }),
        Type::Service => json!({ "spec": { "selector": { "unkey.com/sentinel.id": "other" } } }),
        Type::ReplicaSet | Type::Deployment => {
            json!({ "spec": { "template": { "spec": { "terminationGracePeriodSeconds": 1 } } } })
        }
        Type::HorizontalPodAutoscaler => json!({ "spec": { "maxReplicas": 9 } }),
        Type::PodDisruptionBudget => json!({ "spec": { "unhealthyPodEvictionPolicy": "IfHealthyBudget" } }),
        Type::Pod => json!({}),
    };
    match random.below(4) {
        0 => json!({ "metadata": { "annotations": { "unkey.com/spec.hash": "forged" } } }),
        1 => json!({ "metadata": { "labels": { "unkey.com/project.id": null } } }),
        _ => of_type,
    }
}
