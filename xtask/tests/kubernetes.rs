//! The Kubernetes that tests run against: what its nodes are told to do is what its API server shows.

#[allow(dead_code, reason = "shared with tests that ask for more")]
#[path = "kubernetes/api.rs"]
mod api;

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use self::api::{Api, PODS, env, unique};

/// What a pod's only container shows, and the pod around it.
struct Seen(Value);

impl Seen {
    fn phase(&self) -> &str {
        self.0["status"]["phase"].as_str().unwrap_or_default()
    }

    fn container(&self) -> &Value {
        &self.0["status"]["containerStatuses"][0]
    }

    fn waits_for(&self, reason: &str) -> bool {
        self.container()["state"]["waiting"]["reason"] == reason
    }

    fn is_ready(&self) -> bool {
        let conditions = self.0["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
    }

    fn ended_before(&self, reason: &str, code: i64) -> bool {
        let ended = &self.container()["lastState"]["terminated"];
        ended["reason"] == reason && ended["exitCode"] == code
    }

    fn restarts(&self) -> i64 {
        self.container()["restartCount"].as_i64().unwrap_or_default()
    }
}

type Claim = fn(&Seen) -> bool;

/// Each behaviour, and what must be seen of it, in this order.
const BEHAVIOURS: [(&str, &[Claim]); 10] = [
    ("run", &[|pod| pod.phase() == "Running" && pod.is_ready()]),
    (
        "crash-loop",
        &[
            |pod| pod.waits_for("CrashLoopBackOff") && pod.ended_before("Error", 1) && pod.restarts() == 1,
            |pod| pod.restarts() > 1 && !pod.is_ready(),
        ],
    ),
    ("out-of-memory", &[|pod| pod.waits_for("CrashLoopBackOff") && pod.ended_before("OOMKilled", 137)]),
    (
        "image-pull-error",
        &[
            |pod| pod.phase() == "Pending" && pod.waits_for("ErrImagePull"),
            |pod| pod.phase() == "Pending" && pod.waits_for("ImagePullBackOff"),
        ],
    ),
    ("config-error", &[|pod| pod.phase() == "Pending" && pod.waits_for("CreateContainerConfigError")]),
    ("slow-start", &[|pod| pod.phase() == "Running" && !pod.is_ready(), Seen::is_ready]),
    ("never-ready", &[|pod| pod.phase() == "Running" && !pod.is_ready()]),
    ("evict", &[Seen::is_ready, |pod| pod.phase() == "Failed" && pod.0["status"]["reason"] == "Evicted"]),
    (
        "fail",
        &[Seen::is_ready, |pod| {
            pod.phase() == "Failed" && pod.container()["state"]["terminated"]["exitCode"] == 3
        }],
    ),
    ("succeed", &[Seen::is_ready, |pod| pod.phase() == "Succeeded"]),
];

fn pod(name: &str, image: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "runtimeClassName": "gvisor", "containers": [{ "name": "one", "image": image }] },
    })
}

/// Follows a pod until all of it was seen, in order.
fn see(api: &Api, name: &str, claims: &[Claim]) {
    let mut left = claims.iter().peekable();
    api.follow(name, |pod| {
        let pod = Seen(pod.clone());
        while left.next_if(|claim| claim(&pod)).is_some() {}
        left.peek().is_none()
    });
}

#[test]
fn each_behaviour_shows_what_the_help_says() {
    let api = Api::admin();
    for (behaviour, claims) in BEHAVIOURS {
        let name = unique(behaviour);
        let annotations = json!({ "testing.krane/behaviour": behaviour, "testing.krane/delay": "300ms" });
        api.make(PODS, &pod(&name, "any:1", annotations));
        see(&api, &name, claims);
        api.delete(&format!("{PODS}/{name}"));
    }
}

