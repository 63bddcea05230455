//! Rollouts through the fleet of sentinels, as whoever may everywhere asks for them.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value as Json, json};

use super::{
    client::{Answer, Tree, User},
    edge::{database::Database, plane::Plane},
    suite::plane,
    turns::{Agent, until},
};

const ROLLOUTS: &str = "/v1/sentinels/rollouts";

/// Two sentinels that run, and an agent that can say how they are.
async fn fleet(plane: &Plane, admin: &User) -> (Agent, Vec<Json>) {
    let agent = Agent::start(plane, admin).await;
    for number in [1, 2] {
        plane.ground.put_sentinel(number, |_| {}).await;
    }
    let fleet = admin.get("/v1/sentinels").await.data().to_vec();
    for sentinel in &fleet {
        agent.sentinel(sentinel, 1, "krane/sentinel:1").await;
    }
    (agent, fleet)
}

async fn images(admin: &User) -> Vec<String> {
    let listed = admin.get("/v1/sentinels").await;
    listed.data().iter().map(|sentinel| sentinel["image"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn ask(admin: &User, rollout: &str, verb: &str) -> Answer {
    admin.send(Method::POST, &format!("{ROLLOUTS}/{rollout}/{verb}"), &[], None).await
}

/// Waits until this sentinel is the one that is under way.
async fn told(admin: &User, rollout: &str, sentinel: &Json) {
    let path = format!("{ROLLOUTS}/{rollout}");
    until(admin, &path, |answer| answer.body["sentinel_id"] == sentinel["id"]).await;
}

pub async fn a_rollout_tells_one_sentinel_after_the_other(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let (agent, fleet) = fleet(&plane, admin).await;
    assert_eq!(admin.post(ROLLOUTS, json!({})).await.status, 422, "there is nothing to bring");
    let made = admin.post(ROLLOUTS, json!({ "image": "krane/sentinel:2", "cpu": 500 })).await;
    assert_eq!((made.status, &made.body["state"]), (202, &json!("running")), "{made:?}");
    let id = made.body["id"].as_str().expect("an id").to_owned();
    let path = format!("{ROLLOUTS}/{id}");
    told(admin, &id, &fleet[0]).await;
    agent.sentinel(&fleet[0], 0, "krane/sentinel:1").await;
    // It runs the new one, and is not healthy: the other must wait.
    agent.sentinel(&fleet[0], 0, "krane/sentinel:2").await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(images(admin).await, ["krane/sentinel:2", "krane/sentinel:1"]);
    let shown = admin.get(&format!("/v1/sentinels/{}", fleet[0]["id"].as_str().expect("an id"))).await;
    assert_eq!((&shown.body["rollout"], &shown.body["cpu"]), (&json!("rolling"), &json!(500)));
    // Paused, the one that is under way finishes, and no other is told.
    assert_eq!(ask(admin, &id, "pause").await.body["state"], "paused");
    agent.sentinel(&fleet[0], 1, "krane/sentinel:2").await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(images(admin).await, ["krane/sentinel:2", "krane/sentinel:1"]);
    assert_eq!(ask(admin, &id, "resume").await.body["reason"], Json::Null);
    told(admin, &id, &fleet[1]).await;
    agent.sentinel(&fleet[1], 1, "krane/sentinel:2").await;
    let done = until(admin, &path, |answer| answer.body["state"] == "done").await;
    assert_eq!((&done.body["changed"], &done.body["sentinel_id"]), (&json!(2), &Json::Null));
    assert_eq!(images(admin).await, ["krane/sentinel:2", "krane/sentinel:2"]);
    let events = admin.get("/v1/events?kind=sentinel.rolled&order=oldest").await;
    let told: Vec<_> = events.data().iter().map(|event| &event["sentinel_id"]).collect();
    assert_eq!(told, [&fleet[0]["id"], &fleet[1]["id"]]);
    let fields = &events.data()[0]["fields"];
    assert_eq!(fields["from"], "krane/sentinel:1, 250 m, 256 MiB");
    assert_eq!(fields["to"], "krane/sentinel:2, 500 m, 256 MiB");
    for verb in ["pause", "resume", "cancel", "rollback"] {
        assert_eq!(ask(admin, &id, verb).await.code(), "rollout_over", "{verb}");
    }
    let audit = admin.get("/v1/audit-log").await;
    for action in ["rollouts.create", "rollouts.pause", "rollouts.resume"] {
        assert!(audit.data().iter().any(|line| line["action"] == action), "{action} in {audit:?}");
    }
    plane.end().await;
}

pub async fn a_rollout_that_fails_pauses_and_is_rolled_back(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let (agent, fleet) = fleet(&plane, admin).await;
    let id = admin.make(ROLLOUTS, json!({ "image": "krane/sentinel:2" })).await;
    let id = id["id"].as_str().expect("an id");
    told(admin, id, &fleet[0]).await;
    agent.sentinel(&fleet[0], 1, "krane/sentinel:2").await;
    told(admin, id, &fleet[1]).await;
    let failure = json!({ "reason": "refused", "message": "no such class" });
    let position = admin.get("/v1/events?limit=1").await.data()[0]["number"].as_u64().expect("a number");
    let error = json!({
        "kind": "KIND_SENTINEL", "id": fleet[1]["id"], "failure": failure, "observedVersion": position + 100,
    });
    agent.call("ReportApplyError", error).await;
    let path = format!("{ROLLOUTS}/{id}");
    let paused = until(admin, &path, |answer| answer.body["state"] == "paused").await;
    let reason = paused.body["reason"].as_str().expect("a reason");
    assert!(reason.ends_with("refused: no such class"), "{reason}");
    let failed = admin.get(&format!("/v1/sentinels/{}", fleet[1]["id"].as_str().expect("an id"))).await;
    assert_eq!(failed.body["rollout"], "failed");
    assert_eq!(ask(admin, id, "rollback").await.body["state"], "rolling_back");
    // The last first, and the first only when that one is well again.
    until(admin, "/v1/sentinels", |answer| answer.data()[1]["image"] == "krane/sentinel:1").await;
    assert_eq!(images(admin).await[0], "krane/sentinel:2");
    agent
        .call(
            "ReportApplyError",
            json!({ "kind": "KIND_SENTINEL", "id": fleet[1]["id"], "observedVersion": position + 1000 }),
        )
        .await;
    agent.sentinel(&fleet[1], 1, "krane/sentinel:1").await;
    until(admin, "/v1/sentinels", |answer| answer.data()[0]["image"] == "krane/sentinel:1").await;
    agent.sentinel(&fleet[0], 1, "krane/sentinel:1").await;
    until(admin, &path, |answer| answer.body["state"] == "rolled_back").await;
    assert!(admin.get("/v1/sentinels").await.data().iter().all(|sentinel| sentinel["rollout"] == "idle"));
    plane.end().await;
}

pub async fn there_is_one_rollout_at_a_time_whoever_races_for_it(database: &Database) {
    let (plane, users) = plane(database, 2).await;
    let admin = &users[0];
    let _fleet = fleet(&plane, admin).await;
    let confined = Tree::make(admin, "globex").await.user(admin, "admin").await;
    assert_eq!(confined.get(ROLLOUTS).await.code(), "forbidden");
    assert_eq!(confined.post(ROLLOUTS, json!({ "image": "krane/sentinel:2" })).await.code(), "forbidden");
    let race = (0..8).map(|nth: usize| {
        let body = json!({ "image": format!("krane/sentinel:{}", nth + 2) });
        let user = &users[nth % 2];
        async move { user.post(ROLLOUTS, body).await }
    });
    let answers = join_all(race).await;
    let begun: Vec<_> = answers.iter().filter(|answer| answer.status == 202).collect();
    assert_eq!(begun.len(), 1, "{answers:?}");
    let others = answers.iter().filter(|answer| answer.status != 202);
    assert!(others.clone().all(|answer| answer.code() == "rollout_running"), "{answers:?}");
    let id = begun[0].body["id"].as_str().expect("an id");
    assert_eq!(ask(admin, id, "cancel").await.body["state"], "cancelled");
    assert_eq!(admin.make(ROLLOUTS, json!({ "memory": 512 })).await["state"], "running");
    assert_eq!(admin.get(ROLLOUTS).await.data().len(), 2);
    plane.end().await;
}
