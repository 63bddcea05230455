//! What the API promises, on any database.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value as Json, json};

use super::{
    client::{Tree, User},
    edge::{database::Database, plane::Plane},
};

/// A control plane, with the first admin.
pub async fn plane(database: &Database, replicas: usize) -> (Plane, Vec<User>) {
    let plane = Plane::start(database, replicas).await;
    let token = plane.first_token();
    let users = plane.replicas.iter().map(|replica| User::new(replica.address, &token)).collect();
    (plane, users)
}

pub async fn the_tree_is_made_read_changed_and_removed(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    let project = admin.get(&format!("/v1/projects/{}", tree.project)).await;
    assert_eq!((project.body["slug"].as_str(), project.etag()), (Some("shop"), "\"1\""));
    let changed = admin.patch(&format!("/v1/projects/{}", tree.project), json!({ "name": "The shop" })).await;
    assert_eq!((changed.body["name"].as_str(), changed.etag()), (Some("The shop"), "\"2\""));
    let taken = admin.post("/v1/apps", json!({ "project_id": tree.project, "slug": "web" })).await;
    assert_eq!((taken.status, taken.code(), taken.fields()), (409, "taken", vec!["slug"]));
    let path = format!("/v1/environments/{}", tree.environment);
    let settings =
        admin.patch(&format!("{path}/settings"), json!({ "port": 9000, "health": { "path": "/up" } })).await;
    assert_eq!((settings.status, &settings.body["port"]), (200, &json!(9000)));
    let settings = admin.patch(&format!("{path}/settings"), json!({ "health": null })).await;
    assert_eq!((&settings.body["port"], &settings.body["health"]), (&json!(9000), &Json::Null));
    let bad = admin.patch(&format!("{path}/settings"), json!({ "port": 0, "scaling": { "max": -1 } })).await;
    assert_eq!((bad.status, bad.fields()), (422, vec!["port", "scaling.max"]));
    assert_eq!(admin.get(&format!("{path}/settings")).await.body["port"], 9000, "nothing was changed");
    let protected = admin.patch(&path, json!({ "delete_protection": true })).await;
    assert_eq!(protected.body["delete_protection"], true);
    let refused = admin.send(Method::DELETE, &path, &[], None).await;
    assert_eq!(refused.code(), "delete_protected");
    let refused = admin.send(Method::DELETE, &format!("/v1/workspaces/{}", tree.workspace), &[], None).await;
    assert_eq!(refused.code(), "not_empty");
    admin.patch(&path, json!({ "delete_protection": false })).await;
    let removed = admin.send(Method::DELETE, &path, &[], None).await;
    assert_eq!((removed.status, &removed.body["id"]), (202, &json!(tree.environment)));
    let empty = admin.make("/v1/workspaces", json!({ "slug": "empty" })).await;
    let path = format!("/v1/workspaces/{}", empty["id"].as_str().expect("an id"));
    assert_eq!(admin.send(Method::DELETE, &path, &[], None).await.status, 204);
    assert_eq!(admin.get(&path).await.status, 404);
    plane.end().await;
}

