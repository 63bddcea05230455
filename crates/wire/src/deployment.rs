//! Deployments on the wire: what an agent shall run, and the tombstone of what it shall not.

mod apply;
mod health;

use std::sync::Arc;

use model::{
    id::{ChangeId, DeploymentId},
    invalid::{Field, Invalid, Problems},
    name::{KubernetesName, Namespace, Placement},
    topology::Workload,
    watch::{Event, Key},
};
use proto::deployment_state::State;

use crate::{
    proto,
    watch::{Around, Stamp, read_bookmark},
};

/// A deployment as an agent hears of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Desired {
    Run {
        workload: Arc<Workload>,
        /// What the change is put down to.
        change: Option<ChangeId>,
    },
    /// A tombstone names its subject.
    Gone { id: DeploymentId, namespace: Namespace, name: KubernetesName, change: Option<ChangeId> },
}

/// What its stream calls a deployment.
pub fn key(id: DeploymentId) -> Key {
    Key::new(id.to_string())
}

/// The message for a workload, or for its tombstone.
pub fn state(workload: &Workload, stamp: &Stamp) -> proto::DeploymentState {
    let state: State = if stamp.gone {
        proto::DeleteDeployment {
            k8s_namespace: workload.namespace.to_string(),
            k8s_name: workload.deployment.k8s_name.to_string(),
            deployment_id: workload.deployment.id.to_string(),
            version: stamp.version.get(),
        }
        .into()
    } else {
        apply::message(workload).into()
    };
    proto::DeploymentState {
        state: Some(state),
        version: stamp.version.get(),
        change_id: stamp.change_id(),
        end: false,
    }
}

/// What a message of a stream says; the place is that of the stream.
pub fn event(state: proto::DeploymentState, placement: &Placement) -> Result<Event<Desired>, Invalid> {
    let proto::DeploymentState { state, version, change_id, end } = state;
    let mut problems = Problems::new();
    let mut whole = problems.whole();
    if let Some(State::Bookmark(mark)) = &state {
        let event = read_bookmark(&mut whole, mark);
        return problems.complete(event.map(|(_, event)| event));
    }
    let around = Around::read(&mut whole, version, &change_id, end);
    let change = around.and_then(|around| around.change);
    let event = match state {
        Some(State::Apply(apply)) => {
            let workload = apply::read(whole.field("apply"), &apply, placement);
            around.zip(workload).map(|(around, workload)| {
                let key = key(workload.deployment.id);
                around.apply(key, Desired::Run { workload: Arc::new(workload), change })
            })
        }
        Some(State::Delete(delete)) => {
            let gone = read_delete(whole.field("delete"), &delete, around, change);
            around.zip(gone).map(|(around, (id, gone))| around.delete(key(id), gone))
        }
        Some(State::Bookmark(_)) | None => whole.field("state").required(None),
    };
    problems.complete(event)
}

fn read_delete(
    mut field: Field<'_>,
    delete: &proto::DeleteDeployment,
    around: Option<Around>,
    change: Option<ChangeId>,
) -> Option<(DeploymentId, Desired)> {
    let proto::DeleteDeployment { k8s_namespace, k8s_name, deployment_id, version } = delete;
    let namespace = field.field("k8s_namespace").parse(k8s_namespace);
    let name = field.field("k8s_name").parse(k8s_name);
    let id = field.field("deployment_id").parse(deployment_id);
    around?.agrees(field.field("version"), *version);
    let id = id?;
    Some((id, Desired::Gone { id, namespace: namespace?, name: name?, change }))
}
