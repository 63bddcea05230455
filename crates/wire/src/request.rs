//! What every request says of its caller: which place it claims, and whether it is one of ours.

use model::{
    id::{DeploymentId, EnvironmentId, HistoryId, NetworkPolicyId, SentinelId},
    invalid::{Field, Invalid, Problems},
    kind::Kind,
    limits,
    name::{Line, Placement, RegionKey},
    watch::{Census, Cursor},
};

use crate::{proto, read};

/// The caller, as it describes itself. What it may do is its token's to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub placement: Placement,
    /// Absent is a foreign client, which knows none of our additions.
    pub instance: Option<Line>,
}

/// Asks for a stream of one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub caller: Caller,
    pub cursor: Cursor,
}

/// Asks for what sentinels of one environment route by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchRoutes {
    pub caller: Caller,
    pub environment: EnvironmentId,
    pub cursor: Cursor,
}

/// Asks for everything, but for the kinds that are held just as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sync {
    pub caller: Caller,
    /// What the censuses are of; of another history none of them matches.
    pub history: Option<HistoryId>,
    /// Each kind at most once. A kind that is not named is sent whole.
    pub holds: Vec<(Kind, Census)>,
}

/// Asks for one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get<I> {
    pub caller: Caller,
    pub id: I,
}

/// Reads the fields that every request has; a missing shard is `default`.
pub fn caller(region: Option<&proto::RegionKey>, shard: &str, instance_id: &str) -> Result<Caller, Invalid> {
    let mut problems = Problems::new();
    let caller = read_caller(&mut problems.whole(), region, shard, instance_id);
    problems.complete(caller)
}

/// Where a watch resumes; an empty history is not checked.
///
/// A version that no store ever gave, because it could not hold it, is read as the largest there is: the answer
/// to both is a stream from the beginning.
pub fn cursor(version_last_seen: u64, history: &str) -> Result<Cursor, Invalid> {
    let mut problems = Problems::new();
    let cursor = read_cursor(&mut problems.whole(), version_last_seen, history);
    problems.complete(cursor)
}

pub(crate) fn read_caller(
    whole: &mut Field<'_>,
    region: Option<&proto::RegionKey>,
    shard: &str,
    instance_id: &str,
) -> Option<Caller> {
    let region = whole.field("region").required(region).and_then(|region| {
        let proto::RegionKey { platform, name } = region;
        let mut field = whole.field("region");
        let platform = field.field("platform").parse(platform);
        let name = field.field("name").parse(name);
        platform.zip(name).map(|(platform, name)| RegionKey { platform, name })
    });
    let shard = read::some(whole.field("shard"), shard);
    let instance = read::some(whole.field("instance_id"), instance_id);
    let placement = region?.shard(shard?.unwrap_or_default());
    Some(Caller { placement, instance: instance? })
}

fn read_cursor(whole: &mut Field<'_>, version: u64, history: &str) -> Option<Cursor> {
    let history = read::history(whole.field("history"), history)?;
    Some(Cursor {
        history,
        version: model::watch::Version::new(version.min(model::watch::Version::MAX.get())),
    })
}

impl Caller {
    pub(crate) fn region(&self) -> proto::RegionKey {
        region(&self.placement.region)
    }

    pub(crate) fn shard(&self) -> String {
        self.placement.shard.to_string()
    }

    pub(crate) fn instance_id(&self) -> String {
        read::text(self.instance.as_ref())
    }
}

fn region(key: &RegionKey) -> proto::RegionKey {
    proto::RegionKey { platform: key.platform.to_string(), name: key.name.to_string() }
}

/// The three watches of one kind each ask alike.
macro_rules! watch {
    ($request:ident { $($more:ident)? }) => {
        impl From<&Watch> for proto::$request {
            fn from(Watch { caller, cursor }: &Watch) -> Self {
                proto::$request {
                    region: caller.region().into(),
                    version_last_seen: cursor.version.get(),
                    shard: caller.shard(),
                    instance_id: caller.instance_id(),
                    history: read::text(cursor.history.as_ref()),
                    $($more: false,)?
                }
            }
        }

        impl TryFrom<&proto::$request> for Watch {
            type Error = Invalid;

            fn try_from(request: &proto::$request) -> Result<Self, Invalid> {
                let proto::$request {
                    region,
                    version_last_seen,
                    shard,
                    instance_id,
                    history,
                    $($more: _,)?
                } = request;
                let mut problems = Problems::new();
                let mut whole = problems.whole();
                let caller = read_caller(&mut whole, region.as_option(), shard, instance_id);
                let cursor = read_cursor(&mut whole, *version_last_seen, history);
                let parts = caller.zip(cursor);
                problems.complete(parts.map(|(caller, cursor)| Watch { caller, cursor }))
            }
        }
    };
}

