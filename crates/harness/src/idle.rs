//! The promise that an agent with nothing to do asks for nothing and tells nothing, at any size and for any time.
//!
//! The API server does not say in `apiserver_request_total` who asked; its audit log does, request by request.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use agent::{config::AgentConfig, object::Type};
use model::{
    deployment::Deployment,
    size::{Autoscaling, Replicas, Scaling},
    watch::{Cursor, Version},
};

use crate::{
    PATIENCE,
    audit::{Audit, Request},
    ground::{Ground, fixed},
    kubernetes::Kubernetes,
    runner::{self, Runner},
};

/// How much is in step, and for how long it is watched.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// At least two hundred, so that there are some of every sort.
    pub deployments: usize,
    pub lasts: Duration,
}

/// Nobody who asks for nothing this long has anything left to do: it is longer than everything that recurs, but for
/// the list that is compared with the watches now and then.
const QUIET: Duration = Duration::from_secs(4);
const RESYNC: Duration = Duration::from_secs(3);

/// Longer than it takes to make everything.
const SETTLES: Duration = Duration::from_mins(3);

const POLICIES: usize = 10;
const SENTINELS: usize = 1;

/// An agent whose things are all in step renews its Lease and beats, and does nothing else; another in its place
/// reads everything once, tells everything once, and changes nothing.
pub async fn nothing_to_do_costs_nothing(size: Size) {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    let namespace = ground.names.namespace.as_str();
    kubernetes.grant(namespace).await;
    let first = Runner::start(config(&ground, "idle-first")).await;
    let began = Instant::now();
    let with_pods = furnish(&ground, size.deployments).await;
    at_rest(&ground, &first, async || {
        let made = kubernetes.names(Type::ReplicaSet, namespace).await.len();
        made == size.deployments && runs(&ground, &with_pods).await
    })
    .await;
    println!("{} deployments are in step after {:?}", size.deployments, began.elapsed());
    stays_at_rest(&ground, &first, size.lasts).await;
    first.stop().await;

    let (audit, told) = (Audit::from_now(), ground.reports_taken());
    let everything = (size.deployments + SENTINELS + 1) as u64;
    let second = Runner::start(config(&ground, "idle-second")).await;
    at_rest(&ground, &second, async || ground.reports_taken() >= told + everything).await;
    let asked = audit.of_agent(&second.instance);
    println!("a restart asks for {:?}", summary(&asked));
    let writes: Vec<&Request> =
        asked.iter().filter(|request| request.is_write() && request.resource != "leases").collect();
    assert_eq!(writes, Vec::<&Request>::new(), "a restart changes nothing");
    assert_eq!(
        ground.reports_taken() - told,
        everything,
        "each of the {} deployments and {SENTINELS} sentinels is reported once, and the inventory",
        size.deployments,
    );
    stays_at_rest(&ground, &second, QUIET).await;
    second.stop().await;
    ground.end().await;
}

/// As it comes, but for a limit that would only make the beginning longer, and a resync that comes around more often.
fn config(ground: &Ground, instance: &str) -> AgentConfig {
    let mut config = runner::config(ground, instance);
    config.kubernetes.requests_per_second = 10_000;
    config.kubernetes.requests_burst = 10_000;
    config.pace.concurrency_max = 64;
    config.pace.resync = RESYNC;
    config.pace.audit = AgentConfig::default().pace.audit;
    config.sentinel.min_ready = Duration::ZERO;
    config
}

