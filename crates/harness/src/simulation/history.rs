//! What users do: operations drawn from the seed, written to the store as a control plane's API would.

use std::{collections::BTreeMap, fmt, time::Duration};

use model::{
    deployment::{Deployment, DesiredState, Progress, Status},
    environment::Environment,
    id::{DeploymentId, EnvironmentId, NetworkPolicyId, SentinelId},
    name::Placement,
    network_policy::NetworkPolicy,
    sentinel::Sentinel,
    size::{Replicas, Scaling},
    topology::Topology,
};
use runtime::random::Random;
use store::{Commit, Store, Write};

use super::world::World;
use crate::ground::{Names, between, fixed};

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Create,
    Scale,
    Autoscale,
    /// Another deployment takes the place of one, with another image.
    Image,
    /// It runs in another region as well, or not there any more.
    Move,
    Stop,
    Delete,
    PutPolicy,
    RemovePolicy,
    PutSentinel,
    ScaleSentinel,
    ImageOfSentinel,
    RotateSentinel,
    RemoveSentinel,
    PutEnvironment,
    RemoveEnvironment,
    /// Old tombstones are forgotten: who was away may never hear of them.
    Prune,
}

impl Operation {
    pub const ALL: [Operation; 17] = [
        Operation::Create,
        Operation::Scale,
        Operation::Autoscale,
        Operation::Image,
        Operation::Move,
        Operation::Stop,
        Operation::Delete,
        Operation::PutPolicy,
        Operation::RemovePolicy,
        Operation::PutSentinel,
        Operation::ScaleSentinel,
        Operation::ImageOfSentinel,
        Operation::RotateSentinel,
        Operation::RemoveSentinel,
        Operation::PutEnvironment,
        Operation::RemoveEnvironment,
        Operation::Prune,
    ];

    /// How often it is drawn, beside the others.
    const fn weight(self) -> u64 {
        match self {
            Operation::Create => 14,
            Operation::Scale | Operation::Delete => 8,
            Operation::Autoscale | Operation::Image | Operation::PutPolicy | Operation::PutSentinel => 5,
            Operation::Move | Operation::Stop | Operation::RemovePolicy | Operation::ScaleSentinel => 3,
            Operation::ImageOfSentinel
            | Operation::RotateSentinel
            | Operation::RemoveSentinel
            | Operation::PutEnvironment => 2,
            Operation::RemoveEnvironment | Operation::Prune => 1,
        }
    }
}

/// One row that an operation writes.
#[derive(Debug, Clone)]
enum Change {
    Deployment(Box<Deployment>),
    Topology(Box<Deployment>, Topology),
    NoTopology(DeploymentId, Placement),
    Sentinel(Box<Sentinel>),
    NoSentinel(SentinelId),
    Policy(Box<NetworkPolicy>),
    NoPolicy(NetworkPolicyId),
    Environment(Box<Environment>),
    NoEnvironment(EnvironmentId),
}

/// What users believe there is.
pub struct Users {
    random: Random,
    /// The names of each region.
    names: Vec<Names>,
    deployments: BTreeMap<u128, Placed>,
    sentinels: BTreeMap<(usize, u128), Sentinel>,
    environments: BTreeMap<u128, EnvironmentId>,
    next: u128,
}

struct Placed {
    deployment: Deployment,
    topologies: BTreeMap<usize, Topology>,
    policies: BTreeMap<usize, NetworkPolicy>,
}

/// More than these are not made, so that a run stays small.
const DEPLOYMENTS_MAX: usize = 6;
const ENVIRONMENTS_MAX: usize = 3;

impl Users {
    pub fn new(world: &World, random: Random) -> Users {
        let names: Vec<Names> = world.regions.iter().map(|region| region.names.clone()).collect();
        let environments = BTreeMap::from([(0, names[0].environment)]);
        Users {
            random,
            names,
            deployments: BTreeMap::new(),
            sentinels: BTreeMap::new(),
            environments,
            next: 1,
        }
    }