#[test]
fn an_image_names_a_behaviour_and_the_annotation_goes_before_it() {
    let api = Api::admin();
    let name = unique("image");
    api.make(PODS, &pod(&name, "fake.local/crash-loop:1", json!({})));
    see(&api, &name, &[|pod| pod.waits_for("CrashLoopBackOff")]);
    api.annotate(&format!("{PODS}/{name}"), &json!({ "testing.krane/behaviour": "run" }));
    // Healed, it still tells what happened.
    see(&api, &name, &[|pod| pod.is_ready() && pod.ended_before("Error", 1) && pod.restarts() > 0]);
    api.annotate(&format!("{PODS}/{name}"), &json!({ "testing.krane/behaviour": "evict" }));
    see(&api, &name, &[|pod| pod.0["status"]["reason"] == "Evicted"]);
    api.delete(&format!("{PODS}/{name}"));
}

#[test]
fn a_misspelt_behaviour_is_told_and_does_not_run() {
    let api = Api::admin();
    let name = unique("misspelt");
    api.make(PODS, &pod(&name, "fake.local/crashloop:1", json!({})));
    see(
        &api,
        &name,
        &[|pod| {
            let message = pod.container()["state"]["waiting"]["message"].as_str().unwrap_or_default();
            message.contains("no behaviour \"crashloop\"") && pod.phase() == "Pending"
        }],
    );
    api.delete(&format!("{PODS}/{name}"));
}

#[test]
fn what_no_node_can_bear_is_unschedulable_by_the_schedulers_own_word() {
    let api = Api::admin();
    let name = unique("large");
    let mut large = pod(&name, "any:1", json!({}));
    large["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "1001" } });
    api.make(PODS, &large);
    see(
        &api,
        &name,
        &[|pod| {
            let condition = &pod.0["status"]["conditions"][0];
            condition["type"] == "PodScheduled" && condition["reason"] == "Unschedulable"
        }],
    );
    api.delete(&format!("{PODS}/{name}"));
}

#[test]
fn pods_are_in_every_zone_and_no_two_have_one_address() {
    let api = Api::admin();
    let app = unique("spread");
    let labels = json!({ "app": app });
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    api.make(
        sets,
        &json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": { "name": app },
            "spec": {
                "replicas": 6,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "containers": [{ "name": "one", "image": "any:1" }],
                        "tolerations": [
                            { "key": "karpenter.sh/nodepool", "value": "untrusted", "effect": "NoSchedule" },
                        ],
                        "topologySpreadConstraints": [{
                            "maxSkew": 1,
                            "topologyKey": "topology.kubernetes.io/zone",
                            "whenUnsatisfiable": "DoNotSchedule",
                            "labelSelector": { "matchLabels": labels },
                        }],
                    },
                },
            },
        }),
    );
    let mut zones = std::collections::BTreeMap::new();
    let mut addresses = std::collections::BTreeSet::new();
    api.follow_all(&format!("labelSelector=app%3D{app}"), |pod| {
        let pod = Seen(pod.clone());
        if pod.is_ready() {
            let name = pod.0["metadata"]["name"].to_string();
            zones.insert(name, pod.0["metadata"]["labels"]["topology.kubernetes.io/zone"].to_string());
            addresses.insert(pod.0["status"]["podIP"].to_string());
        }
        zones.len() == 6
    });
    assert_eq!(addresses.len(), 6, "{addresses:?}");
    for zone in ["\"test-1a\"", "\"test-1b\"", "\"test-1c\""] {
        assert_eq!(zones.values().filter(|seen| *seen == zone).count(), 2, "{zones:?}");
    }
    api.delete(&format!("{sets}/{app}"));
}

#[test]
fn a_deleted_pod_stays_as_long_as_it_was_told_to() {
    let api = Api::admin();
    let name = unique("stays");
    let path = format!("{PODS}/{name}");
    api.make(PODS, &pod(&name, "any:1", json!({ "testing.krane/stop-delay": "never" })));
    see(&api, &name, &[Seen::is_ready]);
    api.delete(&path);
    see(&api, &name, &[|pod| pod.0["metadata"]["deletionTimestamp"].is_string()]);
    api.annotate(&path, &json!({ "testing.krane/stop-delay": "0s" }));
    api.follow_until_gone(&name);
}

