//! Objects that stand, an agent that holds them, and a door behind which everything can change.

use std::{path::PathBuf, sync::Arc, time::Duration};

use agent::{KINDS, config::AgentConfig, object::Type};
use harness::{
    PATIENCE,
    door::Door,
    eventually,
    ground::{Ground, copy, fixed},
    kubernetes::Kubernetes,
    runner::{self, Runner},
};
use kube::{
    Api,
    api::{DynamicObject, ListParams, PartialObjectMeta},
};
use model::{cluster::Counts, deployment::Deployment};
use runtime::clock::Clock;
use tokio::time::Instant;

use super::stock::Stock;

/// How many of each kind: deployments, sentinels, network policies.
pub type Numbers = [u64; 3];

pub struct Scene {
    pub size: u128,
    pub kubernetes: Kubernetes,
    /// The store that everything was made from.
    pub ground: Ground,
    pub door: Door,
    /// A copy of the database from before the last of them were put.
    pub backup: PathBuf,
    pub agent: Option<Runner>,
    pub stock: Stock,
    /// How many deployments of another database stand there by now.
    pub strangers: u64,
    pub instance: String,
    started: Instant,
    /// Where copies of the database are kept.
    pub backups: tempfile::TempDir,
}

impl Scene {
    /// So many deployments, and if they are few, a sentinel and a policy; all of them applied at versions below the
    /// floor, so that nothing but history, region and shard speaks for them once no list names them.
    pub async fn set(size: u128) -> Scene {
        let (ground, kubernetes) = (Ground::lay().await, Kubernetes::connect().await);
        let namespace = ground.names.namespace.to_string();
        kubernetes.grant(&namespace).await;
        let all: Vec<Deployment> = (1..=size).map(|number| ground.names.deployment(number)).collect();
        let (kept, missing) = all.split_at(kept(size));
        let mut ground = ground;
        let scaling = if is_mixed(size) { fixed(1) } else { fixed(0) };
        ground.put_deployments(kept, scaling).await;
        if is_mixed(size) {
            ground.put_sentinel(&ground.names.sentinel(1)).await;
        }
        // Of what is missing from the copy, one was there before, and the copy has its tombstone: older than what stands.
        let last = &missing[missing.len() - 1..];
        ground.put_deployments(last, scaling).await;
        ground.remove_deployment(&last[0]).await;
        let backups = tempfile::tempdir().expect("a directory");
        let backup = backups.path().join("older.db");
        // Nobody writes while nobody serves.
        ground.stop_serving().await;
        copy(&ground.database(), &backup);
        ground.serve().await;
        ground.put_deployments(missing, scaling).await;
        if is_mixed(size) {
            ground.put_policy(&ground.names.policy(1)).await;
        }
        let door = Door::to(&ground.url).await;
        let stock = Stock::take(&kubernetes, &ground.names).await;
        let mut scene = Scene {
            size,
            kubernetes,
            ground,
            door,
            backup,
            agent: None,
            stock,
            strangers: 0,
            instance: format!("deleting-{size}"),
            started: Clock::system().instant(),
            backups,
        };
        scene.start().await;
        scene.stands().await;
        scene.raise_the_floor().await;
        scene.stock = Stock::take(&scene.kubernetes, &scene.ground.names).await;
        let (objects, passed) = (scene.stock.len(), scene.started.elapsed());
        println!("{size}: {objects} objects stand after {passed:.1?}");
        scene
    }

