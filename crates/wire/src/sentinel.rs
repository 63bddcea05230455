//! Sentinels on the wire: what an agent shall run, with the secrets that are theirs alone.

use std::sync::Arc;

use model::{
    deployment::DesiredState,
    id::{ChangeId, SentinelId},
    invalid::{Field, Invalid, Problems},
    limits,
    name::{KubernetesName, Placement},
    sentinel::{self, Generation, Sentinel},
    size::{CpuMillis, MemoryMib, Replicas},
    watch::{Event, Key},
};
use proto::sentinel_state::State;

use crate::{
    auth::{Bearer, Credentials, Presented, SentinelToken},
    proto, read,
    watch::{Around, Stamp, read_bookmark},
};

/// The gossip keys of one environment: the newest and the one before it.
const GOSSIP_KEYS: usize = 2;

/// The sentinels of an environment as an agent hears of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Desired {
    Run {
        sentinel: Arc<Sentinel>,
        credentials: Arc<Credentials>,
        /// What the change is put down to.
        change: Option<ChangeId>,
    },
    /// A tombstone names its subject.
    Gone { id: SentinelId, name: KubernetesName, change: Option<ChangeId> },
}

/// What its stream calls a sentinel.
pub fn key(id: SentinelId) -> Key {
    Key::new(id.to_string())
}

/// The message for a sentinel, or for its tombstone, which has no secrets. The credentials are those of its own
/// key and generations.
pub fn state(sentinel: &Sentinel, credentials: &Credentials, stamp: &Stamp) -> proto::SentinelState {
    let state: State =
        if stamp.gone { tombstone(sentinel, stamp).into() } else { apply(sentinel, credentials).into() };
    around(state, stamp)
}

/// The message for the tombstone of a sentinel, for which nobody needs its keys any more.
pub fn gone(sentinel: &Sentinel, stamp: &Stamp) -> proto::SentinelState {
    assert!(stamp.gone, "the tombstone of what is gone");
    around(tombstone(sentinel, stamp).into(), stamp)
}

fn around(state: State, stamp: &Stamp) -> proto::SentinelState {
    proto::SentinelState {
        state: Some(state),
        version: stamp.version.get(),
        change_id: stamp.change_id(),
        end: false,
    }
}

fn tombstone(sentinel: &Sentinel, stamp: &Stamp) -> proto::DeleteSentinel {
    proto::DeleteSentinel {
        k8s_name: sentinel.k8s_name.to_string(),
        sentinel_id: sentinel.id.to_string(),
        version: stamp.version.get(),
    }
}

fn apply(sentinel: &Sentinel, credentials: &Credentials) -> proto::ApplySentinel {
    let Sentinel {
        id,
        workspace,
        project,
        app,
        environment,
        placement: _,
        k8s_name,
        address: _,
        desired:
            sentinel::Desired { state: _, image, replicas, cpu, memory, credential: _, gossip, key: _, settings },
    } = sentinel;
    let Credentials { token, gossip_keys } = credentials;
    proto::ApplySentinel {
        k8s_name: k8s_name.to_string(),
        workspace_id: workspace.to_string(),
        project_id: project.to_string(),
        app_id: app.to_string(),
        environment_id: environment.to_string(),
        sentinel_id: id.to_string(),
        image: image.to_string(),
        replicas: replicas.get().try_into().expect("replicas are a thousand at most"),
        cpu_millicores: cpu.get().into(),
        memory_mib: memory.get().into(),
        credential: token.reveal().to_owned(),
        gossip_keys: gossip_keys.iter().map(|key| key.to_vec()).collect(),
        settings: settings.to_string(),
        gossip_generation: gossip.0,
    }
}

