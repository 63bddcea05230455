//! Why an instance does not run: what Kubernetes shows of a pod is in the store soon after.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant as Started},
};

use agent::object::{Ref, Type};
use harness::{
    PATIENCE,
    ground::{Ground, fixed},
    kubernetes::Kubernetes,
    runner::{self, Runner},
    sightings::Sightings,
};
use model::{
    deployment::Deployment,
    instance::{Instance, Status},
};
use serde_json::{Value, json};
use tokio::time::Instant;

/// How long the store may not know what Kubernetes shows.
const LATE: Duration = Duration::from_secs(2);

/// How often each thing goes wrong.
const ROUNDS: u128 = 3;

/// Something that can be wrong with a pod.
struct Knob {
    name: &'static str,
    how: How,
    /// What the API server shows of it, in the pod's status.
    is_shown: fn(&Value) -> bool,
    /// What is told of it.
    is_told: fn(&Instance) -> bool,
}

/// How a pod is told to go wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// By its image, from its beginning.
    Image,
    /// By an annotation, once it runs; another takes its place.
    Later,
    /// By the agent's settings.
    Nothing,
}

/// Something that is to be told.
struct Expected<'a> {
    knob: &'a Knob,
    deployment: Deployment,
    /// The pod, if it is one that ran before.
    pod: Option<String>,
    told_at: Option<(Instant, Vec<Instance>)>,
}

const KNOBS: [Knob; 9] = [
    Knob {
        name: "crash-loop",
        how: How::Image,
        is_shown: |status| container(status)["state"]["waiting"]["reason"] == "CrashLoopBackOff",
        is_told: |told| {
            is(told, Status::Pending, "CrashLoopBackOff", "panic: fake node: told to crash")
                && told.exit_code == Some(1)
                && told.restarts >= 1
        },
    },
    Knob {
        name: "out-of-memory",
        how: How::Image,
        is_shown: |status| container(status)["lastState"]["terminated"]["reason"] == "OOMKilled",
        is_told: |told| {
            is(told, Status::Pending, "OOMKilled", "restarting failed container")
                && told.exit_code == Some(137)
                && told.restarts >= 1
        },
    },
    Knob {
        name: "image-pull-error",
        how: How::Image,
        is_shown: |status| container(status)["state"]["waiting"]["reason"] == "ImagePullBackOff",
        is_told: |told| {
            is(told, Status::Pending, "ImagePullBackOff", "not found") && told.exit_code.is_none()
        },
    },
    Knob {
        name: "config-error",
        how: How::Image,
        is_shown: |status| container(status)["state"]["waiting"]["reason"] == "CreateContainerConfigError",
        is_told: |told| is(told, Status::Pending, "CreateContainerConfigError", ""),
    },
    Knob {
        name: "slow-start",
        how: How::Image,
        is_shown: |status| status["phase"] == "Running" && condition(status, "Ready")["status"] == "False",
        is_told: |told| is(told, Status::Pending, "ContainersNotReady", "unready") && !told.ready,
    },
    Knob {
        name: "never-ready",
        how: How::Image,
        is_shown: |status| status["phase"] == "Running" && condition(status, "Ready")["status"] == "False",
        is_told: |told| is(told, Status::Pending, "ContainersNotReady", "unready") && !told.ready,
    },
    Knob {
        name: "fail",
        how: How::Later,
        is_shown: |status| status["phase"] == "Failed",
        is_told: |told| is(told, Status::Failed, "Error", "") && told.exit_code == Some(3),
    },
    Knob {
        name: "evict",
        how: How::Later,
        is_shown: |status| status["phase"] == "Failed" && status["reason"] == "Evicted",
        // It is left out.
        is_told: |_| false,
    },
    Knob { name: "run", how: How::Image, is_shown: is_ready, is_told: |told| told.status == Status::Running },
];