    /// Does something, and says what; whatever the weather, it is done when this returns.
    pub async fn act(&mut self, world: &World) -> Operation {
        let (operation, changes) = loop {
            let operation = self.draw();
            if let Some(changes) = self.changes(operation) {
                break (operation, changes);
            }
        };
        if operation == Operation::Prune {
            let pruned = world.store.prune(world.clock.now()).await;
            world.transcript.say(format_args!("users: Prune: {pruned:?}"));
            return operation;
        }
        loop {
            let written = world.store.retry(async || commit(&world.store, &changes, world).await).await;
            match written {
                Ok(commit) => {
                    world
                        .transcript
                        .say(format_args!("users: {operation:?}: {changes:?}: {:?}", commit.last()));
                    return operation;
                }
                Err(error @ (store::Error::Busy(_) | store::Error::Full(_))) => {
                    world.transcript.say(format_args!("users: {operation:?}: {error}"));
                    world.clock.sleep(Duration::from_millis(300)).await;
                }
                Err(error) => panic!("{operation:?} cannot be written: {error}, {changes:?}"),
            }
        }
    }

    fn draw(&self) -> Operation {
        let total = Operation::ALL.iter().map(|operation| operation.weight()).sum();
        let mut drawn = self.random.below(total);
        for operation in Operation::ALL {
            match drawn.checked_sub(operation.weight()) {
                Some(rest) => drawn = rest,
                None => return operation,
            }
        }
        unreachable!("a number below the sum of all weights")
    }

    /// What the operation writes; nothing, if there is nothing that it could be done to.
    fn changes(&mut self, operation: Operation) -> Option<Vec<Change>> {
        match operation {
            Operation::Create => (self.deployments.len() < DEPLOYMENTS_MAX).then(|| self.create(1)),
            Operation::Image => {
                let mut changes = self.delete()?;
                changes.extend(self.create(2));
                Some(changes)
            }
            Operation::Delete => self.delete(),
            Operation::Scale => {
                let replicas = i64::try_from(self.random.below(4)).expect("a small number");
                self.rescale(fixed(replicas))
            }
            Operation::Autoscale => {
                let min = 1 + i64::try_from(self.random.below(2)).expect("a small number");
                self.rescale(between(min, min + 2))
            }
            Operation::Move => self.move_elsewhere(),
            Operation::Stop => self.stop(),
            Operation::PutPolicy => self.put_policy(),
            Operation::RemovePolicy => self.remove_policy(),
            Operation::PutSentinel => self.put_sentinel(),
            Operation::ScaleSentinel | Operation::ImageOfSentinel | Operation::RotateSentinel => {
                self.change_sentinel(operation)
            }
            Operation::RemoveSentinel => {
                let key = self.one_of(self.sentinels.keys().copied())?;
                let sentinel = self.sentinels.remove(&key)?;
                Some(vec![Change::NoSentinel(sentinel.id)])
            }
            Operation::PutEnvironment => self.put_environment(),
            Operation::RemoveEnvironment => self.remove_environment(),
            Operation::Prune => Some(Vec::new()),
        }
    }

    fn create(&mut self, image: u32) -> Vec<Change> {
        let number = self.next;
        self.next += 1;
        let environment = self.one_of(self.environments.values().copied()).expect("there is always one");
        let image = format!("registry.example/app:{image}-{number}");
        let deployment = Deployment { environment, ..self.names[0].deployment(number) }.with_image(&image);
        let mut changes = vec![Change::Deployment(Box::new(deployment.clone()))];
        let mut topologies = BTreeMap::new();
        let first = self.below(self.names.len());
        let regions: Vec<usize> =
            if self.random.below(3) == 0 { (0..self.names.len()).collect() } else { vec![first] };
        for region in regions {
            let scaling = fixed(i64::try_from(self.random.below(3)).expect("a small number"));
            let topology = self.topology(region, &deployment, scaling);
            changes.push(Change::Topology(Box::new(deployment.clone()), topology.clone()));
            topologies.insert(region, topology);
        }
        self.deployments.insert(number, Placed { deployment, topologies, policies: BTreeMap::new() });
        changes
    }

    fn topology(&self, region: usize, deployment: &Deployment, scaling: Scaling) -> Topology {
        let Names { namespace, place, .. } = &self.names[region];
        let topology = Topology::sample().of(deployment.id).with_scaling(scaling);
        Topology { namespace: namespace.clone(), placement: place.clone(), ..topology }
    }

