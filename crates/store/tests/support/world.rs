//! A small world to write in, and random changes of it over several versioned tables.

use std::sync::Arc;

use model::{
    deployment::{Deployment, DesiredState, Progress, Status},
    environment::Environment,
    event::Event,
    id::{DeploymentId, EnvironmentId, EventId, NetworkPolicyId, SentinelId},
    name::{Hostname, Placement},
    network_policy::NetworkPolicy,
    project::{App, Project, Workspace},
    route::{Affinity, Follows, Route, Targets},
    sentinel::Sentinel,
    size::{Replicas, Scaling},
    time::Millis,
    topology::Topology,
    watch::Key,
};
use runtime::{clock::Clock, random::Random};
use store::{Cause, Commit, Result, Stamped, Store, Topic, Value, Write};

use super::recorder::{Committed, Row};

const DEPLOYMENTS: u128 = 32;
const HOSTNAMES: u64 = 24;
const ENVIRONMENTS: u128 = 4;

/// One change of a transaction. It is data, so that a transaction can be made again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    Scale { deployment: u128, place: usize, replicas: u32, stopped: bool },
    Remove { deployment: u128, place: usize },
    Sentinel { environment: u128, place: usize, replicas: u32, stopped: bool },
    Policy { deployment: u128, place: usize, text: u64 },
    RemovePolicy { deployment: u128, place: usize },
    Route { hostname: u64, deployment: u128 },
    RemoveRoute { hostname: u64 },
    Event { id: EventId },
}

pub fn places() -> [Placement; 3] {
    ["aws/us-east-1:default", "aws/us-east-1:b", "gcp/europe-west1:default"]
        .map(|place| place.parse().expect("a placement"))
}

/// The environment that the deployments and routes are of.
pub fn environment() -> EnvironmentId {
    EnvironmentId::sample(0)
}

/// Every topic that the changes below can touch.
pub fn topics() -> Vec<Topic> {
    let environment = environment();
    let mut topics = vec![Topic::Routes(environment), Topic::Clusters, Topic::Events];
    for environment in (0..ENVIRONMENTS).map(EnvironmentId::sample) {
        topics.extend([Topic::Environment(environment), Topic::SentinelReports(environment)]);
    }
    for place in places() {
        topics.push(Topic::Deployments(place.clone()));
        topics.push(Topic::Sentinels(place.clone()));
        topics.push(Topic::NetworkPolicies(place.clone()));
        topics.push(Topic::NetworkPolicyReports(place.clone()));
        topics.push(Topic::Routing(environment, place));
    }
    topics
}

pub fn deployment(number: u128) -> Deployment {
    let mut deployment = Deployment::sample().numbered(number);
    deployment.environment = environment();
    deployment
}

/// What must be there before anything can run; laying it twice changes nothing.
pub async fn lay(store: &Store) -> Result<Commit> {
    let at = Millis(1_700_000_000_000);
    let cause = Cause { change: None, at };
    let mut write = store.begin().await?;
    write.put_workspace(&Workspace::sample(), at).await?;
    write.put_project(&Project::sample(), at).await?;
    write.put_app(&App::sample(), at).await?;
    for number in 0..ENVIRONMENTS {
        let mut environment = Environment::sample().with_slug(&format!("environment-{number}"));
        environment.id = EnvironmentId::sample(number);
        write.put_environment(&environment, &cause).await?;
    }
    for place in places() {
        write.put_region(&place.region, true, at).await?;
        write.put_cluster(&place, &cause).await?;
    }
    let progress =
        Progress { status: Status::Ready, desired: DesiredState::Running, reason: None, updated_at: at };
    for number in 0..DEPLOYMENTS {
        write.put_deployment(&deployment(number), &progress).await?;
    }
    write.commit().await
}

impl Change {
    pub fn random(chance: &Random, now: Millis) -> Self {
        let place = chance.below(places().len() as u64) as usize;
        let deployment = u128::from(chance.below(DEPLOYMENTS as u64));
        let replicas = chance.below(4) as u32 + 1;
        let hostname = chance.below(HOSTNAMES);
        match chance.below(12) {
            0..=2 => Self::Scale { deployment, place, replicas, stopped: chance.below(4) == 0 },
            3 => Self::Remove { deployment, place },
            4 | 5 => {
                let environment = u128::from(chance.below(ENVIRONMENTS as u64));
                Self::Sentinel { environment, place, replicas, stopped: chance.below(4) == 0 }
            }
            6 => Self::Policy { deployment, place, text: chance.below(5) },
            7 => Self::RemovePolicy { deployment, place },
            8 => Self::Route { hostname, deployment },
            9 => Self::RemoveRoute { hostname },
            _ => Self::Event { id: EventId::new(now.0.unsigned_abs(), chance.bytes()) },
        }
    }

