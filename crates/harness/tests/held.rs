//! Something that cannot be applied is held and tried again, and stands in nobody's way.

#![allow(
    clippy::disallowed_methods,
    reason = "real servers move in real time, and so does who waits for them"
)]

use std::time::Duration;

use agent::{
    config::AgentConfig,
    object::{Ref, Type},
};
use harness::{
    eventually,
    faults::{Asked, Fate, Faults, Record},
    ground::{Ground, fixed, upto},
    kubernetes::Kubernetes,
    runner::{self, Runner},
};
use model::{cluster::ApplyReason, deployment::Deployment, watch::Version};

/// A ground whose agent asks through faults, and is refused every write of a `ReplicaSet` with a bad image, and of an
/// autoscaler with a bad maximum.
struct Held {
    ground: Ground,
    kubernetes: Kubernetes,
    faults: Faults,
    agent: Runner,
}

const BAD: &str = "krane/refused:1";
const BAD_MAX: i64 = 9;

impl Held {
    async fn start() -> Held {
        let ground = Ground::lay().await;
        let kubernetes = Kubernetes::connect().await;
        kubernetes.grant(ground.names.namespace.as_str()).await;
        let faults = Faults::none();
        faults.set(|asked| if is_bad(asked) { Fate::answer(422, "Invalid") } else { Fate::Pass });
        let agent = faults.start(config(&ground)).await;
        Held { ground, kubernetes, faults, agent }
    }

    fn bad(&self, number: u128) -> Deployment {
        self.ground.names.deployment(number).with_image(BAD)
    }

    /// Puts another one, and sees it run.
    async fn another_runs(&self, number: u128) -> Version {
        let deployment = self.ground.names.deployment(number);
        let version = self.ground.put_deployment(&deployment, fixed(1)).await;
        self.ground.running(deployment.id, 1).await;
        version
    }

    async fn is_told(&self, deployment: &Deployment) {
        let error = eventually("the reason is told", async || {
            self.ground.apply_error(deployment.id).await.ok_or_else(|| "nothing is told".to_owned())
        })
        .await;
        assert_eq!(error.reason, ApplyReason::Refused, "{error:?}");
        assert!(error.message.as_str().contains("the test says Invalid"), "{error:?}");
    }

    async fn is_cleared(&self, deployment: &Deployment) {
        eventually("the reason is taken back", async || {
            self.ground.apply_error(deployment.id).await.map_or(Ok(()), |error| Err(format!("{error:?}")))
        })
        .await;
    }

    /// The writes of it that were refused.
    fn attempts(&self, deployment: &Deployment) -> Vec<Record> {
        let is_attempt =
            |record: &Record| record.asked.name == deployment.k8s_name.as_str() && record.code == Some(422);
        self.faults.writes().into_iter().filter(is_attempt).collect()
    }

    /// Waits until it was tried so many times more.
    async fn is_tried_again(&self, deployment: &Deployment, more: usize) {
        let before = self.attempts(deployment).len();
        eventually("it is tried again", async || {
            let now = self.attempts(deployment).len();
            if now >= before + more { Ok(()) } else { Err(format!("{before} attempts, then {now}")) }
        })
        .await;
    }

    fn object(&self, ty: Type, deployment: &Deployment) -> Ref {
        Ref::new(ty, self.ground.names.namespace.as_str(), deployment.k8s_name.as_str())
    }

    async fn end(self) {
        self.agent.stop().await;
        self.ground.end().await;
    }
}

/// Nothing waits for long: a test waits for several attempts.
fn config(ground: &Ground) -> AgentConfig {
    let mut config = runner::config(ground, "held");
    config.pace.retry_max = Duration::from_secs(2);
    config
}

fn is_bad(asked: &Asked) -> bool {
    let image = &asked.body["spec"]["template"]["spec"]["containers"][0]["image"];
    image == BAD || asked.body["spec"]["maxReplicas"] == BAD_MAX
}