    fn delete(&mut self) -> Option<Vec<Change>> {
        let number = self.one_of(self.deployments.keys().copied())?;
        Some(self.delete_one(number))
    }

    fn delete_one(&mut self, number: u128) -> Vec<Change> {
        let placed = self.deployments.remove(&number).expect("it is there");
        let id = placed.deployment.id;
        let topologies =
            placed.topologies.values().map(|topology| Change::NoTopology(id, topology.placement.clone()));
        let policies = placed.policies.values().map(|policy| Change::NoPolicy(policy.id));
        topologies.chain(policies).collect()
    }

    /// One deployment in one of its places.
    fn one_topology(&self) -> Option<(u128, usize)> {
        let all = self.deployments.iter();
        let all: Vec<_> = all
            .flat_map(|(number, placed)| placed.topologies.keys().map(|region| (*number, *region)))
            .collect();
        self.one_of(all)
    }

    fn rescale(&mut self, scaling: Scaling) -> Option<Vec<Change>> {
        let (number, region) = self.one_topology()?;
        let placed = self.deployments.get_mut(&number)?;
        let topology = placed.topologies.get_mut(&region)?;
        topology.scaling = scaling;
        topology.desired = DesiredState::Running;
        Some(vec![Change::Topology(Box::new(placed.deployment.clone()), topology.clone())])
    }

    fn stop(&mut self) -> Option<Vec<Change>> {
        let (number, region) = self.one_topology()?;
        let placed = self.deployments.get_mut(&number)?;
        let topology = placed.topologies.get_mut(&region)?;
        topology.desired = match topology.desired {
            DesiredState::Running => DesiredState::Stopped,
            DesiredState::Stopped => DesiredState::Running,
        };
        Some(vec![Change::Topology(Box::new(placed.deployment.clone()), topology.clone())])
    }

    fn move_elsewhere(&mut self) -> Option<Vec<Change>> {
        let number = self.one_of(self.deployments.keys().copied())?;
        let region = self.below(self.names.len());
        let deployment = self.deployments.get(&number)?.deployment.clone();
        let topology = self.topology(region, &deployment, fixed(1));
        let placed = self.deployments.get_mut(&number)?;
        if placed.topologies.remove(&region).is_some() {
            let mut changes = vec![Change::NoTopology(deployment.id, topology.placement)];
            changes.extend(placed.policies.remove(&region).map(|policy| Change::NoPolicy(policy.id)));
            return Some(changes);
        }
        placed.topologies.insert(region, topology.clone());
        Some(vec![Change::Topology(Box::new(deployment), topology)])
    }

    fn put_policy(&mut self) -> Option<Vec<Change>> {
        let (number, region) = self.one_topology()?;
        let mut names = self.names[region].clone();
        names.environment = self.deployments.get(&number)?.deployment.environment;
        let mut policy = names.policy(number);
        // One for each place, and never two with the same id.
        policy.id = NetworkPolicyId::sample((1 << 16) + number * 4 + region as u128);
        if self.random.below(2) == 0 {
            let text = policy.policy.to_string().replace("\"TCP\"", "\"ANY\"");
            policy.policy = text.parse().expect("an object");
        }
        self.deployments.get_mut(&number)?.policies.insert(region, policy.clone());
        Some(vec![Change::Policy(Box::new(policy))])
    }

    fn remove_policy(&mut self) -> Option<Vec<Change>> {
        let all = self.deployments.iter();
        let all: Vec<_> = all
            .flat_map(|(number, placed)| placed.policies.keys().map(|region| (*number, *region)))
            .collect();
        let (number, region) = self.one_of(all)?;
        let policy = self.deployments.get_mut(&number)?.policies.remove(&region)?;
        Some(vec![Change::NoPolicy(policy.id)])
    }

    fn put_sentinel(&mut self) -> Option<Vec<Change>> {
        let (number, environment) =
            self.one_of(self.environments.iter().map(|(number, id)| (*number, *id)))?;
        let region = self.below(self.names.len());
        if self.sentinels.contains_key(&(region, number)) {
            return None;
        }
        let sentinel = self.names[region].sentinel(self.next);
        self.next += 1;
        let sentinel = Sentinel { environment, ..sentinel };
        self.sentinels.insert((region, number), sentinel.clone());
        Some(vec![Change::Sentinel(Box::new(sentinel))])
    }

