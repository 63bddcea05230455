//! Those who ask at once, over real HTTP and at two replicas: right answers, nothing doubled, nothing left.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value as Json, json};

use super::{
    client::{Answer, Tree, User},
    edge::database::Database,
    suite::plane,
    turns::{Agent, until},
};

fn body(tree: &Tree, image: usize) -> Json {
    let image = format!("registry.example.com/web:{image}");
    json!({ "environment_id": tree.environment, "image": image, "git": { "branch": "main" } })
}

fn texts<'a>(answers: impl IntoIterator<Item = &'a Json>, name: &str) -> Vec<String> {
    answers.into_iter().map(|one| one[name].as_str().unwrap_or_default().to_owned()).collect()
}

/// An agent that does at once what is wanted of it, until something is so.
async fn obeyed(agent: &Agent, admin: &User, tree: &Tree, is_so: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        let listed =
            admin.get(&format!("/v1/deployments?environment_id={}&limit=100", tree.environment)).await;
        for id in texts(listed.data(), "id") {
            let detail = admin.get(&format!("/v1/deployments/{id}")).await;
            let rows = detail.body["topology"].as_array().map_or(&[][..], Vec::as_slice);
            let name = id.replace('_', "-");
            if rows.iter().any(|row| row["desired_state"] == "running") {
                let pod = json!({ "k8sName": format!("{name}-1"), "address": "10.0.0.1:8080", "status": "STATUS_RUNNING" });
                agent.instances(&name, json!([pod])).await;
            } else if !rows.is_empty()
                || detail.body["instances"].as_array().is_some_and(|all| !all.is_empty())
            {
                agent.call("ReportDeploymentStatus", json!({ "delete": { "k8sName": name } })).await;
            }
        }
        let sentinels = admin.get(&format!("/v1/sentinels?environment_id={}", tree.environment)).await;
        for sentinel in sentinels.data() {
            agent.sentinel(sentinel, 1, "krane/sentinel:1").await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it never became so");
}

async fn statuses(admin: &User, tree: &Tree) -> Vec<String> {
    let listed = admin.get(&format!("/v1/deployments?environment_id={}&limit=100", tree.environment)).await;
    texts(listed.data(), "status")
}

pub async fn of_deployments_of_one_branch_at_once_the_newest_wins_and_nothing_is_left_of_the_others(
    database: &Database,
) {
    let (plane, users) = plane(database, 2).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    let agent = Agent::start(&plane, admin).await;
    let at_once = (0..6).map(|nth| {
        let (user, body) = (&users[nth % 2], body(&tree, nth));
        async move { user.post("/v1/deployments", body).await }
    });
    let made = join_all(at_once).await;
    assert!(made.iter().all(|answer| answer.status == 202), "{made:?}");
    let newest = texts(made.iter().map(|answer| &answer.body), "id").into_iter().max().expect("six of them");
    let is_over = async || {
        let statuses = statuses(admin, &tree).await;
        statuses.iter().filter(|status| *status == "superseded").count() == 5
            && statuses.iter().any(|status| status == "ready")
    };
    obeyed(&agent, admin, &tree, is_over).await;
    let ready = admin.get("/v1/events?kind=deployment.ready").await;
    assert_eq!(texts(ready.data(), "deployment_id"), std::slice::from_ref(&newest), "the newest, and once");
    let superseded = admin.get("/v1/events?kind=deployment.superseded&limit=100").await;
    assert_eq!(superseded.data().len(), 5, "each once");
    let routes = admin.get(&format!("/v1/routes?environment_id={}", tree.environment)).await;
    let leads = |route: &Json| texts(route["targets"].as_array().expect("targets"), "deployment_id");
    assert!(routes.data().iter().all(|route| leads(route) == [newest.clone()]), "{routes:?}");
    for id in texts(made.iter().map(|answer| &answer.body), "id").iter().filter(|id| **id != newest) {
        let detail = admin.get(&format!("/v1/deployments/{id}")).await;
        let rows = detail.body["topology"].as_array().expect("rows");
        assert!(rows.iter().all(|row| row["desired_state"] == "stopped"), "{detail:?}");
    }
    plane.end().await;
}

pub async fn a_deployment_asked_for_many_times_under_one_key_is_one(database: &Database) {
    let (plane, users) = plane(database, 2).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    let _agent = Agent::start(&plane, admin).await;
    let at_once =
        (0..10).map(|nth| {
            let (user, body) = (&users[nth % 2], Some(body(&tree, 1)));
            async move {
                user.send(Method::POST, "/v1/deployments", &[("idempotency-key", "build-1")], body).await
            }
        });
    let answers = join_all(at_once).await;
    let made: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 202).collect();
    let waiting = answers.iter().filter(|answer| answer.code() == "in_progress").count();
    assert!(!made.is_empty() && made.len() + waiting == answers.len(), "{answers:?}");
    assert!(made.iter().all(|answer| answer.body == made[0].body));
    assert_eq!(statuses(admin, &tree).await.len(), 1);
    let created = admin.get("/v1/events?kind=deployment.created").await;
    assert_eq!(created.data().len(), 1);
    let audit = admin.get("/v1/audit-log?limit=100").await;
    assert_eq!(
        texts(audit.data(), "action").iter().filter(|action| *action == "deployments.create").count(),
        1
    );
    plane.end().await;
}

