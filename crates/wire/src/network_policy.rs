//! Network policies on the wire.

use std::sync::Arc;

use model::{
    id::{ChangeId, NetworkPolicyId},
    invalid::{Field, Invalid, Problems},
    name::{KubernetesName, Namespace, Placement},
    network_policy::{NetworkPolicy, PolicyJson},
    watch::{Event, Key},
};
use proto::cilium_network_policy_state::State;

use crate::{
    proto,
    watch::{Around, Stamp, read_bookmark},
};

/// A network policy as an agent hears of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Desired {
    Apply {
        policy: Arc<NetworkPolicy>,
        /// What the change is put down to.
        change: Option<ChangeId>,
    },
    /// A tombstone names its subject.
    Gone { id: NetworkPolicyId, namespace: Namespace, name: KubernetesName, change: Option<ChangeId> },
}

/// What its stream calls a network policy.
pub fn key(id: NetworkPolicyId) -> Key {
    Key::new(id.to_string())
}

/// The message for a policy, or for its tombstone.
pub fn state(policy: &NetworkPolicy, stamp: &Stamp) -> proto::CiliumNetworkPolicyState {
    let NetworkPolicy { id, placement: _, namespace, name, deployment, policy } = policy;
    let state: State = if stamp.gone {
        proto::DeleteCiliumNetworkPolicy {
            k8s_namespace: namespace.to_string(),
            k8s_name: name.to_string(),
            cilium_network_policy_id: id.to_string(),
            version: stamp.version.get(),
        }
        .into()
    } else {
        proto::ApplyCiliumNetworkPolicy {
            k8s_namespace: namespace.to_string(),
            k8s_name: name.to_string(),
            cilium_network_policy_id: id.to_string(),
            policy: policy.as_str().into(),
            deployment_id: deployment.to_string(),
        }
        .into()
    };
    proto::CiliumNetworkPolicyState {
        state: Some(state),
        version: stamp.version.get(),
        change_id: stamp.change_id(),
        end: false,
    }
}

/// What a message of a stream says; the place is that of the stream.
pub fn event(
    state: proto::CiliumNetworkPolicyState,
    placement: &Placement,
) -> Result<Event<Desired>, Invalid> {
    let proto::CiliumNetworkPolicyState { state, version, change_id, end } = state;
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
            let policy = read_apply(whole.field("apply"), &apply, placement);
            around.zip(policy).map(|(around, policy)| {
                around.apply(key(policy.id), Desired::Apply { policy: Arc::new(policy), change })
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

fn read_apply(
    mut field: Field<'_>,
    apply: &proto::ApplyCiliumNetworkPolicy,
    placement: &Placement,
) -> Option<NetworkPolicy> {
    let proto::ApplyCiliumNetworkPolicy {
        k8s_namespace,
        k8s_name,
        cilium_network_policy_id,
        policy,
        deployment_id,
    } = apply;
    let id = field.field("cilium_network_policy_id").parse(cilium_network_policy_id);
    let namespace = field.field("k8s_namespace").parse(k8s_namespace);
    let name = field.field("k8s_name").parse(k8s_name);
    let deployment = field.field("deployment_id").parse(deployment_id);
    let text = field.field("policy").keep(str::from_utf8(policy));
    let policy = text.and_then(|text| field.field("policy").parse::<PolicyJson>(text));
    Some(NetworkPolicy {
        id: id?,
        placement: placement.clone(),
        namespace: namespace?,
        name: name?,
        deployment: deployment?,
        policy: policy?,
    })
}

fn read_delete(
    mut field: Field<'_>,
    delete: &proto::DeleteCiliumNetworkPolicy,
    around: Option<Around>,
    change: Option<ChangeId>,
) -> Option<(NetworkPolicyId, Desired)> {
    let proto::DeleteCiliumNetworkPolicy { k8s_namespace, k8s_name, cilium_network_policy_id, version } =
        delete;
    let namespace = field.field("k8s_namespace").parse(k8s_namespace);
    let name = field.field("k8s_name").parse(k8s_name);
    let id = field.field("cilium_network_policy_id").parse(cilium_network_policy_id);
    around?.agrees(field.field("version"), *version);
    let id = id?;
    Some((id, Desired::Gone { id, namespace: namespace?, name: name?, change }))
}
