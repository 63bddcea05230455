//! What agents report, as users see it: on the timeline of a deployment and of a sentinel, and live.

use std::time::Duration;

use http::Method;
use serde_json::{Value as Json, json};

use super::{
    client::{Answer, Tree, User},
    edge::{database::Database, ground::here, plane::Plane},
    suite::plane,
};

/// An agent that says what it is told to say.
pub struct Agent(User);

impl Agent {
    /// It is heard, so that its place takes deployments.
    pub async fn start(plane: &Plane, user: &User) -> Agent {
        let token = plane.ground.agent_token(&here(), None).await;
        let agent = Agent(User::new(user.address, token.bearer.reveal()));
        agent.call("Heartbeat", json!({})).await;
        agent
    }

    /// Calls the wire, from its place.
    pub async fn call(&self, name: &str, mut body: Json) {
        body["region"] = json!({ "platform": "aws", "name": "us-east-1" });
        body["shard"] = json!("default");
        body["instanceId"] = json!("agent-1");
        let path = format!("/ctrl.v1.ClusterService/{name}");
        let answer = self.0.send_text(&Method::POST, &path, &[], Some(&body.to_string())).await;
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
    }

    /// Says what there is of a deployment.
    pub async fn instances(&self, deployment: &str, instances: Json) {
        let update = json!({ "k8sName": deployment, "instances": instances });
        self.call("ReportDeploymentStatus", json!({ "update": update })).await;
    }

    /// Says how a sentinel is.
    pub async fn sentinel(&self, sentinel: &Json, available: u32, image: &str) {
        let health = if available > 0 { "HEALTH_HEALTHY" } else { "HEALTH_UNHEALTHY" };
        let body = json!({
            "k8sName": sentinel["name"], "sentinelId": sentinel["id"], "availableReplicas": available,
            "health": health, "runningImage": image,
        });
        self.call("ReportSentinelStatus", body).await;
    }
}

/// Asks until it is so.
pub async fn until(user: &User, path: &str, is_so: impl Fn(&Answer) -> bool) -> Answer {
    for _ in 0..600 {
        let answer = user.get(path).await;
        if is_so(&answer) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} does not become so: {:?}", user.get(path).await)
}

pub async fn what_turns_in_a_cluster_is_on_its_timeline_and_live(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    let agent = Agent::start(&plane, admin).await;
    let body = json!({ "environment_id": tree.environment, "image": "registry.example.com/web:1" });
    let made = admin.make("/v1/deployments", body).await;
    let id = made["id"].as_str().expect("an id");
    let path = format!("/v1/deployments/{id}");
    until(admin, &path, |answer| answer.body["topology"].as_array().is_some_and(|rows| rows.len() == 1))
        .await;
    let reader = tree.user(admin, "read").await;
    let mut live = reader.open(&format!("{path}/events?after=0"), &[]).await;
    live.until("deployment.created").await;
    let name = id.replace('_', "-");
    let running = json!({ "k8sName": "pod-1", "address": "10.0.0.1:8080", "status": "STATUS_RUNNING" });
    let crashed = json!({ "k8sName": "pod-1", "status": "STATUS_PENDING", "reason": "CrashLoopBackOff", "exitCode": 3 });
    agent.instances(&name, json!([running])).await;
    live.until("instance.running").await;
    agent.instances(&name, json!([running])).await;
    agent.instances(&name, json!([crashed])).await;
    live.until("instance.failed").await;
    agent.instances(&name, json!([])).await;
    let all = live.until("instance.gone").await;
    for kind in ["instance.running", "instance.failed", "instance.gone"] {
        assert_eq!(all.matches(&format!("\"kind\":\"{kind}\"")).count(), 1, "{kind} in {all}");
    }
    let events = reader.get(&format!("{path}/events?order=oldest&limit=100")).await;
    let change = &events.data()[0]["change_id"];
    let told: Vec<&Json> = events
        .data()
        .iter()
        .filter(|event| event["kind"].as_str().is_some_and(|kind| kind.starts_with("instance.")))
        .collect();
    assert_eq!(told.len(), 3, "{events:?}");
    for event in told {
        assert_eq!((&event["change_id"], &event["fields"]["instance"]), (change, &json!("pod-1")));
        assert_eq!(event["cluster_id"], "aws.us-east-1.default");
    }
    let listed = reader.get(&format!("/v1/sentinels?environment_id={}", tree.environment)).await;
    let sentinel = &listed.data()[0];
    for available in [0, 1, 3, 0] {
        agent.sentinel(sentinel, available, "krane/sentinel:1").await;
    }
    let of = format!("/v1/events?order=oldest&sentinel_id={}", sentinel["id"].as_str().expect("an id"));
    let told = reader.get(&of).await;
    let kinds: Vec<_> = told.data().iter().filter_map(|event| event["kind"].as_str()).collect();
    assert_eq!(kinds, ["sentinel.healthy", "sentinel.unhealthy"]);
    assert_eq!(told.data()[0]["fields"], json!({ "available": "1", "wanted": "3" }));
    plane.end().await;
}