    /// A transaction's worth.
    pub fn several(chance: &Random, clock: &Clock) -> Vec<Self> {
        let now = Millis(clock.now().millis());
        let mut changes: Vec<Self> = (0..=chance.below(4)).map(|_| Self::random(chance, now)).collect();
        // As our own code does, in one order; a few do not, and meet in deadlocks.
        if chance.below(30) != 0 {
            changes.sort_unstable();
        }
        changes
    }

    pub async fn make(&self, write: &mut Write, at: Millis) -> Result<()> {
        let cause = Cause { change: None, at };
        match self {
            Self::Scale { deployment: number, place, replicas, stopped } => {
                let deployment = deployment(*number);
                let scaling = Scaling::Fixed(Replicas::new((*replicas).into()).expect("few replicas"));
                let topology = Topology::sample().of(deployment.id).at(&places()[*place].to_string());
                let topology = topology.with_scaling(scaling);
                let topology = if *stopped { topology.stopped() } else { topology };
                write.put_topology(&topology, &deployment, Status::Ready, &cause).await?;
            }
            Self::Remove { deployment, place } => {
                let id = DeploymentId::sample(*deployment);
                write.remove_topology(id, &places()[*place], &cause).await?;
            }
            Self::Sentinel { environment, place, replicas, stopped } => {
                let mut sentinel =
                    Sentinel::sample().with_replicas(*replicas).at(&places()[*place].to_string());
                sentinel.environment = EnvironmentId::sample(*environment);
                sentinel.id = sentinel_id(*environment, *place);
                sentinel.k8s_name = sentinel.id.kubernetes_name();
                if *stopped {
                    sentinel.desired.state = DesiredState::Stopped;
                }
                write.put_sentinel(&sentinel, &cause).await?;
            }
            Self::Policy { deployment, place, text } => {
                write.put_network_policy(&policy(*deployment, *place, *text), &cause).await?;
            }
            Self::RemovePolicy { deployment, place } => {
                write.remove_network_policy(policy(*deployment, *place, 0).id, &cause).await?;
            }
            Self::Route { hostname, deployment } => {
                let targets = Targets::one(DeploymentId::sample(*deployment));
                let route = Route {
                    environment: environment(),
                    hostname: host(*hostname),
                    targets,
                    previous: None,
                    follows: Follows::Live,
                    affinity: Affinity::None,
                };
                write.put_route(&route, &cause).await?;
            }
            Self::RemoveRoute { hostname } => {
                write.remove_route(environment(), &host(*hostname), &cause).await?;
            }
            Self::Event { id } => {
                let event = Event::sample();
                let event = Event::new(*id, event.kind, event.subject, event.change, at);
                write.put_event(&event).await?;
            }
        }
        Ok(())
    }

    /// The rows it may change, and whether they are tombstones then.
    fn rows(&self) -> Vec<(String, bool)> {
        let topology = |deployment: &u128, place: &usize, column| {
            let place = places()[*place].clone();
            row(&Topic::Deployments(place), &Key::new(DeploymentId::sample(*deployment).to_string()))
                .replace(".version", column)
        };
        let both =
            |row: String, gone| vec![(row.replace(".version", ".observed_version"), gone), (row, gone)];
        match self {
            Self::Scale { deployment, place, stopped, .. } => vec![
                (topology(deployment, place, ".version"), *stopped),
                (topology(deployment, place, ".routing_version"), false),
            ],
            Self::Remove { deployment, place } => vec![
                (topology(deployment, place, ".version"), true),
                (topology(deployment, place, ".routing_version"), true),
            ],
            Self::Sentinel { environment, place, stopped, .. } => {
                let id = sentinel_id(*environment, *place);
                vec![
                    (format!("sentinels.version/{id}"), *stopped),
                    (format!("sentinels.observed_version/{id}"), false),
                ]
            }
            Self::Policy { deployment, place, .. } | Self::RemovePolicy { deployment, place } => {
                let id = policy(*deployment, *place, 0).id;
                both(
                    format!("cilium_network_policies.version/{id}"),
                    matches!(self, Self::RemovePolicy { .. }),
                )
            }
            Self::Route { hostname, .. } | Self::RemoveRoute { hostname } => {
                let row = format!("routes.version/{}/{}", environment(), host(*hostname));
                vec![(row, matches!(self, Self::RemoveRoute { .. }))]
            }
            Self::Event { id } => vec![(format!("events.version/{id}"), false)],
        }
    }
}