    /// Waits for as long as there is progress: a thousand take a while.
    async fn stands(&self) {
        let namespace = self.ground.names.namespace.as_str();
        let pods = if is_mixed(self.size) { self.size } else { 0 };
        let wanted =
            [(Type::ReplicaSet, self.size), (Type::PodDisruptionBudget, self.size), (Type::Pod, pods)];
        let (mut best, mut since) = (0, Clock::system().instant());
        loop {
            let mut there = 0;
            for (ty, count) in wanted {
                there += self
                    .kubernetes
                    .names(ty, namespace)
                    .await
                    .len()
                    .min(usize::try_from(count).expect("few"));
            }
            if there as u128 == wanted.iter().map(|(_, count)| count).sum::<u128>() {
                break;
            }
            if there > best {
                (best, since) = (there, Clock::system().instant());
            }
            assert!(since.elapsed() < PATIENCE, "{there} of {wanted:?} are there");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.is_in_step().await;
    }

    /// One deployment comes and goes, and its tombstone is pruned: the floor is above whatever was applied before.
    async fn raise_the_floor(&self) {
        let last = self.ground.names.deployment(5000);
        let namespace = self.ground.names.namespace.as_str();
        let is_there = async || {
            self.kubernetes.names(Type::ReplicaSet, namespace).await.contains(&last.k8s_name.to_string())
        };
        self.ground.put_deployment(&last, fixed(0)).await;
        eventually("it comes", async || is_there().await.then_some(()).ok_or_else(String::new)).await;
        self.ground.remove_deployment(&last).await;
        eventually("it goes", async || (!is_there().await).then_some(()).ok_or_else(String::new)).await;
        self.ground.prune().await;
    }

    pub fn config(&self) -> AgentConfig {
        let mut config = runner::config(&self.ground, &self.instance);
        config.control[0].urls = vec![self.door.url.clone()];
        (config.kubernetes.requests_per_second, config.kubernetes.requests_burst) = (5000, 5000);
        config
    }

    /// Starts the agent, which is none the wiser for whoever came before it.
    pub async fn start(&mut self) {
        self.agent = Some(Runner::start(self.config()).await);
    }

    pub async fn kill(&mut self) {
        self.agent.take().expect("it runs").kill().await;
    }

    pub fn agent(&self) -> &Runner {
        self.agent.as_ref().expect("it runs")
    }

    /// How many of each kind there are.
    pub fn all(&self) -> Numbers {
        let others = u64::from(is_mixed(self.size));
        [u64::try_from(self.size).expect("few"), others, others]
    }

    /// How many of each kind the older copy has.
    pub fn kept(&self) -> Numbers {
        [kept(self.size) as u64, u64::from(is_mixed(self.size)), 0]
    }

    /// What nobody accounts for when these are held.
    pub fn orphans(&self, held: Numbers) -> Numbers {
        let [deployments, sentinels, policies] = self.all();
        [deployments - held[0] + self.strangers, sentinels - held[1], policies - held[2]]
    }

    pub async fn is_in_step(&self) {
        sees(self.agent(), self.all(), [self.strangers, 0, 0]).await;
        acts(self.agent()).await;
    }

    /// Nothing is gone, and nobody tried.
    pub async fn is_unharmed(&mut self, cause: &str, others: &[&str]) {
        let Scene { stock, kubernetes, ground, instance, started, size, .. } = self;
        let agents: Vec<&str> = others.iter().copied().chain([instance.as_str()]).collect();
        stock.is_unharmed(cause, kubernetes, &ground.names, &agents).await;
        println!("{size}: {cause}: nothing is gone after {:.1?}", started.elapsed());
    }

    pub async fn end(mut self) {
        self.kill().await;
        self.ground.end().await;
    }
}

/// Waits until an agent has a complete list with so many in it, and says of so many others that nobody accounts for
/// them; nothing waits to be deleted.
pub async fn sees(agent: &Runner, held: Numbers, orphans: Numbers) {
    eventually(&format!("{} holds {held:?} beside {orphans:?}", agent.instance), async || {
        let number = |name: &str| KINDS.map(|kind| agent.metric(&format!("krane_{name}{{kind=\"{kind}\"}}")));
        assert_eq!(number("held_back"), [0; 3], "nothing is to be deleted, confirmed or not");
        let seen = (number("held"), number("orphans"));
        let is_listed = number("cursor").iter().all(|cursor| *cursor > 0);
        if is_listed && seen == (held, orphans) {
            Ok(())
        } else {
            Err(format!("{seen:?}, listed: {is_listed}"))
        }
    })
    .await;
}

/// Waits until an agent has a term, and has done all there is to do.
pub async fn acts(agent: &Runner) {
    let started = Clock::system().instant();
    let number = |name: &str| KINDS.map(|kind| agent.metric(&format!("krane_{name}{{kind=\"{kind}\"}}")));
    let is_done = || agent.metric("krane_acting") == 1 && number("applies_waiting") == [0; 3];
    while !is_done() {
        assert!(started.elapsed() < 4 * PATIENCE, "it has this to do: {:?}", number("applies_waiting"));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(number("failing"), [0; 3]);
}

/// Waits until what is held was applied from the history that a store has now.
pub async fn is_applied_from(scene: &Scene, ground: &Ground, held: Numbers) {
    let history = ground.store.position().await.expect("a position").history.to_string();
    let label = format!("unkey.com/shard={}", scene.ground.names.place.shard);
    let started = Clock::system().instant();
    for (ty, count) in
        [(Type::ReplicaSet, held[0]), (Type::Deployment, held[1]), (Type::CiliumNetworkPolicy, held[2])]
    {
        let api = Api::<DynamicObject>::all_with(scene.kubernetes.client.clone(), &Kubernetes::resource(ty));
        loop {
            let list = api.list_metadata(&ListParams::default().labels(&label)).await.expect("it answers");
            let is_of_it = |object: &&PartialObjectMeta<DynamicObject>| {
                object
                    .metadata
                    .annotations
                    .iter()
                    .flatten()
                    .any(|(key, value)| key == "unkey.com/history" && *value == history)
            };
            let there = list.items.iter().filter(is_of_it).count() as u64;
            if there >= count {
                break;
            }
            assert!(started.elapsed() < 4 * PATIENCE, "{there} of {count} {ty:?} are of {history}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Waits until the control plane was told so.
pub async fn is_told(ground: &Ground, held: Numbers, orphans: Numbers) {
    eventually("the control plane is told", async || {
        let counts = ground.cluster().await.counts;
        let number = |of: fn(&Counts) -> u64| {
            KINDS.map(|kind| counts.iter().find(|counts| counts.kind == kind).map_or(0, of))
        };
        let told = (number(|counts| counts.held), number(|counts| counts.orphans));
        if told == (held, orphans) { Ok(()) } else { Err(format!("{told:?}, and not {held:?} {orphans:?}")) }
    })
    .await;
    assert_eq!(ground.held_back().await, []);
}

fn is_mixed(size: u128) -> bool {
    size < 100
}

/// Of a few all but a tenth, and at least one is missing: so few that no guard but proof itself stands before them. Of
/// a thousand a tenth, for each of them is applied once more from every history that has it.
fn kept(size: u128) -> usize {
    let kept = if is_mixed(size) { size - (size / 10).max(1) } else { size / 10 };
    usize::try_from(kept).expect("few")
}

/// A directory of its own.
pub fn home() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().expect("a directory"))
}
