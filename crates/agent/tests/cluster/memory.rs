//! A cluster in memory whose pods are played, for one test.

use std::future::ready;

use agent::{
    cluster::{
        Error,
        local::{Edit, Local, LocalSettings, Propagation, simulated::Simulated},
    },
    object::{Ref, Type},
};
use model::name::Shard;
use runtime::{
    clock::{Clock, Timestamp},
    random::Random,
    shutdown::Tasks,
};

use serde_json::Value;

use crate::suite::{self, Setting};

const NAMESPACE: &str = "krane-test-user";
const OWN_NAMESPACE: &str = "krane-test";

pub struct Memory {
    cluster: Local,
    /// Dropped with the runtime of the test.
    _tasks: Tasks,
}

impl Memory {
    pub fn start() -> Memory {
        Memory::with(LocalSettings::default())
    }

    pub fn with(settings: LocalSettings) -> Memory {
        let clock = Clock::simulated(Timestamp::from_millis(1_700_000_000_000));
        let tasks = Tasks::new();
        let node = Simulated::new(clock.clone(), tasks.child());
        let namespaces = vec![OWN_NAMESPACE.to_owned()];
        let settings = LocalSettings { namespaces, ..settings };
        let shard = "krane-test".parse().unwrap();
        let cluster = Local::new(settings, node, shard, clock, Random::seeded(7));
        let controllers = cluster.clone();
        tasks.spawn("cluster", async move { controllers.run().await });
        let namespace = Ref::new(Type::Namespace, "", NAMESPACE);
        let body = suite::namespace(NAMESPACE);
        cluster.apply_as("krane", true, &namespace, &body).unwrap();
        Memory { cluster, _tasks: tasks }
    }
}

impl Setting for Memory {
    type Cluster = Local;

    fn cluster(&self) -> &Local {
        &self.cluster
    }

    fn namespace(&self) -> String {
        NAMESPACE.to_owned()
    }

    fn own_namespace(&self) -> String {
        OWN_NAMESPACE.to_owned()
    }

    fn shard(&self) -> Shard {
        "krane-test".parse().unwrap()
    }

    fn of_shard(&self, shard: &str) -> impl Future<Output = Local> {
        ready(self.cluster.of_shard(shard.parse().unwrap()))
    }

    fn edit(&self, object: &Ref, operations: &[Value]) -> impl Future<Output = Result<Value, Error>> {
        let edited = self.cluster.edit("stranger", object, &Edit::Json(operations.to_vec()));
        ready(edited.map(|value| (*value).clone()))
    }

    fn get(&self, object: &Ref) -> impl Future<Output = Option<Value>> {
        ready(self.cluster.get(object).map(|value| (*value).clone()))
    }

    async fn remove(&self, object: &Ref) {
        self.cluster.remove(object, Propagation::Background).unwrap();
    }
}