/// What a commit of these changes numbered, as the recorder writes it down.
pub fn committed(changes: &[Change], commit: &Commit) -> Vec<Committed> {
    let gone: std::collections::BTreeMap<String, bool> = changes.iter().flat_map(Change::rows).collect();
    let note = |stamped: &Stamped| {
        let row = stamped_row(stamped);
        let gone = gone.get(&*row).copied().unwrap_or(false);
        Committed { row, version: stamped.version.get(), gone }
    };
    commit.0.iter().map(note).collect()
}

fn stamped_row(stamped: &Stamped) -> Row {
    let mut row = format!("{}.{}", stamped.table, stamped.column);
    for value in &stamped.key {
        let Value::Text(text) = value else { panic!("keys are texts") };
        row.push('/');
        row.push_str(text);
    }
    row.into()
}

/// The row that an item of a stream stands for.
pub fn row(topic: &Topic, key: &Key) -> String {
    let at = |place: &Placement| format!("{}/{}/{}", place.region.platform, place.region.name, place.shard);
    match topic {
        Topic::Deployments(place) => format!("deployment_topology.version/{key}/{}", at(place)),
        Topic::Routing(_, place) => format!("deployment_topology.routing_version/{key}/{}", at(place)),
        Topic::Sentinels(_) => format!("sentinels.version/{key}"),
        Topic::SentinelReports(_) => format!("sentinels.observed_version/{key}"),
        Topic::NetworkPolicies(_) => format!("cilium_network_policies.version/{key}"),
        Topic::NetworkPolicyReports(_) => format!("cilium_network_policies.observed_version/{key}"),
        Topic::Routes(environment) => format!("routes.version/{environment}/{key}"),
        Topic::Environment(_) => format!("environments.version/{key}"),
        Topic::Keys(_) => format!("keys.version/{key}"),
        Topic::Clusters => {
            let place: Placement = key.as_str().parse().expect("a cluster's key is its place");
            format!("clusters.version/{}", at(&place))
        }
        Topic::Tokens => format!("tokens.version/{key}"),
        Topic::Events => format!("events.version/{key}"),
    }
}

/// The queries that list every row of every stream: row, version and whether it is a tombstone.
pub fn tables() -> Vec<String> {
    let place = "platform || '/' || region || '/' || shard";
    let streams = [
        ("deployment_topology", "version", format!("deployment_id || '/' || {place}"), "gone"),
        (
            "deployment_topology",
            "routing_version",
            format!("deployment_id || '/' || {place}"),
            "routing_gone",
        ),
        ("sentinels", "version", "id".into(), "gone"),
        ("sentinels", "observed_version", "id".into(), "observed_gone"),
        ("cilium_network_policies", "version", "id".into(), "gone"),
        ("cilium_network_policies", "observed_version", "id".into(), "observed_gone"),
        ("routes", "version", "environment_id || '/' || hostname".into(), "gone"),
        ("environments", "version", "id".into(), "gone"),
        ("clusters", "version", place.into(), "gone"),
        ("events", "version", "id".into(), "1 = 0"),
    ];
    let query = |(table, version, key, gone): &(&str, &str, String, &str)| {
        format!("SELECT '{table}.{version}/' || {key}, {version}, {gone} FROM {table}")
    };
    streams.iter().map(query).collect()
}

fn sentinel_id(environment: u128, place: usize) -> SentinelId {
    SentinelId::sample(environment * 10 + place as u128)
}

fn policy(deployment: u128, place: usize, text: u64) -> NetworkPolicy {
    NetworkPolicy {
        id: NetworkPolicyId::sample(deployment * 10 + place as u128),
        placement: places()[place].clone(),
        name: NetworkPolicy::name_for(&DeploymentId::sample(deployment).kubernetes_name()).expect("a name"),
        deployment: DeploymentId::sample(deployment),
        policy: format!("{{\"text\":{text}}}").parse().expect("an object"),
        ..NetworkPolicy::sample()
    }
}

fn host(number: u64) -> Hostname {
    format!("host-{number}.example.com").parse().expect("a hostname")
}

/// A row's name, shared.
pub fn shared(row: &str) -> Arc<str> {
    row.into()
}
