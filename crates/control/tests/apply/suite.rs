//! What becomes of a document that is applied.

use std::{net::SocketAddr, time::Duration};

use control::{
    Control, Parts,
    config::{ControlConfig, CredentialKeyConfig},
    tokens::{NewToken, Tokens},
};
use model::{
    id::WorkspaceId,
    name::Placement,
    project::{Quotas, Usage, Workspace},
    time::Millis,
    token::{Reach, Role, Scope},
};
use runtime::{
    clock::Clock,
    config::SecretString,
    random::Random,
    ready::Readiness,
    shutdown::Tasks,
    telemetry::{Build, Metrics},
};
use serde_json::{Value, json};
use store::{Cause, Store};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::database::Database;

/// One test of the suite for each line.
macro_rules! suite {
    ($database:expr) => {
        suite!($database, {
            a_document_makes_what_is_missing_and_deploys_it,
            what_is_applied_again_changes_nothing,
            a_rehearsal_changes_nothing_and_says_the_same,
            a_setting_that_reaches_instances_is_deployed_and_another_is_not,
            a_wrong_document_is_refused_whole_with_lines,
            a_token_applies_in_its_own_workspace_only,
            the_same_key_is_applied_once,
            a_quota_holds,
        });
    };
    ($database:expr, { $($name:ident,)+ }) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                suite::$name($database).await;
            }
        )+
    };
}

const DOCUMENT: &str = "\
app: shop/web
image: web:1
regions: [aws/us-east-1]
scaling: { min: 2, max: 2 }
";

struct Plane {
    store: Store,
    tokens: Tokens,
    address: SocketAddr,
    tasks: Tasks,
    workspace: Workspace,
    _home: tempfile::TempDir,
}

impl Plane {
    async fn start(database: Database) -> Plane {
        let home = tempfile::tempdir().unwrap();
        let (clock, random, tasks) = (Clock::system(), Random::system(), Tasks::new());
        let mut config = ControlConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            directory: home.path().join("state"),
            drain: Duration::from_secs(5),
            ..ControlConfig::default()
        };
        config.store.url = database.url().map(SecretString::new);
        config.credential_key =
            vec![CredentialKeyConfig { id: "k1".to_owned(), secret: SecretString::new("5e".repeat(32)) }];
        let parts = Parts {
            clock: clock.clone(),
            random: random.clone(),
            tasks: tasks.clone(),
            readiness: Readiness::new(),
            metrics: Metrics::new(Build { role: "control", version: "0.0.0", revision: "test" }),
        };
        let control = Control::open(config, parts).await.unwrap();
        let store = control.store().clone();
        let bound = control.bind().await.unwrap();
        let address = bound.address();
        tasks.spawn_essential("control", bound.run());
        let workspace = Workspace { quotas: Quotas::default(), ..Workspace::sample() };
        let plane = Plane {
            tokens: Tokens::new(&store, &clock, &random),
            store,
            address,
            tasks,
            workspace,
            _home: home,
        };
        plane.lay(&clock).await;
        plane
    }

    /// A workspace, and a place whose agent was seen.
    async fn lay(&self, clock: &Clock) {
        let at = Millis(clock.now().millis());
        let cause = Cause { change: None, at };
        let place: Placement = "aws/us-east-1:default".parse().unwrap();
        let mut write = self.store.begin().await.unwrap();
        write.put_workspace(&self.workspace, at).await.unwrap();
        write.put_region(&place.region, true, at).await.unwrap();
        write.put_cluster(&place, &cause).await.unwrap();
        let (uid, instance) = ("uid".parse().unwrap(), "agent".parse().unwrap());
        write.begin_term(&place, &uid, &instance, Duration::from_mins(10)).await.unwrap();
        write.commit().await.unwrap();
    }

    async fn token(&self, role: Role, reach: Reach) -> String {
        let scope = Scope::User { role, reach };
        let new = NewToken { name: "test".parse().unwrap(), scope, expires_in: None };
        self.tokens.create(new).await.unwrap().bearer.reveal().to_owned()
    }

    async fn deployer(&self) -> String {
        self.token(Role::Deploy, Reach::Workspace(self.workspace.id)).await
    }

    async fn apply(&self, token: &str, query: &str, document: &str) -> (u16, Value) {
        self.post(&format!("/v1/apply{query}"), token, "", document).await
    }

    async fn post(&self, path: &str, token: &str, headers: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: krane\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/yaml\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    /// Everything that a document can change, counted.
    async fn counts(&self) -> (usize, usize, usize, usize) {
        let projects = self.store.list_projects(None, None, None, 100).await.unwrap().len();
        let apps = self.store.list_apps(None, None, None, None, 100).await.unwrap().len();
        let environments =
            self.store.list_environments(store::EnvironmentFilter::default(), None, 100).await.unwrap();
        let deployments =
            self.store.list_deployments(&store::DeploymentFilter::default(), None, 100).await.unwrap();
        (projects, apps, environments.len(), deployments.len())
    }

    async fn end(self) {
        let drained = self.tasks.stop(Duration::from_secs(20)).await;
        assert!(drained.is_clean(), "{drained:?}");
    }
}