watch!(WatchDeploymentsRequest {});
watch!(WatchSentinelsRequest {});
watch!(WatchCiliumNetworkPoliciesRequest {});
watch!(WatchDeploymentChangesRequest { replay });

impl From<&WatchRoutes> for proto::WatchRoutesRequest {
    fn from(WatchRoutes { caller, environment, cursor }: &WatchRoutes) -> Self {
        proto::WatchRoutesRequest {
            region: caller.region().into(),
            environment_id: environment.to_string(),
            version_last_seen: cursor.version.get(),
            shard: caller.shard(),
            instance_id: caller.instance_id(),
            history: read::text(cursor.history.as_ref()),
        }
    }
}

impl TryFrom<&proto::WatchRoutesRequest> for WatchRoutes {
    type Error = Invalid;

    fn try_from(request: &proto::WatchRoutesRequest) -> Result<Self, Invalid> {
        let proto::WatchRoutesRequest {
            region,
            environment_id,
            version_last_seen,
            shard,
            instance_id,
            history,
        } = request;
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        let caller = read_caller(&mut whole, region.as_option(), shard, instance_id);
        let environment = whole.field("environment_id").parse(environment_id);
        let cursor = read_cursor(&mut whole, *version_last_seen, history);
        let made = || Some(WatchRoutes { caller: caller?, environment: environment?, cursor: cursor? });
        let made = made();
        problems.complete(made)
    }
}

impl From<&Sync> for proto::SyncDesiredStateRequest {
    fn from(Sync { caller, history, holds }: &Sync) -> Self {
        let hold = |(kind, census): &(Kind, Census)| proto::KindCensus {
            kind: proto::Kind::from(*kind).into(),
            count: census.count,
            digest: census.digest,
        };
        proto::SyncDesiredStateRequest {
            region: caller.region().into(),
            shard: caller.shard(),
            instance_id: caller.instance_id(),
            history: read::text(history.as_ref()),
            holds: holds.iter().map(hold).collect(),
        }
    }
}

impl TryFrom<&proto::SyncDesiredStateRequest> for Sync {
    type Error = Invalid;

    fn try_from(request: &proto::SyncDesiredStateRequest) -> Result<Self, Invalid> {
        let proto::SyncDesiredStateRequest { region, shard, instance_id, history, holds } = request;
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        let caller = read_caller(&mut whole, region.as_option(), shard, instance_id);
        let history = read::history(whole.field("history"), history);
        let mut named = Vec::new();
        let hold = |mut field: Field<'_>, census: &proto::KindCensus| {
            let proto::KindCensus { kind, count, digest } = census;
            let kind = once(field.field("kind"), &mut named, *kind)?;
            Some((kind, Census { count: *count, digest: *digest }))
        };
        let holds = read::list(whole.field("holds"), holds, limits::KINDS, hold);
        let made = || Some(Sync { caller: caller?, history: history?, holds: holds? });
        let made = made();
        problems.complete(made)
    }
}

/// A kind that was not there before.
pub(crate) fn once(
    mut field: Field<'_>,
    named: &mut Vec<Kind>,
    kind: buffa::EnumValue<proto::Kind>,
) -> Option<Kind> {
    let kind = read::kind(field.field(""), kind)?;
    let is_first = field.require(!named.contains(&kind), format_args!("{kind} is there already"));
    named.push(kind);
    is_first.then_some(kind)
}

macro_rules! get {
    ($request:ident, $id:ident: $Id:ty) => {
        impl From<&Get<$Id>> for proto::$request {
            fn from(Get { caller, id }: &Get<$Id>) -> Self {
                proto::$request {
                    region: caller.region().into(),
                    $id: id.to_string(),
                    shard: caller.shard(),
                    instance_id: caller.instance_id(),
                }
            }
        }

        impl TryFrom<&proto::$request> for Get<$Id> {
            type Error = Invalid;

            fn try_from(request: &proto::$request) -> Result<Self, Invalid> {
                let proto::$request { region, $id: id, shard, instance_id } = request;
                let mut problems = Problems::new();
                let mut whole = problems.whole();
                let caller = read_caller(&mut whole, region.as_option(), shard, instance_id);
                let id = whole.field(stringify!($id)).parse(id);
                problems.complete(caller.zip(id).map(|(caller, id)| Get { caller, id }))
            }
        }
    };
}

get!(GetDesiredDeploymentStateRequest, deployment_id: DeploymentId);
get!(GetDesiredSentinelStateRequest, sentinel_id: SentinelId);
get!(GetDesiredCiliumNetworkPolicyStateRequest, cilium_network_policy_id: NetworkPolicyId);