/// What a message of a stream says; the place is that of the stream.
pub fn event(state: proto::SentinelState, placement: &Placement) -> Result<Event<Desired>, Invalid> {
    let proto::SentinelState { state, version, change_id, end } = state;
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
            let run = read_apply(whole.field("apply"), &apply, placement);
            around.zip(run).map(|(around, (sentinel, credentials))| {
                let key = key(sentinel.id);
                let (sentinel, credentials) = (Arc::new(sentinel), Arc::new(credentials));
                around.apply(key, Desired::Run { sentinel, credentials, change })
            })
        }
        Some(State::Delete(delete)) => {
            let proto::DeleteSentinel { k8s_name, sentinel_id, version } = *delete;
            let mut field = whole.field("delete");
            let name = field.field("k8s_name").parse(&k8s_name);
            let id = field.field("sentinel_id").parse(&sentinel_id);
            around.zip(name.zip(id)).map(|(around, (name, id))| {
                around.agrees(field.field("version"), version);
                around.delete(key(id), Desired::Gone { id, name, change })
            })
        }
        Some(State::Bookmark(_)) | None => whole.field("state").required(None),
    };
    problems.complete(event)
}

fn read_apply(
    mut field: Field<'_>,
    apply: &proto::ApplySentinel,
    placement: &Placement,
) -> Option<(Sentinel, Credentials)> {
    let id = field.field("sentinel_id").parse(&apply.sentinel_id);
    let workspace = field.field("workspace_id").parse(&apply.workspace_id);
    let project = field.field("project_id").parse(&apply.project_id);
    let app = field.field("app_id").parse(&apply.app_id);
    let environment = field.field("environment_id").parse(&apply.environment_id);
    let k8s_name = field.field("k8s_name").parse(&apply.k8s_name);
    let image = field.field("image").parse(&apply.image);
    let replicas = field.field("replicas").keep(Replicas::new(apply.replicas.into()));
    let cpu = field.field("cpu_millicores").keep(CpuMillis::new(apply.cpu_millicores));
    let memory = field.field("memory_mib").keep(MemoryMib::new(apply.memory_mib));
    let token = read_token(field.field("credential"), &apply.credential, id);
    let gossip_keys =
        read::list(field.field("gossip_keys"), &apply.gossip_keys, GOSSIP_KEYS, |mut field, key| {
            field.keep(<[u8; 32]>::try_from(key.as_slice()).map_err(|_| "has 32 bytes"))
        });
    let settings = apply.settings.as_str();
    let is_sized =
        read::bytes_at_most(field.field("settings"), settings.as_bytes(), limits::SENTINEL_SETTINGS_BYTES);
    let (token, SentinelToken { key, generation, .. }) = token?;
    let desired = sentinel::Desired {
        state: DesiredState::Running,
        image: image?,
        replicas: replicas?,
        cpu: cpu?,
        memory: memory?,
        credential: generation,
        gossip: Generation(apply.gossip_generation),
        key,
        settings: is_sized.then(|| settings.into())?,
    };
    let k8s_name = k8s_name?;
    let sentinel = Sentinel {
        id: id?,
        workspace: workspace?,
        project: project?,
        app: app?,
        environment: environment?,
        placement: placement.clone(),
        address: Sentinel::address_of(&k8s_name),
        k8s_name,
        desired,
    };
    Some((sentinel, Credentials { token, gossip_keys: gossip_keys? }))
}

/// A token that is this sentinel's own. What it says is in no problem: it is a secret.
fn read_token(mut field: Field<'_>, text: &str, id: Option<SentinelId>) -> Option<(Bearer, SentinelToken)> {
    let bearer = Bearer::parse(text);
    let token = match bearer.as_ref().and_then(Bearer::presented) {
        Some(Presented::Sentinel(token)) => Some(token),
        Some(Presented::Stored { .. }) | None => None,
    };
    let Some(token) = token else {
        field.add("is no token of a sentinel");
        return None;
    };
    let is_its = id.is_none_or(|id| id == token.sentinel);
    field.require(is_its, "is the token of another sentinel").then_some(())?;
    bearer.map(|bearer| (bearer, token))
}