/// The cursor that the agent would go on from.
fn cursor(agent: &Runner) -> u64 {
    agent.metric("krane_cursor{kind=\"deployment\"}")
}

async fn passes(agent: &Runner, version: Version) {
    eventually("the cursor passes it", async || {
        let at = cursor(agent);
        if at >= version.get() { Ok(()) } else { Err(format!("it is at {at}, not yet at {version}")) }
    })
    .await;
}

/// The times between attempts grow, and none is shorter than half of the first delay.
fn assert_backs_off(attempts: &[Record]) {
    let times: Vec<_> = attempts.iter().map(|record| record.begun_at).collect();
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    println!("between attempts: {gaps:?}");
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(400)), "a hot loop: {gaps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cursor_passes_only_what_is_safely_held() {
    let mut held = Held::start().await;
    let bad = held.bad(1);
    let refused_at = held.ground.put_deployment(&bad, fixed(1)).await;
    held.is_told(&bad).await;
    passes(&held.agent, refused_at).await;

    // It stands in nobody's way, and is tried again without a word from anybody.
    let later = held.another_runs(2).await;
    passes(&held.agent, later).await;
    held.is_tried_again(&bad, 2).await;
    assert_backs_off(&held.attempts(&bad));

    // The stream breaks and goes on after the cursor: what is held is not sent again, and is not forgotten.
    held.ground.stop_serving().await;
    held.ground.serve().await;
    let after = held.another_runs(3).await;
    passes(&held.agent, after).await;
    held.is_told(&bad).await;
    held.is_tried_again(&bad, 1).await;
    assert_eq!(held.kubernetes.get(&held.object(Type::ReplicaSet, &bad)).await, None);

    // It works once it can, and that is told.
    held.faults.lift();
    held.ground.running(bad.id, 1).await;
    held.is_cleared(&bad).await;
    held.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_superseded_is_not_tried_again() {
    let held = Held::start().await;
    let [mended, removed] = [1, 2].map(|number| held.ground.names.deployment(number));
    for deployment in [&mended, &removed] {
        held.ground.put_deployment(deployment, upto(BAD_MAX)).await;
        held.is_told(deployment).await;
    }
    // By now the next attempt is seconds away.
    held.is_tried_again(&mended, 2).await;

    let attempts = held.attempts(&mended).len();
    held.ground.put_deployment(&mended, upto(5)).await;
    let autoscaler = held.object(Type::HorizontalPodAutoscaler, &mended);
    let started = tokio::time::Instant::now();
    eventually("the newer state is there", async || {
        let found = held.kubernetes.get(&autoscaler).await.unwrap_or_default();
        if found["spec"]["maxReplicas"] == 5 { Ok(()) } else { Err(found["spec"].to_string()) }
    })
    .await;
    println!("superseded after {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(2), "the newer state waited for the older one's turn");
    held.is_cleared(&mended).await;

    held.ground.remove_deployment(&removed).await;
    eventually("all of it is gone", async || {
        let found = held.kubernetes.get(&held.object(Type::ReplicaSet, &removed)).await;
        found.map_or(Ok(()), |found| Err(found["metadata"].to_string()))
    })
    .await;
    let attempts = (attempts, held.attempts(&removed).len());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let now = (held.attempts(&mended).len(), held.attempts(&removed).len());
    assert_eq!(now, attempts, "what is superseded is tried again");
    held.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_held_comes_again_after_a_restart() {
    let mut held = Held::start().await;
    let bad = held.bad(1);
    held.ground.put_deployment(&bad, fixed(1)).await;
    held.is_told(&bad).await;
    held.agent.kill().await;
    held.faults.forget();
    held.agent = held.faults.start(config(&held.ground)).await;
    held.is_tried_again(&bad, 1).await;
    held.is_told(&bad).await;
    held.faults.lift();
    held.ground.running(bad.id, 1).await;
    held.is_cleared(&bad).await;
    held.agent.stop().await;
    held.ground.end().await;
}
