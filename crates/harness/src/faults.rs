//! What an API server does when it is not well, in front of a real one that is.
//!
//! ```text
//! agent ──▶ Faults: what becomes of this request? ──▶ the real API server
//!              └── writes down what was asked, when, and how it ended
//! ```

mod answer;
mod asked;
mod service;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::{
    cluster::kube::{Kube, Requests},
    config::AgentConfig,
};
use http::{HeaderValue, header};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use runtime::{clock::Clock, random::Random};
use tokio::{sync::watch, time::Instant};

use crate::runner::Runner;

pub use self::{
    answer::{Answer, Fate},
    asked::Asked,
};

/// Decides what becomes of each request, and remembers all of them. Clones are the same.
#[derive(Clone)]
pub struct Faults(Arc<Inner>);

struct Inner {
    decide: Mutex<Arc<Decide>>,
    records: Mutex<Vec<Record>>,
    /// How many answers were held back so far.
    held: watch::Sender<usize>,
    /// How often every stream was cut.
    cuts: watch::Sender<usize>,
}

type Decide = dyn Fn(&Asked) -> Fate + Send + Sync;

/// One request, and what became of it.
#[derive(Debug, Clone)]
pub struct Record {
    pub asked: Asked,
    pub begun_at: Instant,
    /// When its answer began, or nobody waited for it any longer.
    pub ended_at: Option<Instant>,
    /// What was answered, by whomever; nothing, if nothing was.
    pub code: Option<u16>,
    /// Whether something went wrong that the API server did not do.
    pub is_fault: bool,
}

impl Faults {
    /// Nothing goes wrong yet.
    pub fn none() -> Faults {
        Faults(Arc::new(Inner {
            decide: Mutex::new(Arc::new(|_| Fate::Pass)),
            records: Mutex::default(),
            held: watch::Sender::new(0),
            cuts: watch::Sender::new(0),
        }))
    }

    /// From now on this decides, and nothing that was said before.
    pub fn set(&self, decide: impl Fn(&Asked) -> Fate + Send + Sync + 'static) {
        *lock(&self.0.decide) = Arc::new(decide);
    }

    /// From now on nothing goes wrong.
    pub fn lift(&self) {
        self.set(|_| Fate::Pass);
    }

    /// Every watch that is open now ends.
    pub fn cut(&self) {
        self.0.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The same server, with whatever goes wrong in front of it.
    pub fn before(&self, server: Client) -> Client {
        Client::new(service::Layer::new(self.clone(), server), "default")
    }

    /// The cluster as the agent of these settings sees it through this.
    pub async fn connect(&self, config: &AgentConfig) -> Kube {
        let (clock, random) = (Clock::system(), Random::system());
        let caller = agent::caller(config, &random);
        let instance = caller.instance.expect("an agent has a name");
        let client = self.before(client(config, instance.as_ref()).await);
        let shard = caller.placement.shard;
        Kube::new(client, &config.kubernetes, shard, Requests::default(), clock, random)
    }

    /// An agent that asks through this.
    pub async fn start(&self, config: AgentConfig) -> Runner {
        let cluster = Arc::new(self.connect(&config).await);
        Runner::start_on(config, cluster).await.expect("the agent starts")
    }

    /// Everything that was asked, in the order in which it was.
    pub fn records(&self) -> Vec<Record> {
        lock(&self.0.records).clone()
    }

    pub fn forget(&self) {
        lock(&self.0.records).clear();
    }

    /// The requests that would change an object, Leases aside.
    pub fn writes(&self) -> Vec<Record> {
        self.records().into_iter().filter(|record| record.asked.is_write()).collect()
    }

    /// Waits until the answer to a request was held back.
    pub async fn held(&self) {
        let mut held = self.0.held.subscribe();
        let waits = held.wait_for(|held| *held > 0);
        let waited = tokio::time::timeout(crate::PATIENCE, waits).await;
        waited.expect("no answer was held back in time").expect("we hold the other end");
    }

    fn fate(&self, asked: &Asked) -> Fate {
        let decide = lock(&self.0.decide).clone();
        decide(asked)
    }

    fn begin(&self, asked: Asked, is_fault: bool) -> Underway {
        let mut records = lock(&self.0.records);
        records.push(Record { asked, begun_at: Instant::now(), ended_at: None, code: None, is_fault });
        let begun_at = records.last().map(|record| record.begun_at);
        Underway { faults: self.clone(), number: records.len() - 1, begun_at }
    }
}

/// A request that was not answered yet; at the latest, it ends when nobody waits for it.
struct Underway {
    faults: Faults,
    number: usize,
    begun_at: Option<Instant>,
}

impl Underway {
    fn answered(self, code: u16) {
        self.note(Some(code));
    }

    fn hold(&self) {
        self.faults.0.held.send_modify(|held| *held += 1);
    }

    fn note(&self, code: Option<u16>) {
        let mut records = lock(&self.faults.0.records);
        // Somebody may have had everything forgotten meanwhile.
        let record = records.get_mut(self.number).filter(|record| Some(record.begun_at) == self.begun_at);
        if let Some(record) = record.filter(|record| record.ended_at.is_none()) {
            record.ended_at = Some(Instant::now());
            record.code = code;
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.note(None);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The client that an agent of these settings makes for itself, by which the audit log knows it.
async fn client(config: &AgentConfig, instance: &str) -> Client {
    let path = config.kubernetes.kubeconfig.as_ref().expect("a test's agent has a kubeconfig");
    let file = Kubeconfig::read_from(path).expect("a kubeconfig");
    let read = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut read = read.expect("a good kubeconfig");
    read.default_retry = false;
    read.read_timeout = None;
    let agent = HeaderValue::from_str(&format!("krane-agent/{instance}")).expect("a name fits a header");
    read.headers.push((header::USER_AGENT, agent));
    Client::try_from(read).expect("a client")
}