fn fields(answer: &Value) -> Vec<&str> {
    answer["changes"].as_array().unwrap().iter().map(|change| change["field"].as_str().unwrap()).collect()
}

pub async fn a_document_makes_what_is_missing_and_deploys_it(database: Database) {
    let plane = Plane::start(database).await;
    let (status, answer) = plane.apply(&plane.deployer().await, "", DOCUMENT).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["created"], json!(["project", "app", "environment"]));
    assert_eq!(fields(&answer), ["image", "scaling.min", "scaling.max", "regions"]);
    assert_eq!(answer["app"], format!("{}/shop/web", plane.workspace.slug));
    assert_eq!(plane.counts().await, (1, 1, 1, 1));

    let id = answer["deployment_id"].as_str().unwrap().parse().unwrap();
    let (deployment, _) = plane.store.deployment(id).await.unwrap();
    assert_eq!(deployment.image.to_string(), "web:1");
    let environment = plane.store.environment(deployment.environment).await.unwrap().noun;
    assert_eq!(environment.slug.as_str(), "production");
    assert_eq!(environment.settings.scaling.max().get(), 2);
    plane.end().await;
}

pub async fn what_is_applied_again_changes_nothing(database: Database) {
    let plane = Plane::start(database).await;
    let token = plane.deployer().await;
    plane.apply(&token, "", DOCUMENT).await;
    let before = plane.counts().await;
    let (status, answer) = plane.apply(&token, "", DOCUMENT).await;
    assert_eq!((status, &answer["created"], &answer["changes"]), (200, &json!([]), &json!([])), "{answer}");
    assert_eq!((&answer["deploys"], &answer["deployment_id"]), (&json!(false), &Value::Null));
    assert_eq!(plane.counts().await, before);

    // Another image is another deployment of the same environment.
    let (_, answer) = plane.apply(&token, "", &DOCUMENT.replace("web:1", "web:2")).await;
    assert_eq!(answer["changes"], json!([{ "field": "image", "from": "web:1", "to": "web:2" }]));
    assert_eq!(plane.counts().await, (1, 1, 1, 2));
    plane.end().await;
}

pub async fn a_rehearsal_changes_nothing_and_says_the_same(database: Database) {
    let plane = Plane::start(database).await;
    let token = plane.deployer().await;
    let (status, tried) = plane.apply(&token, "?dry_run=true", DOCUMENT).await;
    assert_eq!(status, 200, "{tried}");
    assert_eq!(plane.counts().await, (0, 0, 0, 0));
    assert_eq!((&tried["environment_id"], &tried["deployment_id"]), (&Value::Null, &Value::Null));
    let (_, made) = plane.apply(&token, "", DOCUMENT).await;
    for same in ["app", "environment", "created", "changes", "deploys"] {
        assert_eq!(tried[same], made[same], "{same}");
    }
    // What would be refused is refused already.
    let elsewhere = DOCUMENT.replace("aws/us-east-1", "aws/mars");
    let (status, refused) = plane.apply(&token, "?dry_run=true", &elsewhere).await;
    assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("regions[0]")), "{refused}");
    assert_eq!((&refused["errors"][0]["line"], &refused["errors"][0]["column"]), (&json!(3), &json!(11)));
    plane.end().await;
}

pub async fn a_setting_that_reaches_instances_is_deployed_and_another_is_not(database: Database) {
    let plane = Plane::start(database).await;
    let token = plane.deployer().await;
    plane.apply(&token, "", DOCUMENT).await;
    let (_, answer) = plane.apply(&token, "", "app: shop/web\nstrategy: { kind: blue_green }\n").await;
    assert_eq!(
        (fields(&answer), &answer["deploys"]),
        (vec!["strategy.kind", "strategy.keep"], &json!(false))
    );
    let (_, answer) = plane.apply(&token, "", "app: shop/web\nresources: { memory: 512 }\n").await;
    assert_eq!((fields(&answer), &answer["deploys"]), (vec!["resources.memory"], &json!(true)), "{answer}");
    let id = answer["deployment_id"].as_str().unwrap().parse().unwrap();
    let (deployment, _) = plane.store.deployment(id).await.unwrap();
    assert_eq!((deployment.image.to_string().as_str(), deployment.resources.memory.get()), ("web:1", 512));

    // Null gives the default back, and what is absent has stayed.
    let (_, answer) = plane.apply(&token, "", "app: shop/web\nresources: null\n").await;
    assert_eq!(answer["changes"], json!([{ "field": "resources.memory", "from": 512, "to": 256 }]));
    let environment = plane.store.environment(deployment.environment).await.unwrap().noun;
    assert_eq!(environment.settings.scaling.max().get(), 2);
    plane.end().await;
}

