//! One cluster as whoever stands outside sees it: everything that is in it, and what strangers do there.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent::{
    cluster::local::{
        Edit, Local, LocalSettings, Propagation,
        simulated::{Behaviour, Simulated},
    },
    object::{Ref, Type},
};
use model::name::Shard;
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use serde_json::Value;

/// How long a pod takes before it does anything.
const POD_STARTS: Duration = Duration::from_millis(300);

/// The local cluster that `krane dev` ships, with pods that are played.
pub struct Stage {
    pub cluster: Arc<Local>,
    node: Simulated,
    random: Random,
    /// The pods that would fail again and again for ever.
    failing: Mutex<BTreeSet<Ref>>,
}

impl Stage {
    pub fn new(shard: Shard, clock: &Clock, random: Random, tasks: &Tasks) -> Stage {
        let node = Simulated::slow(clock.clone(), tasks.clone(), POD_STARTS);
        let settings =
            LocalSettings { namespaces: vec![super::NAMESPACE.to_owned()], ..LocalSettings::default() };
        let cluster = Local::new(settings, node.clone(), shard, clock.clone(), random.fork());
        let running = cluster.clone();
        tasks.spawn("controllers", async move { running.run().await });
        Stage { cluster: Arc::new(cluster), node, random, failing: Mutex::default() }
    }

    /// Every object there is.
    pub fn all(&self) -> Vec<(Ref, Arc<Value>)> {
        let of_type = |ty: Type| {
            let named = move |json: Arc<Value>| {
                let text = |field: &str| json["metadata"][field].as_str().unwrap_or_default();
                (Ref::new(ty, text("namespace"), text("name")), json.clone())
            };
            self.cluster.all(ty).into_iter().map(named)
        };
        Type::ALL.into_iter().flat_map(of_type).collect()
    }

    /// Whether its controllers have nothing left to do.
    pub fn is_settled(&self) -> bool {
        self.cluster.is_settled()
    }

    /// A stranger's change of some fields; null takes one away. What the cluster would refuse is not changed.
    pub fn edit(&self, object: &Ref, patch: Value) -> bool {
        self.cluster.edit("stranger", object, &Edit::Merge(patch)).is_ok()
    }

    pub fn remove(&self, object: &Ref) -> bool {
        let propagation =
            if self.random.below(2) == 0 { Propagation::Foreground } else { Propagation::Background };
        self.cluster.remove(object, propagation).is_ok()
    }

    /// A pod fails, in one way or another.
    pub fn crash(&self, pod: &Ref) -> bool {
        let ways = [
            Behaviour::CrashLoop,
            Behaviour::OutOfMemory,
            Behaviour::SlowStart,
            Behaviour::NeverReady,
            Behaviour::Evict,
            Behaviour::Fail,
            Behaviour::Succeed,
        ];
        let way = ways[usize::try_from(self.random.below(ways.len() as u64)).expect("an index fits")];
        if matches!(way, Behaviour::CrashLoop | Behaviour::OutOfMemory) {
            self.failing.lock().unwrap_or_else(PoisonError::into_inner).insert(pod.clone());
        }
        self.node.order(&pod.namespace, &pod.name, way)
    }

    /// What fails again and again does so no more: it would never come to rest.
    pub fn heal(&self) {
        let failing = std::mem::take(&mut *self.failing.lock().unwrap_or_else(PoisonError::into_inner));
        for pod in failing {
            self.node.order(&pod.namespace, &pod.name, Behaviour::Run);
        }
    }
}
