//! A node whose pods are played: they run at once, or do what their image or an annotation says, under the clock of the
//! cluster. It is told as the nodes of the real test cluster are.
//!
//! | behaviour | what is seen | delay |
//! | --- | --- | --- |
//! | `run` | Running and Ready | – |
//! | `crash-loop`, `out-of-memory` | waiting `CrashLoopBackOff`, each wait twice the one before | first wait, 1s |
//! | `image-pull-error` | Pending, waiting `ErrImagePull`, then `ImagePullBackOff` | between the two, 1s |
//! | `config-error` | Pending, waiting `CreateContainerConfigError` | – |
//! | `slow-start` | Running, not ready; then ready | until ready, 5s |
//! | `never-ready` | Running, never ready | – |
//! | `evict`, `fail`, `succeed` | it runs, and then has ended | until then, 1s |

mod behaviour;
mod status;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use runtime::{clock::Clock, shutdown::Tasks, watch};
use serde_json::Value;

pub use self::behaviour::Behaviour;
use self::{
    behaviour::{Knob, Memory},
    status::Place,
};
use super::node::{Node, Running, Secrets, Tell, Told};

/// Pods live in 10.128.0.0/9, as those of the test cluster do.
const ADDRESS_FIRST: u32 = 0x0a80_0001;

/// A node that plays. Clones are the same one.
#[derive(Clone)]
pub struct Simulated(Arc<Played>);

struct Played {
    clock: Clock,
    tasks: Tasks,
    /// How long a pod takes before it does anything.
    start: Duration,
    addresses: AtomicU32,
    /// What can be said to each pod that is played.
    pods: Mutex<Stages>,
}

/// By namespace and name.
type Stages = BTreeMap<(String, String), Arc<watch::Sender<Orders>>>;

/// What a pod is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Orders {
    /// Another behaviour than the one that it began with.
    behaviour: Option<Behaviour>,
    is_stopped: bool,
}

impl Simulated {
    /// Plays pods in tasks of its owner's.
    pub fn new(clock: Clock, tasks: Tasks) -> Simulated {
        Simulated::slow(clock, tasks, Duration::ZERO)
    }

    /// The same with pods that take a while before they do anything.
    pub fn slow(clock: Clock, tasks: Tasks, start: Duration) -> Simulated {
        let addresses = AtomicU32::new(ADDRESS_FIRST);
        Simulated(Arc::new(Played { clock, tasks, start, addresses, pods: Mutex::default() }))
    }

    /// From now on a pod does something else. Says whether there is such a pod.
    pub fn order(&self, namespace: &str, name: &str, behaviour: Behaviour) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        let orders = self.pods().get(&key).cloned();
        orders.is_some_and(|orders| {
            orders.send_modify(|orders| orders.behaviour = Some(behaviour));
            true
        })
    }

    fn pods(&self) -> MutexGuard<'_, Stages> {
        self.0.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node for Simulated {
    /// Each has an address of its own, so that the ports may be what the pod names.
    fn bind(&self, _pod: &mut Value) {}

    fn start(&self, pod: &Value, _secrets: Secrets, tell: Tell) -> Box<dyn Running> {
        let about = &pod["metadata"];
        let text = |field: &str| about[field].as_str().unwrap_or_default().to_owned();
        let key = (text("namespace"), text("name"));
        let orders = Arc::new(watch::Sender::new(Orders::default()));
        let ip = Ipv4Addr::from_bits(self.0.addresses.fetch_add(1, Ordering::Relaxed));
        let player = Player {
            clock: self.0.clock.clone(),
            pod: pod.clone(),
            place: Place { ip: IpAddr::V4(ip), started_at: self.0.clock.now() },
            orders: orders.subscribe(),
            tell,
        };
        self.pods().insert(key.clone(), orders.clone());
        self.0.tasks.spawn_one_of_many("pod", player.play(self.0.start));
        Box::new(Stage { node: self.clone(), key, orders })
    }
}

/// A pod that is played.
struct Stage {
    node: Simulated,
    key: (String, String),
    orders: Arc<watch::Sender<Orders>>,
}

impl Running for Stage {
    fn stop(&mut self, _grace: Duration) {
        self.orders.send_modify(|orders| orders.is_stopped = true);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let mut pods = self.node.pods();
        if pods.get(&self.key).is_some_and(|orders| Arc::ptr_eq(orders, &self.orders)) {
            pods.remove(&self.key);
        }
    }
}

struct Player {
    clock: Clock,
    pod: Value,
    place: Place,
    orders: watch::Receiver<Orders>,
    tell: Tell,
}

/// Why a player goes on.
enum Next {
    Look,
    Stop,
    /// Nobody wants to know any more.
    Forgotten,
}

impl Player {
    async fn play(mut self, start: Duration) {
        let mut next = self.wait(Some(start).filter(|start| !start.is_zero())).await;
        let mut memory = Memory::default();
        let mut shown = Value::Null;
        loop {
            match next {
                Next::Forgotten => return,
                Next::Stop => return self.stop().await,
                Next::Look => {}
            }
            let knob = Knob::of(&self.pod).ordered(self.orders.borrow_and_update().behaviour);
            let change = memory.look(&knob, self.clock.instant());
            shown = status::of(&self.pod, &memory, change.is_none(), &self.place, self.clock.now(), &shown);
            self.tell.tell(Told::Status(shown.clone()));
            if memory.is_over(change.is_none()) {
                return self.tell.tell(Told::Ended);
            }
            next = match change {
                Some(change) => self.wait(Some(change)).await,
                None => self.hear().await,
            };
        }
    }

    /// Waits for orders, or for a moment; for none, if there is no moment to wait for yet.
    async fn wait(&mut self, moment: Option<Duration>) -> Next {
        let Some(moment) = moment else { return Next::Look };
        let clock = self.clock.clone();
        tokio::select! {
            biased;
            next = self.hear() => next,
            () = clock.sleep(moment) => Next::Look,
        }
    }

    async fn hear(&mut self) -> Next {
        if self.orders.borrow_and_update().is_stopped {
            return Next::Stop;
        }
        match self.orders.changed().await {
            Err(_) => Next::Forgotten,
            Ok(()) if self.orders.borrow().is_stopped => Next::Stop,
            Ok(()) => Next::Look,
        }
    }

    async fn stop(mut self) {
        let clock = self.clock.clone();
        let Some(delay) = behaviour::stop_delay(&self.pod) else {
            // It never ends by itself; whoever forgets it ends it.
            while self.orders.changed().await.is_ok() {}
            return;
        };
        if !delay.is_zero() {
            clock.sleep(delay).await;
        }
        self.tell.tell(Told::Ended);
    }
}