pub async fn a_wrong_document_is_refused_whole_with_lines(database: Database) {
    let plane = Plane::start(database).await;
    let token = plane.deployer().await;
    let wrong = "app: shop/web\nimage: web:1\nscaling: { min: 5, max: 2 }\nprot: 80\npolicies: []\n";
    let (status, answer) = plane.apply(&token, "", wrong).await;
    let told: Vec<_> = answer["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| (error["field"].as_str().unwrap(), error["line"].as_u64().unwrap()))
        .collect();
    assert_eq!((status, &answer["code"]), (422, &json!("invalid")));
    assert_eq!(told, [("scaling.min", 3), ("prot", 4), ("policies", 5)]);
    for (document, part) in [("app: web\nimage: web:1\n", "names no project"), ("app: [", "")] {
        let (status, answer) = plane.apply(&token, "", document).await;
        assert_eq!(status, 422, "{answer}");
        assert!(answer["errors"][0]["problem"].as_str().unwrap().contains(part), "{answer}");
    }
    assert_eq!(plane.counts().await, (0, 0, 0, 0));
    plane.end().await;
}

pub async fn a_token_applies_in_its_own_workspace_only(database: Database) {
    let plane = Plane::start(database).await;
    let slug = plane.workspace.slug.clone();
    let stranger = plane.token(Role::Admin, Reach::Workspace(WorkspaceId::sample(77))).await;
    let named = DOCUMENT.replace("shop/web", &format!("{slug}/shop/web"));
    assert_eq!(plane.apply(&stranger, "", &named).await.0, 404);
    assert_eq!(plane.apply(&plane.token(Role::Read, Reach::All).await, "", &named).await.0, 403);
    assert_eq!(plane.counts().await, (0, 0, 0, 0));

    let admin = plane.token(Role::Admin, Reach::All).await;
    let (status, answer) = plane.apply(&admin, "", DOCUMENT).await;
    assert!(status == 422 && answer["errors"][0]["problem"].as_str().unwrap().contains("names no workspace"));
    assert_eq!(plane.apply(&admin, &format!("?workspace={slug}"), DOCUMENT).await.0, 200);
    let bare = DOCUMENT.replace("shop/web", "web");
    let (_, answer) = plane.apply(&admin, &format!("?workspace={slug}&project=shop"), &bare).await;
    assert_eq!(answer["changes"], json!([]), "it is the same app: {answer}");
    plane.end().await;
}

pub async fn the_same_key_is_applied_once(database: Database) {
    let plane = Plane::start(database).await;
    let token = plane.deployer().await;
    let key = "Idempotency-Key: one\r\n";
    let first = plane.post("/v1/apply", &token, key, DOCUMENT).await;
    let second = plane.post("/v1/apply", &token, key, DOCUMENT).await;
    assert_eq!(first, second);
    assert_eq!(first.0, 200);
    assert_eq!(plane.counts().await, (1, 1, 1, 1));
    let (status, answer) = plane.post("/v1/apply", &token, key, &DOCUMENT.replace("web:1", "web:2")).await;
    assert_eq!((status, &answer["code"]), (422, &json!("idempotency_key_reused")));
    plane.end().await;
}

pub async fn a_quota_holds(database: Database) {
    let plane = Plane::start(database).await;
    let token = plane.deployer().await;
    let Quotas(usage) = Quotas::default();
    let tight = Workspace { quotas: Quotas(Usage { cpu_millis: 499, ..usage }), ..plane.workspace.clone() };
    let mut write = plane.store.begin().await.unwrap();
    write.put_workspace(&tight, Millis(0)).await.unwrap();
    write.commit().await.unwrap();
    let (status, answer) = plane.apply(&token, "", DOCUMENT).await;
    assert_eq!((status, &answer["code"]), (422, &json!("quota_exceeded")), "{answer}");
    assert_eq!(plane.counts().await, (0, 0, 0, 0), "nothing of it was made");
    plane.end().await;
}