/// Most have no pods, some have one, and some are scaled by an autoscaler that can measure nothing and says so all the
/// time. Answers with those that have pods.
async fn furnish(ground: &Ground, count: usize) -> Vec<Deployment> {
    assert!(count >= 200, "too few for some of every sort");
    let replicas = |count| Replicas::new(count).expect("a number of replicas");
    let auto = Autoscaling::new(replicas(1), replicas(3), None, None).expect("bounds");
    let mut sorts = [(fixed(0), Vec::new()), (fixed(1), Vec::new()), (Scaling::Auto(auto), Vec::new())];
    for number in 0..count {
        let sort = if number % 50 == 0 { 1 } else { usize::from(number % 100 == 1) * 2 };
        sorts[sort].1.push(ground.names.deployment(number as u128));
    }
    for (scaling, deployments) in &sorts {
        ground.put_deployments(deployments, *scaling).await;
    }
    ground.put_sentinel(&ground.names.sentinel(1)).await;
    for number in 0..POLICIES {
        ground.put_policy(&ground.names.policy(number as u128)).await;
    }
    let [_, ones, autoscaled] = sorts;
    ones.1.into_iter().chain(autoscaled.1).collect()
}

async fn runs(ground: &Ground, deployments: &[Deployment]) -> bool {
    for deployment in deployments {
        let instances = ground.instances(deployment.id).await;
        let is_running =
            |instance: &model::instance::Instance| instance.status == model::instance::Status::Running;
        if instances.len() != 1 || !instances.iter().all(is_running) {
            return false;
        }
    }
    true
}

/// Waits until it is so, and then until the agent has asked for nothing and told nothing for a while.
async fn at_rest(ground: &Ground, agent: &Runner, is_so: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < SETTLES, "it is not so");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let began = Instant::now();
    loop {
        let (audit, told) = (Audit::from_now(), ground.reports_taken());
        tokio::time::sleep(QUIET).await;
        let asked = besides_lease(&audit, &agent.instance);
        let news = ground.reports_taken() - told;
        if asked.is_empty() && news == 0 {
            return;
        }
        let last = summary(&asked);
        assert!(began.elapsed() < PATIENCE, "it does not come to rest: {news} reports, {last:?}");
    }
}

/// Sees that nothing happens but the Lease, watches that are opened anew, and heartbeats.
async fn stays_at_rest(ground: &Ground, agent: &Runner, lasts: Duration) {
    let (audit, told, version) = (Audit::from_now(), ground.reports_taken(), version(ground).await);
    let beats = ground.count("krane_heartbeats_total");
    tokio::time::sleep(lasts).await;
    let asked = audit.of_agent(&agent.instance);
    let beats = ground.count("krane_heartbeats_total") - beats;
    println!("in {lasts:?}: {beats} heartbeats, and {:?}", summary(&asked));
    assert_eq!(besides_lease(&audit, &agent.instance), Vec::new(), "nothing to do costs nothing");
    assert_eq!(ground.reports_taken(), told, "nothing new is nothing to tell");
    assert_eq!(self::version(ground).await, version, "nothing has changed in the store");
    let renewals = asked.iter().filter(|request| request.resource == "leases").count() as u64;
    let watches = asked.iter().filter(|request| request.verb == "watch").count();
    // It is renewed every two seconds; a busy machine makes it fewer and never more.
    assert!((1..=lasts.as_secs() / 2 + 1).contains(&renewals), "the Lease was renewed {renewals} times");
    assert!(watches <= Type::ALL.len(), "watches live for minutes, and {watches} were opened");
    assert!(beats > 0, "it is alive");
    let found = agent.metric("krane_resync_corrected_total{kind=\"deployment\"}");
    assert_eq!(found, 0, "the resync is only the net, and nothing fell into it");
}

fn besides_lease(audit: &Audit, instance: &str) -> Vec<Request> {
    let is_rest = |request: &Request| {
        let is_renewal = request.resource == "leases" && request.verb == "update";
        !is_renewal && request.verb != "watch"
    };
    audit.of_agent(instance).into_iter().filter(is_rest).collect()
}

fn summary(requests: &[Request]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(format!("{} {} {}", request.verb, request.resource, request.code)).or_default() += 1;
    }
    counts
}

async fn version(ground: &Ground) -> Version {
    ground.store.changes(Cursor::default()).await.expect("the store is read").position.version
}
