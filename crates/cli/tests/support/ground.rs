//! One place with deployments in it, control planes as processes, and an agent's clients of them.

use model::{
    cluster::{Epoch, Reachability},
    event::{Event, EventKind},
    id::DeploymentId,
    name::Placement,
    watch::Version,
};
use runtime::{random::Random, shutdown::Tasks};
use store::{Store, Tail, Topic};
use tokio::time::timeout;
use wire::{auth::Bearer, client::Control};

use super::{
    agent,
    database::Database,
    plane::{PATIENCE, Plane, Replica},
    world,
};

pub struct Ground {
    pub store: Store,
    /// Tells the test what was committed, by whom ever.
    pub tail: Tail,
    pub plane: Plane,
    pub replicas: Vec<Replica>,
    pub place: Placement,
    pub token: Bearer,
    tasks: Tasks,
}

/// How many deployments are in the place.
pub const DEPLOYMENTS: u128 = 8;

impl Ground {
    pub async fn lay(database: &Database, replicas: usize) -> Self {
        let (tasks, place) = (Tasks::new(), world::places()[0].clone());
        let store = database.open(&tasks).await;
        world::lay(&store).await.expect("the world is laid");
        agent::place_deployments(&store, &place, 0..DEPLOYMENTS).await;
        let token = agent::agent_token(&store, &place).await;
        let tail = Tail::start(&store, &tasks).await.expect("a tail");
        let plane = Plane::new(database);
        let mut ground = Self { store, tail, plane, replicas: vec![], place, token, tasks };
        for nth in 0..replicas {
            ground.replicas.push(ground.plane.start(&format!("replica-{nth}")).await);
        }
        let pids: Vec<u32> = ground.replicas.iter().map(Replica::pid).collect();
        println!("{}, pids {pids:?}", ground.store.describe().await.expect("the database answers"));
        ground
    }

    /// A client of one replica alone.
    pub fn only(&self, nth: usize) -> Control {
        agent::client(vec![self.replicas[nth].url()], &self.token, &self.place, Random::system())
    }

    /// A client of all replicas.
    pub fn all(&self) -> Control {
        let urls = self.replicas.iter().map(Replica::url).collect();
        agent::client(urls, &self.token, &self.place, Random::system())
    }

    pub async fn begin(&self, control: &Control) -> Epoch {
        let answer = control.heartbeat(&agent::begin(&self.place, "cluster")).await;
        answer.expect("the term begins").epoch.expect("a term has a number")
    }

    pub async fn beat(&self, control: &Control, epoch: Epoch) {
        let answer = control.heartbeat(&agent::heartbeat(&self.place, Some(epoch))).await;
        assert_eq!(answer.expect("the heartbeat is taken").epoch, Some(epoch));
    }

    pub async fn reachability(&self) -> Reachability {
        self.store.cluster(&self.place).await.expect("the cluster is known").reachability
    }

    /// The names of the instances that are known of a deployment.
    pub async fn instances(&self, number: u128) -> Vec<String> {
        let records = self.store.instances_of(DeploymentId::sample(number)).await;
        let records = records.expect("the instances are read");
        records.iter().map(|record| record.instance.k8s_name.to_string()).collect()
    }

    /// The number of what sentinels are told of a deployment.
    pub async fn routing_version(&self, number: u128) -> Version {
        let topic = Topic::Routing(world::environment(), self.place.clone());
        let position = self.store.position().await.expect("a position");
        drop(self.tail.subscribe(vec![], position.cursor()).await.expect("the tail catches up"));
        let key = model::watch::Key::new(DeploymentId::sample(number).to_string());
        self.tail.get(&topic, &key).expect("it is placed").version
    }

    /// The events of one kind about the place, once there are so many.
    pub async fn events(&self, kind: EventKind, count: usize) -> Vec<Event> {
        let position = self.store.position().await.expect("a position");
        let mut changes =
            self.tail.subscribe(vec![Topic::Events], position.cursor()).await.expect("a stream");
        loop {
            let found = self.events_now(kind).await;
            if found.len() >= count {
                return found;
            }
            let next = timeout(PATIENCE, changes.next()).await;
            assert!(next.is_ok(), "{count} events of {kind}, but there are {found:?}");
        }
    }

    pub async fn events_now(&self, kind: EventKind) -> Vec<Event> {
        let all = self.store.events(Version::ZERO, 1000).await.expect("the events are read");
        let is_ours =
            |event: &Event| event.kind == kind && event.subject.placement.as_ref() == Some(&self.place);
        all.into_iter().map(|(_, event)| event).filter(is_ours).collect()
    }

    pub async fn end(self) {
        let Self { store, tail, tasks, .. } = self;
        drop((store, tail));
        tasks.stop(PATIENCE).await;
    }
}

/// The names that reports of these instances have.
pub fn names(numbers: &[u8]) -> Vec<String> {
    numbers.iter().map(|number| model::instance::Instance::sample(*number).k8s_name.to_string()).collect()
}