#[test]
fn a_policy_with_an_unknown_field_is_refused_by_ciliums_own_definition() {
    let api = Api::admin();
    let path =
        "/apis/cilium.io/v2/namespaces/default/ciliumnetworkpolicies?fieldValidation=Strict&dryRun=All";
    let policy = |spec: Value| {
        let name = unique("policy");
        json!({
            "apiVersion": "cilium.io/v2",
            "kind": "CiliumNetworkPolicy",
            "metadata": { "name": name },
            "spec": spec,
        })
    };
    api.make(path, &policy(json!({ "endpointSelector": {}, "ingress": [{}] })));
    let refused = api.call("POST", path, &policy(json!({ "endpointSelector": {}, "ingres": [{}] })));
    assert_eq!(refused["reason"], "BadRequest", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("unknown field \"spec.ingres\""), "{refused}");
}

#[test]
fn the_agent_may_do_nothing_and_each_of_its_tries_is_in_the_audit_log() {
    let config = unique("try");
    let refused = Api::agent().get(&format!("/api/v1/namespaces/default/configmaps/{config}"));
    assert_eq!(refused["code"], 403, "{refused}");
    // The line is written before the answer ends.
    let log = fs::read_to_string(env("KRANE_TEST_KUBERNETES_AUDIT")).expect("the log can be read");
    let tries: Vec<Value> = log
        .lines()
        .filter(|line| line.contains(&config))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(tries.len(), 1, "{tries:?}");
    assert_eq!(tries[0]["user"]["username"], "agent");
    assert_eq!(tries[0]["user"]["groups"], json!(["system:authenticated"]));
    assert_eq!(tries[0]["verb"], "get");
    assert_eq!(tries[0]["responseStatus"]["code"], 403);
}

/// What Cilium says of each question in a file of the oracle's own, by the question's name.
fn verdicts(file: &str) -> Vec<(String, String)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/cilium-oracle/testdata");
    let asked = fs::File::open(format!("{dir}/{file}.json")).expect("the questions are there");
    let output = Command::new(env("KRANE_TEST_CILIUM_ORACLE"))
        .stdin(asked)
        .stderr(Stdio::inherit())
        .output()
        .expect("the oracle runs");
    let said: Value = serde_json::from_slice(&output.stdout).expect("the oracle speaks JSON");
    assert_eq!(said["errors"], json!([]), "a policy that was not loaded makes verdicts too mild");
    let text = |value: &Value| value.as_str().expect("is text").to_owned();
    let all = said["verdicts"].as_array().expect("is a list").iter();
    all.map(|one| (text(&one["name"]), text(&one["verdict"]))).collect()
}

fn allowed(file: &str) -> Vec<String> {
    verdicts(file).into_iter().filter(|(_, verdict)| verdict == "allowed").map(|(name, _)| name).collect()
}

#[test]
fn cilium_allows_what_its_policies_say_and_nothing_else() {
    assert_eq!(
        allowed("gossip-alone"),
        ["peerE->sentinelE:7946", "world->sentinelF:8040 (unselected)", "host->sentinelE:9999"]
    );
    assert_eq!(
        allowed("gossip-and-users"),
        [
            "world->sentinelE:8040",
            "peerE->sentinelE:7946",
            "world->sentinelF:8040 (unselected)",
            "host->sentinelE:9999",
            "remote-node->sentinelE:8040",
        ]
    );
    assert_eq!(
        allowed("deployment"),
        [
            "sentinelE->D:8080",
            "sentinelF->D2:8080 (unselected)",
            "sentinelF->D in ws-x:8080 (other ns)",
            "D->world:443 egress",
        ]
    );
}