pub async fn every_problem_of_a_request_is_told_at_once_and_in_one_shape(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    let body = json!({
        "app_id": "app_x", "slug": "No!", "delete_protection": 1, "colour": "red",
        "settings": { "port": 70000, "health": {}, "regions": ["nowhere"] },
    });
    let refused = admin.post("/v1/environments", body).await;
    assert_eq!((refused.status, refused.code()), (422, "invalid"));
    let wanted = [
        "app_id",
        "slug",
        "delete_protection",
        "colour",
        "settings.port",
        "settings.health.path",
        "settings.regions[0]",
    ];
    let fields = refused.fields();
    assert!(wanted.iter().all(|field| fields.contains(field)) && fields.len() == wanted.len(), "{fields:?}");

    let path = format!("/v1/projects/{}", tree.project);
    let codes = [
        (admin.get("/v1/nothing").await, 404, "not_found"),
        (admin.get("/v1/projects/proj_x").await, 404, "not_found"),
        (admin.send(Method::PUT, &path, &[], Some(json!({}))).await, 405, "method_not_allowed"),
        (admin.get("/v1/projects?limit=101").await, 422, "invalid"),
        (admin.get("/v1/projects?x=1").await, 422, "invalid"),
        (admin.get("/v1/projects?cursor=x").await, 422, "invalid"),
        (
            admin
                .send_text(&Method::POST, "/v1/projects", &[("content-type", "text/plain")], Some("x"))
                .await,
            415,
            "unsupported_media_type",
        ),
        (admin.send_text(&Method::POST, "/v1/projects", &[], Some("{\"slug\"")).await, 400, "malformed"),
        (
            admin
                .send_text(&Method::POST, "/v1/projects", &[], Some(&format!("\"{}\"", "x".repeat(2 << 20))))
                .await,
            413,
            "too_large",
        ),
        (User { token: None, ..admin.clone() }.get(&path).await, 401, "unauthenticated"),
    ];
    for (answer, status, code) in codes {
        assert_eq!((answer.status, answer.code()), (status, code), "{answer:?}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }
    let allowed = admin.send(Method::PUT, &path, &[], Some(json!({}))).await;
    assert_eq!(allowed.headers["allow"], "GET, PATCH, DELETE");
    let named = admin.send(Method::GET, "/v1/nothing", &[("x-request-id", "mine-1")], None).await;
    assert_eq!(
        (named.headers["x-request-id"].as_str(), &named.body["request_id"]),
        ("mine-1", &json!("mine-1"))
    );
    plane.end().await;
}

pub async fn a_request_that_is_sent_again_under_its_key_is_done_once(database: &Database) {
    let (plane, users) = plane(database, 2).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    let body = |slug: &str| Some(json!({ "project_id": tree.project, "slug": slug }));
    let key = [("idempotency-key", "one")];
    let first = admin.send(Method::POST, "/v1/apps", &key, body("api")).await;
    let again = users[1].send(Method::POST, "/v1/apps", &key, body("api")).await;
    assert_eq!((first.status, &first.body), (201, &again.body));
    assert_eq!((first.headers.get("location"), first.etag()), (again.headers.get("location"), again.etag()));
    let other = admin.send(Method::POST, "/v1/apps", &key, body("other")).await;
    assert_eq!((other.status, other.code()), (422, "idempotency_key_reused"));
    let project = Some(json!({ "workspace_id": tree.workspace, "slug": "api" }));
    let elsewhere = admin.send(Method::POST, "/v1/projects", &key, project).await;
    assert_eq!(elsewhere.code(), "idempotency_key_reused");

    // At once, at both replicas: some are told to wait, the others get the same answer, and there is one app.
    let at_once = (0..12).map(|nth| {
        let (user, body) = (&users[nth % 2], body("at-once"));
        async move { user.send(Method::POST, "/v1/apps", &[("idempotency-key", "two")], body).await }
    });
    let answers = join_all(at_once).await;
    let made: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
    let waiting = answers.iter().filter(|answer| answer.code() == "in_progress").count();
    assert!(!made.is_empty() && made.len() + waiting == answers.len(), "{answers:?}");
    assert!(made.iter().all(|answer| answer.body == made[0].body));
    let told = answers.iter().filter(|answer| answer.code() == "in_progress");
    assert!(told.clone().all(|answer| answer.headers.contains_key("retry-after")));
    let listed = admin.get(&format!("/v1/apps?project_id={}&slug=at-once", tree.project)).await;
    assert_eq!(listed.data().len(), 1);

    // What failed was not done, so its key is free for the mended request.
    let key = [("idempotency-key", "three")];
    assert_eq!(admin.send(Method::POST, "/v1/apps", &key, body("web")).await.code(), "taken");
    assert_eq!(admin.send(Method::POST, "/v1/apps", &key, body("mended")).await.status, 201);
    plane.end().await;
}

pub async fn of_many_changes_of_one_revision_one_is_made(database: &Database) {
    let (plane, users) = plane(database, 2).await;
    let tree = Tree::make(&users[0], "globex").await;
    let path = format!("/v1/environments/{}", tree.environment);
    let tag = users[0].get(&path).await.etag().to_owned();
    let changes = (0..10).map(|nth| {
        let (user, path, tag) = (&users[nth % 2], format!("{path}/settings"), tag.as_str());
        async move {
            user.send(Method::PATCH, &path, &[("if-match", tag)], Some(json!({ "port": 4000 + nth }))).await
        }
    });
    let answers = join_all(changes).await;
    let made: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
    assert_eq!(made.len(), 1, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.status == 200 || answer.code() == "precondition_failed"));
    let now = users[0].get(&path).await;
    assert_eq!(now.body["settings"]["port"], made[0].body["port"]);
    assert_eq!(now.etag(), made[0].etag());
    plane.end().await;
}

pub async fn a_quota_holds_whoever_races_for_it(database: &Database) {
    let (plane, users) = plane(database, 2).await;
    let tree = Tree::make(&users[0], "globex").await;
    let path = format!("/v1/workspaces/{}", tree.workspace);
    let set = users[0].patch(&path, json!({ "quotas": { "environments": 4 } })).await;
    assert_eq!(set.body["quotas"]["environments"], 4);
    let tries = (0..10).map(|nth| {
        let (user, body) = (&users[nth % 2], json!({ "app_id": tree.app, "slug": format!("e{nth}") }));
        async move { user.post("/v1/environments", body).await }
    });
    let answers = join_all(tries).await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 3, "{answers:?}");
    let refused = answers.iter().filter(|answer| answer.status != 201);
    assert!(
        refused
            .clone()
            .all(|answer| answer.code() == "quota_exceeded" && answer.fields() == ["environments"])
    );
    let listed = users[0].get(&format!("/v1/environments?app_id={}", tree.app)).await;
    assert_eq!(listed.data().len(), 4);
    plane.end().await;
}

