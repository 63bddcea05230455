//! A control plane that fails: it is left alone for a while, tried with one call, and told everything once it is back.

use std::time::Duration;

use agent::object::{Ref, Type};
use futures_util::future::join_all;
use harness::{
    eventually,
    ground::{Ground, fixed},
    kubernetes::Kubernetes,
    outage::Door,
    runner::{self, Runner},
};
use model::{deployment::Deployment, instance::Status};
use serde_json::json;

/// More than the breaker needs to conclude anything.
const DEPLOYMENTS: u128 = 40;

/// Well within the first pause of the breaker.
const WINDOW: Duration = Duration::from_secs(4);

/// Beyond its first pause, and well within its second.
const SECOND: Duration = Duration::from_secs(7);

/// What heartbeats and the three streams ask meanwhile, at most. Without a breaker each deployment would be reported
/// at least twice.
const CALLS_MAX: u64 = 20;

const CLOSED: u64 = 0;
const OPEN: u64 = 2;

#[tokio::test(flavor = "multi_thread")]
async fn a_breaker_opens_stays_open_and_closes() {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    let namespace = ground.names.namespace.as_str();
    kubernetes.grant(namespace).await;
    let address = ground.url.strip_prefix("http://").expect("a URL").parse().expect("an address");
    let door = Door::to(address).await;
    let mut config = runner::config(&ground, "breaker");
    config.control[0].urls = vec![door.url.clone()];
    config.pace.heartbeat = Duration::from_secs(2);
    let agent = Runner::start(config).await;
    let breaker = |kind: &str| agent.metric(&format!("krane_breaker{{kind=\"{kind}\"}}"));
    let deployments: Vec<Deployment> = (1..=DEPLOYMENTS).map(|nth| ground.names.deployment(nth)).collect();
    ground.put_deployments(&deployments, fixed(1)).await;
    let mut pods = Vec::new();
    for deployment in &deployments {
        let running = ground.running(deployment.id, 1).await;
        pods.push(Ref::new(Type::Pod, namespace, running[0].k8s_name.as_str()));
    }
    assert_eq!(breaker("deployment"), CLOSED);

    door.shut();
    let patch = json!({ "metadata": { "annotations": { "testing.krane/behaviour": "never-ready" } } });
    join_all(pods.iter().map(|pod| kubernetes.edit(pod, patch.clone()))).await;
    eventually("the breaker opens", async || {
        if breaker("deployment") == OPEN {
            Ok(())
        } else {
            Err(format!("{} calls failed", door.turned_away()))
        }
    })
    .await;
    let opened = tokio::time::Instant::now();
    let before = door.turned_away();
    assert!(before >= 10, "it opened after {before} calls");
    tokio::time::sleep_until(opened + WINDOW).await;
    let during = door.turned_away() - before;
    println!("{before} calls until it opened, {during} in the {WINDOW:?} after");
    assert_eq!(breaker("deployment"), OPEN);
    assert!(during <= CALLS_MAX, "{during} calls in {WINDOW:?}");
    tokio::time::sleep_until(opened + SECOND).await;
    assert_eq!(breaker("deployment"), OPEN, "what was tried failed, so it stays open");
    assert!(door.turned_away() - before <= 2 * CALLS_MAX, "one call was tried, not all");
    assert_eq!((breaker("sentinel"), breaker("networkpolicy")), (CLOSED, CLOSED), "each kind has its own");

    door.open();
    eventually("the breaker closes", async || {
        if breaker("deployment") == CLOSED { Ok(()) } else { Err(format!("{:?}", opened.elapsed())) }
    })
    .await;
    println!("it closed {:?} after it opened", opened.elapsed());
    for deployment in &deployments {
        eventually("what could not be told is told", async || {
            let instances = ground.instances(deployment.id).await;
            let is_told = instances.iter().all(|told| told.status == Status::Pending);
            if is_told { Ok(()) } else { Err(format!("{instances:?}")) }
        })
        .await;
    }
    agent.stop().await;
    ground.end().await;
}
