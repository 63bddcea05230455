//! The sweep of the API: every route of the table × every kind of caller, compared with a text that was read in review.
//!
//! Requests of those who may are made so that they change nothing: a key that is none, a tag that nothing has.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use control::{
    rest::route::{Allow, Route, routes},
    tokens::NewToken,
};
use http::Method;
use model::{
    id::{DeploymentId, EnvironmentId, NetworkPolicyId, SentinelId, WorkspaceId},
    token::{Reach, Role, Scope},
};
use serde_json::json;

use super::{
    client::{Answer, Tree, User},
    edge::{database::Database, ground::here},
    suite::plane,
};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rest/sweep.txt");

/// Who asks, in the order of the columns.
const CALLERS: [&str; 9] =
    ["nobody", "read", "deploy", "admin", "stranger", "everywhere", "agent", "expired", "revoked"];

pub async fn nobody_is_let_in_by_default(database: &Database) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let own = Reach::Workspace(WorkspaceId::sample(1));
    let stranger = Tree::make(admin, "stranger").await;
    let token = async |role, reach, expires_in| {
        let scope = Scope::User { role, reach };
        let new = NewToken { name: "swept".parse().expect("a line"), scope, expires_in };
        plane.ground.tokens.create(new).await.expect("a token")
    };
    plane.ground.put_sentinel(1, |_| {}).await;
    plane.ground.put_policy(1, "of the sweep").await;
    let mut write = plane.ground.store.begin().await.expect("a write");
    let cause = store::Cause { change: None, at: model::time::Millis(1_700_000_000_000) };
    write.put_route(&model::route::Route::sample(), &cause).await.expect("a route");
    write.commit().await.expect("it commits");
    let [read, deploy, whole] = [Role::Read, Role::Deploy, Role::Admin].map(|role| token(role, own, None));
    let (read, deploy, whole) = (read.await, deploy.await, whole.await);
    let revoked = token(Role::Admin, own, None).await;
    plane.ground.tokens.revoke(revoked.token.id).await.expect("it ends");
    let expired = token(Role::Admin, Reach::All, Some(Duration::from_millis(1))).await;
    let everywhere = token(Role::Admin, Reach::All, None).await;
    let agent = plane.ground.agent_token(&here(), None).await;
    // Its time passes by the clock of the control plane, which is ours to move.
    plane.clock.jump_forward(Duration::from_secs(5));
    let user = |bearer: &wire::auth::Bearer| User::new(admin.address, bearer.reveal());
    let callers = [
        User { token: None, ..admin.clone() },
        user(&read.bearer),
        user(&deploy.bearer),
        user(&whole.bearer),
        stranger.user(admin, "admin").await,
        user(&everywhere.bearer),
        user(&agent.bearer),
        user(&expired.bearer),
        user(&revoked.bearer),
    ];
    let token = whole.token.id.to_string();
    let mut text = format!("{:59}", "");
    CALLERS.iter().for_each(|caller| write!(text, " {caller:10}").expect("a text"));
    text.push('\n');
    for route in routes() {
        write!(text, "{:6} {:52}", route.method.as_str(), route.path).expect("a text");
        let mut cells = BTreeMap::new();
        for (name, caller) in CALLERS.iter().zip(&callers) {
            let answer = ask(caller, route, &token).await;
            write!(text, " {:10}", answer.status).expect("a text");
            cells.insert(*name, answer);
        }
        text.push('\n');
        check(route, &cells);
    }
    let text = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n";
    expect_test::expect_file![GOLDEN].assert_eq(&text);
    plane.end().await;
}

/// Something of the sample workspace in each place of the path, and nothing that could be done.
async fn ask(user: &User, route: &Route, token: &str) -> Answer {
    let fill = |name: &str| match name {
        "workspace_id" => WorkspaceId::sample(1).to_string(),
        "project_id" => model::id::ProjectId::sample(1).to_string(),
        "app_id" => model::id::AppId::sample(1).to_string(),
        "environment_id" => EnvironmentId::sample(1).to_string(),
        "deployment_id" => DeploymentId::sample(1).to_string(),
        "network_policy_id" => NetworkPolicyId::sample(1).to_string(),
        "sentinel_id" => SentinelId::sample(1).to_string(),
        "rollout_id" => model::id::RolloutId::sample(1).to_string(),
        "region_id" => "aws.us-east-1".to_owned(),
        "cluster_id" => "aws.us-east-1.default".to_owned(),
        "token_id" => token.to_owned(),
        "hostname" => model::route::Route::sample().hostname.to_string(),
        other => panic!("the sweep has nothing for {other}"),
    };
    let mut path = route.path.to_owned();
    for name in route.parameters() {
        path = path.replace(&format!("{{{name}}}"), &fill(name));
    }
    if route.path == "/v1/requests" {
        write!(path, "?environment_id={}", EnvironmentId::sample(1)).expect("a text");
    }
    let key = "x".repeat(200);
    let headers = [("idempotency-key", key.as_str()), ("if-match", "\"never\"")];
    let body = matches!(route.method, Method::POST | Method::PATCH | Method::PUT).then(|| json!({}));
    user.send(route.method.clone(), &path, &headers, body).await
}

/// What must hold of every row, whatever the golden text says.
fn check(route: &Route, cells: &BTreeMap<&str, Answer>) {
    let name = route.name;
    if route.allow == Allow::Anyone {
        return assert!(cells.values().all(|answer| answer.status == 200), "{name}");
    }
    for caller in ["nobody", "expired", "revoked"] {
        assert_eq!(cells[caller].status, 401, "{name} by {caller}");
    }
    assert_eq!(cells["agent"].status, 403, "{name}");
    assert!(![401, 403].contains(&cells["everywhere"].status), "{name}: {:?}", cells["everywhere"]);
    let roles = [("read", Role::Read), ("deploy", Role::Deploy), ("admin", Role::Admin)];
    for (caller, role) in roles {
        let may = route.allow.admits(role, Reach::Workspace(WorkspaceId::sample(1)));
        assert_eq!(cells[caller].status != 403, may, "{name} by {caller}: {:?}", cells[caller]);
    }
    // Nothing of another's workspace is told, be it by an answer or by a list.
    let stranger = &cells["stranger"];
    let is_confined = matches!(route.allow, Allow::Workspace(_));
    if is_confined && route.parameters().next().is_some() {
        assert_eq!(stranger.status, 404, "{name}: {stranger:?}");
    }
    let own = [WorkspaceId::sample(1).to_string(), DeploymentId::sample(1).to_string()];
    assert!(own.iter().all(|id| !stranger.text.contains(&format!("\"{id}\""))), "{name}: {stranger:?}");
}