pub async fn a_list_is_walked_page_by_page_and_filtered(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    for nth in 0..7 {
        admin.make("/v1/apps", json!({ "project_id": tree.project, "slug": format!("app-{nth}") })).await;
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = admin.get(&format!("/v1/apps?project_id={}&limit=3{cursor}", tree.project)).await;
        let text = |app: &Json, name: &str| app[name].as_str().expect("a text").to_owned();
        seen.extend(page.data().iter().map(|app| (text(app, "id"), text(app, "slug"))));
        let Some(next) = page.body["next"].as_str() else { break };
        assert_eq!(page.data().len(), 3);
        cursor = format!("&cursor={next}");
    }
    // Two of one millisecond come in either order; what counts is that each comes once, by its id.
    assert!(seen.is_sorted_by(|(one, _), (next, _)| one < next), "{seen:?}");
    let slugs: BTreeSet<_> = seen.iter().map(|(_, slug)| slug.as_str()).collect();
    let wanted = ["app-0", "app-1", "app-2", "app-3", "app-4", "app-5", "app-6", "web"];
    assert_eq!((seen.len(), slugs), (8, wanted.into()));
    let found = admin.get("/v1/apps?slug=app-3").await;
    assert_eq!(found.data().len(), 1);
    let elsewhere = admin.get("/v1/apps?slug=app-3&project_id=proj_01hf7yat0060rk4csm6mv3ee1s").await;
    assert!(elsewhere.data().is_empty());
    // What the ground laid is there too, newest first.
    let page = admin.get("/v1/deployments?limit=100").await;
    let ids: Vec<_> = page.data().iter().filter_map(|one| one["id"].as_str()).collect();
    assert!(ids.len() >= 40 && ids.is_sorted_by(|a, b| a > b), "{ids:?}");
    assert!(admin.get("/v1/deployments?status=failed").await.data().is_empty());
    assert_eq!(admin.get("/v1/deployments?status=ready&limit=2").await.data().len(), 2);
    let one = admin.get(&format!("/v1/deployments/{}", ids[0])).await;
    assert_eq!((one.status, &one.body["instances"]), (200, &json!([])));
    plane.end().await;
}

pub async fn whoever_changes_something_is_in_the_audit_log(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    let body = Some(json!({ "name": "secret-name" }));
    let path = format!("/v1/apps/{}", tree.app);
    admin.send(Method::PATCH, &path, &[("x-request-id", "the-request")], body).await;
    let log = admin.get(&format!("/v1/audit-log?subject={}", tree.app)).await;
    let actions: Vec<_> = log.data().iter().filter_map(|entry| entry["action"].as_str()).collect();
    assert_eq!(actions, ["apps.update", "apps.create"]);
    let entry = &log.data()[0];
    assert_eq!((&entry["request_id"], &entry["fields"]), (&json!("the-request"), &json!(["name"])));
    assert_eq!(entry["workspace_id"], json!(tree.workspace));
    assert!(!log.text.contains("secret-name"), "names of fields, not what they hold");
    let before = admin.get("/v1/audit-log?limit=100").await.data().len();
    assert_eq!(admin.patch(&path, json!({ "slug": "!" })).await.status, 422);
    assert_eq!(
        admin.get("/v1/audit-log?limit=100").await.data().len(),
        before,
        "what was refused is not in it"
    );
    plane.end().await;
}