    fn change_sentinel(&mut self, operation: Operation) -> Option<Vec<Change>> {
        let key = self.one_of(self.sentinels.keys().copied())?;
        let replicas = i64::try_from(self.random.below(4)).expect("a small number");
        let desired = &mut self.sentinels.get_mut(&key)?.desired;
        match operation {
            Operation::ImageOfSentinel => {
                desired.image = format!("krane/sentinel:{}", self.next).parse().expect("an image");
                self.next += 1;
            }
            Operation::RotateSentinel => {
                desired.credential = desired.credential.next();
                desired.gossip = desired.gossip.next();
            }
            _ => desired.replicas = Replicas::new(replicas).expect("a number of replicas"),
        }
        Some(vec![Change::Sentinel(Box::new(self.sentinels.get(&key)?.clone()))])
    }

    fn put_environment(&mut self) -> Option<Vec<Change>> {
        let number = self.next;
        if self.environments.len() >= ENVIRONMENTS_MAX {
            return None;
        }
        self.next += 1;
        let names = self.names[0].in_environment(number);
        let environment = Environment {
            id: names.environment,
            app: names.app,
            project: names.project,
            workspace: names.workspace,
            slug: format!("e-{number}").parse().expect("a slug"),
            ..Environment::sample()
        };
        self.environments.insert(number, environment.id);
        Some(vec![Change::Environment(Box::new(environment))])
    }

    /// With everything that is in it.
    fn remove_environment(&mut self) -> Option<Vec<Change>> {
        let (number, id) = self.one_of(
            self.environments.iter().map(|(number, id)| (*number, *id)).filter(|(number, _)| *number > 0),
        )?;
        self.environments.remove(&number);
        let inside = self.deployments.iter().filter(|(_, placed)| placed.deployment.environment == id);
        let inside: Vec<u128> = inside.map(|(number, _)| *number).collect();
        let mut changes: Vec<Change> =
            inside.into_iter().flat_map(|number| self.delete_one(number)).collect();
        let gone = self.sentinels.extract_if(.., |(_, environment), _| *environment == number);
        changes.extend(gone.map(|(_, sentinel)| Change::NoSentinel(sentinel.id)));
        changes.push(Change::NoEnvironment(id));
        Some(changes)
    }

    fn below(&self, count: usize) -> usize {
        usize::try_from(self.random.below(count as u64)).expect("an index fits")
    }

    fn one_of<T>(&self, all: impl IntoIterator<Item = T>) -> Option<T> {
        let mut all: Vec<T> = all.into_iter().collect();
        if all.is_empty() { None } else { Some(all.swap_remove(self.below(all.len()))) }
    }
}

async fn commit(store: &Store, changes: &[Change], world: &World) -> store::Result<Commit> {
    let mut write = store.begin().await?;
    for change in changes {
        change.make(&mut write, world).await?;
    }
    write.commit().await
}

impl Change {
    async fn make(&self, write: &mut Write, world: &World) -> store::Result<bool> {
        let cause = world.cause();
        let progress = Progress {
            status: Status::Ready,
            desired: DesiredState::Running,
            reason: None,
            updated_at: cause.at,
        };
        match self {
            Change::Deployment(deployment) => write.put_deployment(deployment, &progress).await,
            Change::Topology(deployment, topology) => {
                write.put_topology(topology, deployment, Status::Ready, &cause).await
            }
            Change::NoTopology(id, place) => write.remove_topology(*id, place, &cause).await,
            Change::Sentinel(sentinel) => write.put_sentinel(sentinel, &cause).await,
            Change::NoSentinel(id) => write.remove_sentinel(*id, &cause).await,
            Change::Policy(policy) => write.put_network_policy(policy, &cause).await,
            Change::NoPolicy(id) => write.remove_network_policy(*id, &cause).await,
            Change::Environment(environment) => write.put_environment(environment, &cause).await,
            Change::NoEnvironment(id) => write.remove_environment(*id, &cause).await,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
