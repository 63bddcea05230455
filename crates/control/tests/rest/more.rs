//! More of what the API promises: deployments, events, tokens, limits.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::{
    client::{Tree, User},
    edge::{database::Database, ground::here},
    suite::plane,
};

pub async fn a_deployment_is_begun_and_asked_of_things(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    // A place whose agent was never heard takes nothing: let it be heard.
    let agent = plane.ground.agent_token(&here(), None).await;
    let beat = r#"{"region":{"platform":"aws","name":"us-east-1"},"shard":"default","instanceId":"agent-1"}"#;
    let heartbeat = "/ctrl.v1.ClusterService/Heartbeat";
    let agent = User::new(admin.address, agent.bearer.reveal());
    assert_eq!(agent.send_text(&Method::POST, heartbeat, &[], Some(beat)).await.status, 200);
    let body = json!({
        "environment_id": tree.environment, "image": "registry.example.com/web:1", "git": { "branch": "main", "sha": "0123456789abcdef0123456789abcdef01234567" },
        "settings": { "port": 9999, "resources": { "cpu": 100 } },
    });
    let key = [("idempotency-key", "deploy-1")];
    let made = admin.send(Method::POST, "/v1/deployments", &key, Some(body.clone())).await;
    assert_eq!((made.status, &made.body["status"]), (202, &json!("pending")), "{made:?}");
    assert_eq!((&made.body["port"], &made.body["resources"]["cpu"]), (&json!(9999), &json!(100)));
    let again = admin.send(Method::POST, "/v1/deployments", &key, Some(body)).await;
    assert_eq!(again.body, made.body);
    let id = made.body["id"].as_str().expect("an id");
    let path = format!("/v1/deployments/{id}");
    let listed = admin.get(&format!("/v1/deployments?environment_id={}&branch=main", tree.environment)).await;
    assert_eq!(listed.data().len(), 1);
    assert_eq!(admin.get(&path).await.body["git"]["branch"], "main");
    let events = admin.get(&format!("{path}/events")).await;
    assert!(events.data().iter().any(|event| event["kind"] == "deployment.created"), "{events:?}");
    let stopped = admin.send(Method::POST, &format!("{path}/start"), &[], None).await;
    assert_eq!((stopped.status, stopped.code()), (409, "deployment_not_stopped"));
    let refused = admin.post(&format!("{path}/scale"), json!({})).await;
    assert_eq!(refused.status, 422);
    let refused = admin
        .post(&format!("{path}/scale"), json!({ "regions": [{ "region": "x", "scaling": { "min": 1 } }] }))
        .await;
    assert_eq!(refused.fields(), ["regions[0].region"]);
    let unknown = json!({ "environment_id": tree.environment, "image": "a b", "settings": { "regions": ["aws/mars-north-1"] } });
    assert_eq!(admin.post("/v1/deployments", unknown).await.fields(), ["image"]);
    let unknown = json!({ "environment_id": tree.environment, "image": "a", "settings": { "regions": ["aws/mars-north-1"] } });
    let refused = admin.post("/v1/deployments", unknown).await;
    assert_eq!((refused.status, refused.fields().len()), (422, 1), "{refused:?}");
    plane.end().await;
}

pub async fn a_live_stream_goes_on_at_another_replica_and_loses_nothing(database: &Database) {
    let (plane, users) = plane(database, 2).await;
    let tree = Tree::make(&users[0], "globex").await;
    let token = async |nth: usize| {
        let body = json!({ "name": format!("t{nth}"), "role": "read", "workspace_id": tree.workspace });
        users[nth % 2].make("/v1/tokens", body).await;
    };
    let mut first = users[0].open("/v1/events", &[]).await;
    first.until(": here").await;
    token(0).await;
    token(1).await;
    first.until("\"name\":\"t1\"").await;
    let seen = first.numbers();
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    drop(first);
    for nth in 2..8 {
        token(nth).await;
    }
    let last = seen.last().expect("something came").to_string();
    let mut second = users[1].open("/v1/events", &[("last-event-id", &last)]).await;
    let text = second.until("\"name\":\"t7\"").await;
    for nth in 2..8 {
        assert_eq!(text.matches(&format!("\"name\":\"t{nth}\"")).count(), 1, "{text}");
    }
    token(8).await;
    second.until("\"name\":\"t8\"").await;
    let numbers = second.numbers();
    assert!(numbers.is_sorted_by(|a, b| a < b) && numbers[0] > seen[seen.len() - 1], "{numbers:?}");
    // From the beginning: the same numbers, whoever is asked.
    let mut whole = users[0].open("/v1/events?after=0", &[]).await;
    whole.until("\"name\":\"t8\"").await;
    assert!(whole.numbers().ends_with(&numbers));
    plane.end().await;
}