const NOWHERE: Knob = Knob {
    name: "unschedulable",
    how: How::Nothing,
    is_shown: |status| condition(status, "PodScheduled")["reason"] == "Unschedulable",
    is_told: |told| is(told, Status::Pending, "Unschedulable", "nodes are available"),
};

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_fail_is_told_with_its_reason_within_two_seconds() {
    are_told(&KNOBS, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_no_node_takes_says_so_within_two_seconds() {
    are_told(&[NOWHERE], |config| {
        config.workload.node_selector = [("testing.krane/nowhere".to_owned(), "true".to_owned())].into();
    })
    .await;
}

async fn are_told(knobs: &[Knob], change: impl FnOnce(&mut agent::config::AgentConfig)) {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    let namespace = ground.names.namespace.as_str();
    kubernetes.grant(namespace).await;
    let mut config = runner::config(&ground, "reasons");
    change(&mut config);
    let agent = Runner::start(config).await;
    let pods = Sightings::of(&kubernetes, Type::Pod, namespace).await;
    let mut expected = Vec::new();
    for (nth, knob) in (1..).zip(knobs) {
        for round in 0..ROUNDS {
            let image = match knob.how {
                How::Image => format!("fake.local/{}:1", knob.name),
                How::Later | How::Nothing => "fake.local/run:1".to_owned(),
            };
            let deployment = ground.names.deployment(nth * 100 + round).with_image(&image);
            ground.put_deployment(&deployment, fixed(1)).await;
            expected.push(Expected { knob, deployment, pod: None, told_at: None });
        }
    }
    for expected in expected.iter_mut().filter(|expected| expected.knob.how == How::Later) {
        let running = ground.running(expected.deployment.id, 1).await;
        let pod = running[0].k8s_name.to_string();
        let patch =
            json!({ "metadata": { "annotations": { "testing.krane/behaviour": expected.knob.name } } });
        kubernetes.edit(&Ref::new(Type::Pod, namespace, &pod), patch).await;
        expected.pod = Some(pod);
    }
    hear(&ground, &mut expected).await;
    judge(&pods, &expected);
    agent.stop().await;
    ground.end().await;
}

/// Looks into the store until it has all of it, and notes when.
async fn hear(ground: &Ground, all: &mut [Expected<'_>]) {
    let started = Started::now();
    while all.iter().any(|expected| expected.told_at.is_none()) {
        for expected in all.iter_mut().filter(|expected| expected.told_at.is_none()) {
            let instances = ground.instances(expected.deployment.id).await;
            if expected.is_told(&instances) {
                expected.told_at = Some((Instant::now(), instances));
            } else {
                let name = expected.knob.name;
                assert!(started.elapsed() < PATIENCE, "{name} is not told: {instances:#?}");
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Nothing was told long after it was shown. The machine may hold one of twenty up.
fn judge(pods: &Sightings, all: &[Expected<'_>]) {
    let mut late: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for expected in all {
        let (told_at, instances) = expected.told_at.as_ref().expect("it was heard");
        let shown = pods.first(|pod| expected.is_of(pod) && (expected.knob.is_shown)(&pod["status"]));
        let shown =
            shown.unwrap_or_else(|| panic!("{} was told, not shown: {instances:?}", expected.knob.name));
        let after = told_at.saturating_duration_since(shown.at);
        late.entry(expected.knob.name).or_default().push(after);
    }
    println!("told after {late:#?}");
    let all: Vec<Duration> = late.into_values().flatten().collect();
    let in_time = all.iter().filter(|after| **after <= LATE).count();
    assert!(in_time * 100 >= all.len() * 95, "{in_time} of {} within {LATE:?}", all.len());
}

impl Expected<'_> {
    fn is_told(&self, instances: &[Instance]) -> bool {
        let Some(pod) = &self.pod else { return instances.iter().any(self.knob.is_told) };
        let found = instances.iter().find(|instance| instance.k8s_name.as_str() == pod);
        match (self.knob.name, found) {
            ("evict", found) => found.is_none(),
            (_, found) => found.is_some_and(self.knob.is_told),
        }
    }

    fn is_of(&self, pod: &Value) -> bool {
        let metadata = &pod["metadata"];
        metadata["labels"]["unkey.com/deployment.id"] == self.deployment.id.to_string()
            && self.pod.as_ref().is_none_or(|name| metadata["name"] == name.as_str())
    }
}

fn is(told: &Instance, status: Status, reason: &str, words: &str) -> bool {
    told.status == status
        && told.reason.as_ref().is_some_and(|told| told.as_str() == reason)
        && (words.is_empty() || told.message.as_ref().is_some_and(|told| told.as_str().contains(words)))
}

fn is_ready(status: &Value) -> bool {
    condition(status, "Ready")["status"] == "True"
}

fn container(status: &Value) -> &Value {
    &status["containerStatuses"][0]
}

fn condition<'a>(status: &'a Value, ty: &str) -> &'a Value {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().find(|one| one["type"] == ty).unwrap_or(&Value::Null)
}