pub async fn deployments_race_for_the_last_of_a_quota(database: &Database) {
    let (plane, users) = plane(database, 2).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    let _agent = Agent::start(&plane, admin).await;
    let path = format!("/v1/workspaces/{}", tree.workspace);
    // Each takes 250 thousandths: there is room for three, whether they have rows already or not.
    admin.patch(&path, json!({ "quotas": { "cpu_millis": 800 } })).await;
    let at_once = (0..8).map(|nth| {
        let (user, mut body) = (&users[nth % 2], body(&tree, nth));
        body["git"] = json!({ "branch": format!("b{nth}") });
        body["settings"] = json!({ "resources": { "cpu": 250 } });
        async move { user.post("/v1/deployments", body).await }
    });
    let answers = join_all(at_once).await;
    let made = answers.iter().filter(|answer| answer.status == 202).count();
    assert_eq!(made, 3, "{answers:?}");
    let refused = answers.iter().filter(|answer| answer.status != 202);
    assert!(refused.clone().all(|answer| answer.code() == "quota_exceeded"), "{answers:?}");
    assert_eq!(statuses(admin, &tree).await.len(), 3, "nothing is left of the others");
    plane.end().await;
}

pub async fn what_is_deleted_while_it_deploys_leaves_nothing(database: &Database) {
    let (plane, users) = plane(database, 2).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    let agent = Agent::start(&plane, admin).await;
    let made = admin.make("/v1/deployments", body(&tree, 1)).await;
    let path = format!("/v1/deployments/{}", made["id"].as_str().expect("an id"));
    until(admin, &path, |answer| answer.body["status"] == "deploying").await;
    let app = format!("/v1/apps/{}", tree.app);
    let deletions = join_all(users.iter().map(|user| user.send(Method::DELETE, &app, &[], None))).await;
    assert!(deletions.iter().all(|answer| answer.status == 202), "{deletions:?}");
    assert_eq!(deletions[0].body, deletions[1].body, "asked twice, it is deleted once");
    assert_eq!(admin.post("/v1/deployments", body(&tree, 2)).await.code(), "being_deleted");
    let late = json!({ "app_id": tree.app, "slug": "late" });
    assert_eq!(
        admin.post("/v1/environments", late).await.code(),
        "being_deleted",
        "nor does an environment begin"
    );
    let environment = format!("/v1/environments/{}", tree.environment);
    let is_gone = async || admin.get(&environment).await.status == 404;
    obeyed(&agent, admin, &tree, is_gone).await;
    let routes = admin.get("/v1/routes").await;
    assert!(!routes.text.contains(&tree.environment), "{routes:?}");
    let sentinels = admin.get("/v1/sentinels").await;
    assert!(!sentinels.text.contains(&tree.environment), "{sentinels:?}");
    plane.end().await;
}

pub async fn hostnames_that_are_asked_for_count(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let tree = Tree::make(admin, "globex").await;
    admin.patch(&format!("/v1/workspaces/{}", tree.workspace), json!({ "quotas": { "hostnames": 2 } })).await;
    let path = format!("/v1/environments/{}/settings", tree.environment);
    let with = |count: usize| {
        let hostnames: Vec<String> = (0..count).map(|nth| format!("h{nth}.example.com")).collect();
        json!({ "hostnames": hostnames })
    };
    assert_eq!(admin.patch(&path, with(2)).await.status, 200);
    let refused = admin.patch(&path, with(3)).await;
    assert_eq!((refused.code(), refused.fields()), ("quota_exceeded", vec!["hostnames"]));
    let more = json!({ "app_id": tree.app, "slug": "more", "settings": with(3) });
    assert_eq!(admin.post("/v1/environments", more).await.code(), "quota_exceeded");
    assert_eq!(admin.patch(&path, json!({ "port": 9000 })).await.status, 200, "what is there may stay");
    plane.end().await;
}