pub async fn a_live_stream_ends_with_its_token(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let tree = Tree::make(&users[0], "globex").await;
    let body = json!({ "name": "reader", "role": "read", "workspace_id": tree.workspace });
    let made = users[0].make("/v1/tokens", body).await;
    let reader = User::new(users[0].address, made["secret"].as_str().expect("it is shown"));
    let mut stream = reader.open("/v1/events", &[]).await;
    stream.until(": here").await;
    let path = format!("/v1/tokens/{}", made["id"].as_str().expect("an id"));
    assert_eq!(users[0].send(Method::DELETE, &path, &[], None).await.status, 204);
    assert!(stream.ends_within(Duration::from_secs(10)).await);
    assert_eq!(reader.get("/v1/workspaces").await.code(), "unauthenticated");
    plane.end().await;
}

pub async fn a_token_is_shown_once_and_opens_what_it_says(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let (tree, other) = (Tree::make(admin, "globex").await, Tree::make(admin, "other").await);
    let key = [("idempotency-key", "token")];
    let body = Some(json!({ "name": "ci", "role": "admin", "workspace_id": tree.workspace }));
    let made = admin.send(Method::POST, "/v1/tokens", &key, body.clone()).await;
    let secret = made.body["secret"].as_str().expect("it is shown").to_owned();
    let again = admin.send(Method::POST, "/v1/tokens", &key, body).await;
    assert_eq!(
        (again.status, &again.body["id"], &again.body["secret"]),
        (201, &made.body["id"], &json!(null))
    );
    let own = User::new(admin.address, &secret);
    assert_eq!(own.get("/v1/workspaces").await.data().len(), 1);
    assert_eq!(own.get(&format!("/v1/workspaces/{}", other.workspace)).await.status, 404);
    assert_eq!(own.get(&format!("/v1/projects?workspace_id={}", other.workspace)).await.status, 404);
    let wider = json!({ "name": "x", "kind": "agent", "place": here().to_string() });
    assert_eq!(own.post("/v1/tokens", wider).await.code(), "forbidden");
    let wider = json!({ "name": "x", "role": "read", "workspace_id": other.workspace });
    assert_eq!(own.post("/v1/tokens", wider).await.code(), "not_found");
    let mixed = json!({ "name": "x", "kind": "agent", "role": "read" });
    assert_eq!(admin.post("/v1/tokens", mixed).await.fields(), ["role", "place"]);
    let path = format!("/v1/tokens/{}", made.body["id"].as_str().expect("an id"));
    let rotated =
        admin.send(Method::POST, &format!("{path}/rotate"), &[], Some(json!({ "overlap": 0 }))).await;
    let successor = User::new(admin.address, rotated.body["secret"].as_str().expect("it is shown"));
    assert_eq!(successor.get("/v1/workspaces").await.data().len(), 1);
    for text in [
        admin.get("/v1/tokens").await.text,
        admin.get("/v1/audit-log").await.text,
        admin.get("/v1/events").await.text,
    ] {
        assert!(!text.contains(&secret) && !text.contains("krane_user_"), "{text}");
    }
    plane.end().await;
}

pub async fn places_are_opened_closed_and_confirmed_by_whoever_may_everywhere(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    let confined = tree.user(admin, "admin").await;
    assert_eq!(confined.get("/v1/regions").await.code(), "forbidden");
    let regions = admin.get("/v1/regions?limit=1").await;
    assert_eq!(
        (regions.data()[0]["id"].as_str(), regions.body["next"].as_str()),
        (Some("aws.eu-west-1"), Some("aws.eu-west-1"))
    );
    let rest = admin.get("/v1/regions?cursor=aws.eu-west-1").await;
    assert_eq!(rest.data().len(), 1);
    let path = "/v1/clusters/aws.us-east-1.default";
    let cluster = admin.get(path).await;
    assert_eq!(cluster.body["reachability"], "never_seen");
    let closed = admin
        .send(Method::PATCH, path, &[("if-match", cluster.etag())], Some(json!({ "can_schedule": false })))
        .await;
    assert_eq!(closed.body["can_schedule"], false);
    let stale = admin
        .send(Method::PATCH, path, &[("if-match", cluster.etag())], Some(json!({ "can_schedule": true })))
        .await;
    assert_eq!(stale.code(), "precondition_failed");
    let hash = "ab".repeat(32);
    let none = admin.post(&format!("{path}/confirm"), json!({ "kind": "deployment", "hash": hash })).await;
    assert_eq!((none.status, none.code()), (409, "conflict"));
    assert_eq!(admin.get("/v1/clusters/aws.mars.default").await.status, 404);
    assert_eq!(admin.get("/v1/clusters/garbage").await.status, 404);
    plane.end().await;
}
