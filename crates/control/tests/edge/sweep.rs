//! The sweep: every rpc that the schema has, with every kind of token that must not open it, at two replicas.
//!
//! ```text
//! rpc × token ─┬─▶ one replica, Connect with JSON over HTTP/1.1 ─┐
//!              └─▶ the other, gRPC over HTTP/2 ──────────────────┴─▶ the same code, and the right one
//! ```

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use futures_util::future::join_all;
use model::{
    deployment::DesiredState,
    id::{DeploymentId, EnvironmentId, NetworkPolicyId, SentinelId},
    name::Placement,
    sentinel::{Generation, Sentinel},
    token::{Reach, Role, Scope, TokenKind},
};
use prost_reflect::DescriptorPool;
use runtime::{
    clock::Clock,
    random::Random,
    telemetry::{self, LogFormat},
};
use serde_json::{Value as Json, json};
use wire::auth::{Bearer, Presented};

use super::{
    database::Database,
    ground::{self, credentials, here, nowhere, other_region, other_shard},
    http::{Call, Client, Protocol, Refused},
    plane::Plane,
    trial::block_on,
};

/// The first argument that makes the test binary a sweep whose whole output is looked through.
pub const ARGUMENT: &str = "--as-sweep";

/// How long a token that has ended may still hold a stream open.
const LIMIT: Duration = Duration::from_secs(2);

/// The codes of a refused token, and of a good one that does not open what was asked for.
const NOT_IN: &str = "unauthenticated";
const DENIED: &str = "permission_denied";

/// A call that the schema has.
struct Rpc {
    service: String,
    method: String,
    is_stream: bool,
}

/// What is asked of every rpc of a service, and what must be answered.
struct Column {
    name: &'static str,
    expected: &'static str,
    token: Option<String>,
    place: Placement,
    environment: u128,
}

/// The codes of one service: a row for each rpc.
struct Table {
    service: &'static str,
    columns: Vec<(&'static str, &'static str)>,
    cells: BTreeMap<(String, &'static str), String>,
}

/// A service's table, what is asked in it, and the rpcs that are asked.
type Swept = (Table, Vec<Column>, Vec<Rpc>);

/// Tokens that open the same, for as long as they are good.
struct Tokens {
    own: String,
    /// It is not good any more.
    revoked: String,
    /// It is good until it is revoked, and opens this environment.
    to_revoke: (String, u128),
    /// It is good for less than a day.
    short: String,
}

struct Sweep {
    plane: Plane,
    clients: [(Protocol, Client); 2],
    /// The term of the agent that reports.
    epoch: u64,
    /// What was said with each refusal.
    said: BTreeMap<String, usize>,
    secrets: Vec<Vec<u8>>,
}

/// Runs the sweep; what is secret in it comes back.
pub async fn nobody_is_let_in_by_default(database: &Database) -> Vec<Vec<u8>> {
    let plane = Plane::start(database, 2).await;
    let clients = [
        (Protocol::ConnectJson, Client::http1(plane.replicas[0].address)),
        (Protocol::GrpcJson, Client::http2(plane.replicas[1].address)),
    ];
    let mut sweep = Sweep { plane, clients, epoch: 0, said: BTreeMap::new(), secrets: Vec::new() };
    sweep.run().await;
    let Sweep { plane, said, secrets, .. } = sweep;
    for (message, count) in said {
        println!("{count:4} × {message}");
    }
    for replica in &plane.replicas {
        println!("{}", replica.metrics.encode());
    }
    plane.end().await;
    secrets
}

/// The sweep as a process of its own: everything is logged, and its secrets are written to a file.
pub fn run_aloud(arguments: &[String]) {
    let [url, path] = arguments else { panic!("a database and a file") };
    let database = if url == "-" { Database::Sqlite } else { Database::Postgres { url: url.clone() } };
    telemetry::init("trace", LogFormat::Json, &Clock::system()).expect("a log");
    let secrets = block_on(nobody_is_let_in_by_default(&database));
    let lines = secrets.iter().map(|secret| super::secrets::hex(secret) + "\n");
    std::fs::write(path, lines.collect::<String>()).expect("a file");
}

impl Sweep {
    async fn run(&mut self) {
        let rpcs = rpcs();
        let (agents, sentinels) = (self.agents().await, self.sentinels().await);
        self.plane.ground.scale(1, 1).await;
        self.plane.ground.put_policy(1, "of the sweep").await;
        self.epoch = self.begin(&agents.own).await;
        self.catch_up(&agents.own).await;
        let mut tables = [
            Table::of("ctrl.v1.ClusterService", self.cluster_columns(&agents, &sentinels).await),
            Table::of("ctrl.v1.RoutingService", self.routing_columns(&agents, &sentinels).await),
        ]
        .map(|(table, columns)| -> Swept { (table, columns, Vec::new()) });
        for rpc in rpcs {
            let (_, _, own) = tables.iter_mut().find(|(table, ..)| table.service == rpc.service).expect(
                "a service that is not swept: give it a table of its own, with all that must not open it",
            );
            own.push(rpc);
        }
        for (table, columns, rpcs) in &mut tables {
            for rpc in &*rpcs {
                for column in &*columns {
                    let code = self.code(rpc, column).await;
                    table.put(rpc, column.name, code);
                }
            }
        }
        // After everything else: a token that is ended here opens nothing any more.
        for (nth, tokens) in [&agents, &sentinels].into_iter().enumerate() {
            let (table, _, rpcs) = &mut tables[nth];
            self.revoke_while_open(table, rpcs, tokens, nth == 0).await;
        }
        self.expire_while_open(&mut tables, [&agents.short, &sentinels.short]).await;
        self.paths_of_nobody(&agents.own).await;
        let wrong: Vec<String> = tables.iter().flat_map(|(table, _, rpcs)| table.judge(rpcs)).collect();
        assert!(wrong.is_empty(), "not as it must be:\n{}", wrong.join("\n"));
    }

    async fn agents(&mut self) -> Tokens {
        let ground = self.plane.ground.clone();
        let own = ground.agent_token(&here(), None).await;
        let revoked = ground.agent_token(&here(), None).await;
        ground.tokens.revoke(revoked.token.id).await.expect("it is revoked");
        let to_revoke = ground.agent_token(&here(), None).await;
        let short = ground.agent_token(&here(), Some(Duration::from_hours(20))).await;
        let [own, revoked, to_revoke, short] =
            [own, revoked, to_revoke, short].map(|created| self.keep(created.bearer.reveal()));
        Tokens { own, revoked, to_revoke: (to_revoke, 1), short }
    }

    /// The credential of a sentinel is derived. It ends when its sentinel does, or a day after its successor came.
    async fn sentinels(&mut self) -> Tokens {
        let ground = self.plane.ground.clone();
        let serving = ground.put_sentinel(1, |sentinel| sentinel.desired.credential = Generation(2)).await;
        let to_stop = ground.put_sentinel(2, |_| {}).await;
        let stopped = ground.put_sentinel(3, |sentinel| sentinel.desired.state = DesiredState::Stopped).await;
        for key in credentials(&serving, Generation(2)).gossip_keys {
            self.secrets.push(key.to_vec());
        }
        let mut token = |sentinel, generation| self.keep(credentials(sentinel, generation).token.reveal());
        Tokens {
            own: token(&serving, Generation(2)),
            revoked: token(&stopped, stopped.desired.credential),
            to_revoke: (token(&to_stop, to_stop.desired.credential), 2),
            short: token(&serving, Generation(1)),
        }
    }

    async fn cluster_columns(&mut self, agents: &Tokens, sentinels: &Tokens) -> Vec<Column> {
        let lost = self.plane.ground.token_to_nowhere().await;
        let lost = self.keep(lost.reveal());
        let mut columns = self.shared_columns(agents, 1).await;
        columns.extend([
            column("a sentinel's token", DENIED, Some(&sentinels.own), &here(), 1),
            column("a place that is gone", "failed_precondition", Some(&lost), &nowhere(), 1),
        ]);
        columns
    }

    async fn routing_columns(&mut self, agents: &Tokens, sentinels: &Tokens) -> Vec<Column> {
        let mut columns = self.shared_columns(sentinels, 3).await;
        columns.extend([
            column("an agent's token", DENIED, Some(&agents.own), &here(), 1),
            column("another environment", DENIED, Some(&sentinels.own), &here(), 2),
        ]);
        columns
    }

    async fn shared_columns(&mut self, tokens: &Tokens, revoked: u128) -> Vec<Column> {
        let scope = Scope::User { role: Role::Admin, reach: Reach::All };
        let new =
            control::tokens::NewToken { name: "user".parse().expect("a line"), scope, expires_in: None };
        let user = self.plane.ground.tokens.create(new).await.expect("a token");
        let user = self.keep(user.bearer.reveal());
        let first = self.keep(&self.plane.first_token());
        let stranger = self.keep(Bearer::generate(TokenKind::Agent, &Random::system()).reveal());
        let garbage = self.keep("garbage-that-nobody-ever-gave-out-1f6a");
        let own = Some(&tokens.own);
        vec![
            column("its own", "ok", own, &here(), 1),
            column("no token", NOT_IN, None, &here(), 1),
            column("garbage", NOT_IN, Some(&garbage), &here(), 1),
            column("a stranger's", NOT_IN, Some(&stranger), &here(), 1),
            column("a user's", DENIED, Some(&user), &here(), 1),
            column("the first admin's", DENIED, Some(&first), &here(), 1),
            column("another region", DENIED, own, &other_region(), 1),
            column("another shard", DENIED, own, &other_shard(), 1),
            column("an unknown region", DENIED, own, &nowhere(), 1),
            column("revoked", NOT_IN, Some(&tokens.revoked), &here(), revoked),
        ]
    }

    fn keep(&mut self, secret: &str) -> String {
        self.secrets.push(secret.as_bytes().to_vec());
        secret.to_owned()
    }

    async fn begin(&self, token: &str) -> u64 {
        let mut body = body("Heartbeat", &here(), 1, 0);
        body["begin"] = json!({ "clusterUid": "5f0c9d1e-8a44-4f53-9d51-2b3c3f3e1a77" });
        let (protocol, client) = &self.clients[0];
        let path = "/ctrl.v1.ClusterService/Heartbeat";
        let answer = client.ask(*protocol, path, Some(token), body.to_string().as_bytes()).await;
        let answer: Json = serde_json::from_slice(&answer.expect("a term begins")).expect("an answer");
        answer["epoch"].as_str().and_then(|text| text.parse().ok()).expect("a term has a number")
    }

    /// Until both replicas know what was written last, which one of them hears of from the other.
    async fn catch_up(&self, token: &str) {
        let path = "/ctrl.v1.ClusterService/WatchCiliumNetworkPolicies";
        let message = body("WatchCiliumNetworkPolicies", &here(), 1, 0).to_string();
        for (protocol, client) in &self.clients {
            let call = client.call(*protocol, true, path, Some(token), message.as_bytes()).await;
            let mut call = call.expect("its own stream opens");
            loop {
                let heard = call.message().await.expect("it goes on").expect("it does not end");
                if String::from_utf8_lossy(&heard).contains(&NetworkPolicyId::sample(1).to_string()) {
                    break;
                }
            }
        }
    }

    /// What both replicas answer; if they do not agree, both.
    async fn code(&mut self, rpc: &Rpc, column: &Column) -> String {
        let mut codes = Vec::new();
        for (protocol, client) in self.clients.clone() {
            let opened = self.open(protocol, &client, rpc, column).await;
            codes.push(self.note(opened.map(drop)));
        }
        codes.dedup();
        codes.join(" / ")
    }

    /// Makes a call, or opens a stream and reads its first message.
    async fn open(
        &self,
        protocol: Protocol,
        client: &Client,
        rpc: &Rpc,
        column: &Column,
    ) -> Result<Option<Call>, Refused> {
        let message = body(&rpc.method, &column.place, column.environment, self.epoch).to_string();
        let (path, token) = (rpc.path(), column.token.as_deref());
        if !rpc.is_stream {
            return client.ask(protocol, &path, token, message.as_bytes()).await.map(|_| None);
        }
        let mut call = client.call(protocol, true, &path, token, message.as_bytes()).await?;
        call.message().await?;
        Ok(Some(call))
    }

    fn note(&mut self, outcome: Result<(), Refused>) -> String {
        let Err(Refused { code, message }) = outcome else { return "ok".to_owned() };
        *self.said.entry(format!("{code}: {message}")).or_default() += 1;
        code
    }

    async fn revoke_while_open(&mut self, table: &mut Table, rpcs: &[Rpc], tokens: &Tokens, is_agent: bool) {
        let (token, environment) = &tokens.to_revoke;
        let column = column("revoked while open", NOT_IN, Some(token), &here(), *environment);
        let open = self.open_all(rpcs, &column).await;
        let ground = self.plane.ground.clone();
        if is_agent {
            let Some(Presented::Stored { hash, .. }) = Bearer::parse(token).and_then(|own| own.presented())
            else {
                panic!("it is stored")
            };
            let tokens = ground.tokens.list().await.expect("a list");
            let id = tokens.iter().find(|token| token.hash == hash).expect("it is there").id;
            assert!(ground.tokens.revoke(id).await.expect("it is revoked"));
        } else {
            let stop = |sentinel: &mut Sentinel| sentinel.desired.state = DesiredState::Stopped;
            ground.put_sentinel(*environment, stop).await;
        }
        let ended = self.end_all(column.name, open).await;
        self.fill(table, rpcs, &column, &ended).await;
    }

    /// Both services at once, for it is the same day that passes.
    async fn expire_while_open(&mut self, tables: &mut [Swept; 2], tokens: [&String; 2]) {
        let columns = tokens.map(|token| column("expired while open", NOT_IN, Some(token), &here(), 1));
        let mut open = Vec::new();
        for ((_, _, rpcs), column) in tables.iter().zip(&columns) {
            open.extend(self.open_all(rpcs, column).await);
        }
        self.plane.clock.jump_forward(Duration::from_hours(25));
        let ended = self.end_all("expired while open", open).await;
        for ((table, _, rpcs), column) in tables.iter_mut().zip(&columns) {
            self.fill(table, rpcs, column, &ended).await;
            for rpc in &*rpcs {
                let code = self.code(rpc, column).await;
                table.put(rpc, "expired", code);
            }
        }
    }

    /// Opens every stream at both replicas; calls are made once.
    async fn open_all(&mut self, rpcs: &[Rpc], column: &Column) -> Vec<(String, Call)> {
        let mut open = Vec::new();
        for rpc in rpcs {
            for (protocol, client) in self.clients.clone() {
                let opened = self.open(protocol, &client, rpc, column).await;
                let call = opened.unwrap_or_else(|refused| {
                    panic!("{} is not opened for {}: {refused:?}", rpc.method, column.name)
                });
                open.extend(call.map(|call| (rpc.method.clone(), call)));
            }
        }
        open
    }

    /// The streams end by themselves within the limit from now; by what code, by their methods.
    async fn end_all(&mut self, name: &str, open: Vec<(String, Call)>) -> BTreeMap<String, Vec<String>> {
        let clock = self.plane.clock.clone();
        let since = clock.instant();
        let ends = open.into_iter().map(|(method, mut call)| async move {
            loop {
                let heard = tokio::time::timeout(LIMIT * 2, call.message()).await;
                let late = || panic!("{method} was still open {:?} after its token had ended", LIMIT * 2);
                match heard.unwrap_or_else(|_| late()) {
                    Ok(Some(_)) => {}
                    Ok(None) => return (method, Ok(())),
                    Err(refused) => return (method, Err(refused)),
                }
            }
        });
        let ends = join_all(ends).await;
        let took = clock.instant() - since;
        println!("{name}: {} streams ended within {took:?}", ends.len());
        assert!(took <= LIMIT, "{name}: streams were open for {took:?}");
        let mut codes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (method, ended) in ends {
            let code = self.note(ended);
            codes.entry(method).or_default().push(code);
        }
        codes
    }

    /// A row for each rpc: how its streams ended, and what is answered to whoever calls it now.
    async fn fill(
        &mut self,
        table: &mut Table,
        rpcs: &[Rpc],
        column: &Column,
        ended: &BTreeMap<String, Vec<String>>,
    ) {
        for rpc in rpcs {
            let mut codes = ended.get(&rpc.method).cloned().unwrap_or_default();
            // A sync tells everything and ends well, whatever becomes of its token.
            codes.retain(|code| rpc.method != "SyncDesiredState" || code != "ok");
            codes.push(self.code(rpc, column).await);
            codes.dedup();
            table.put(rpc, column.name, codes.join(" / "));
        }
    }

    async fn paths_of_nobody(&mut self, token: &str) {
        let paths = [
            "/",
            "/health/ready",
            "/metrics",
            // What the API has is swept with the API; this is beside it.
            "/v1x/workspaces",
            "/docs/",
            "/openapi.json/",
            "/ctrl.v1.ClusterService",
            "/ctrl.v1.ClusterService/",
            "/ctrl.v1.ClusterService/Nothing",
            "/ctrl.v1.ClusterService/heartbeat",
            "/ctrl.v1.ClusterService/Heartbeat/",
            "//ctrl.v1.ClusterService/Heartbeat",
            "/ctrl.v1.ClusterService/./Heartbeat",
            "/ctrl.v1.ClusterService/%48eartbeat",
            "/ctrl.v1.ClusterService/Heartbeat%00",
            "/ctrl.v1.VaultService/Decrypt",
            "/grpc.health.v1.Health/Check",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        ];
        for path in paths {
            let message = body("Heartbeat", &here(), 1, self.epoch).to_string();
            for (protocol, client) in self.clients.clone() {
                for token in [None, Some(token)] {
                    let answer = client.ask(protocol, path, token, message.as_bytes()).await;
                    let code = self.note(answer.map(drop));
                    assert_eq!(code, DENIED, "{path} is nobody's, in {protocol:?}");
                }
            }
        }
        println!("{} paths that no table names: {DENIED}", paths.len());
    }
}

impl Table {
    fn of(service: &'static str, columns: Vec<Column>) -> (Self, Vec<Column>) {
        let named = columns.iter().map(|column| (column.name, column.expected));
        let later = [("revoked while open", NOT_IN), ("expired while open", NOT_IN), ("expired", NOT_IN)];
        let table = Self { service, columns: named.chain(later).collect(), cells: BTreeMap::new() };
        (table, columns)
    }

    fn put(&mut self, rpc: &Rpc, column: &'static str, code: String) {
        let twice = self.cells.insert((rpc.method.clone(), column), code);
        assert_eq!(twice, None, "{} has {column} twice", rpc.method);
    }

    /// Prints the table; what is not as it must be comes back.
    fn judge(&self, rpcs: &[Rpc]) -> Vec<String> {
        assert!(!rpcs.is_empty(), "{} has no rpc", self.service);
        println!("\n{}", self.service);
        for (nth, (column, expected)) in self.columns.iter().enumerate() {
            println!("  {:2} {column}: {expected}", nth + 1);
        }
        let numbers: Vec<String> = (1..=self.columns.len()).map(|number| format!("{number:8}")).collect();
        println!("{:34}{}", "", numbers.concat());
        let mut wrong = Vec::new();
        for rpc in rpcs {
            let mut line = format!("{:34}", rpc.method);
            for (column, expected) in &self.columns {
                let code = self.cells.get(&(rpc.method.clone(), *column)).map_or("", String::as_str);
                let _ = write!(line, "{:>8}", short(code));
                if code != *expected {
                    wrong.push(format!("{} with {column}: {code:?}, not {expected}", rpc.method));
                }
            }
            println!("{line}");
        }
        wrong
    }
}

/// So that a row fits into a line.
fn short(code: &str) -> &str {
    match code {
        NOT_IN => "unauth",
        DENIED => "denied",
        "failed_precondition" => "precond",
        other => other,
    }
}

impl Rpc {
    fn path(&self) -> String {
        format!("/{}/{}", self.service, self.method)
    }
}

/// Every call of the compiled schema.
fn rpcs() -> Vec<Rpc> {
    let schema = DescriptorPool::decode(wire::DESCRIPTOR).expect("the schema compiled");
    let methods = schema.services().flat_map(|service| {
        let methods = service.methods().collect::<Vec<_>>();
        methods.into_iter().map(move |method| Rpc {
            service: service.full_name().to_owned(),
            method: method.name().to_owned(),
            is_stream: method.is_server_streaming(),
        })
    });
    methods.collect()
}

fn column(
    name: &'static str,
    expected: &'static str,
    token: Option<&String>,
    place: &Placement,
    environment: u128,
) -> Column {
    Column { name, expected, token: token.cloned(), place: place.clone(), environment }
}

/// A message that the rpc would take from its rightful caller.
fn body(method: &str, place: &Placement, environment: u128, epoch: u64) -> Json {
    let region = &place.region;
    let mut body = json!({
        "region": { "platform": region.platform.to_string(), "name": region.name.to_string() },
        "shard": place.shard.to_string(),
        "instanceId": "agent-1",
    });
    let more = match method {
        "WatchDeployments" | "WatchSentinels" | "WatchCiliumNetworkPolicies" | "WatchDeploymentChanges" => {
            json!({ "versionLastSeen": "0" })
        }
        "SyncDesiredState" => json!({}),
        "GetDesiredDeploymentState" => json!({ "deploymentId": DeploymentId::sample(1).to_string() }),
        "GetDesiredSentinelState" => json!({ "sentinelId": SentinelId::sample(1).to_string() }),
        "GetDesiredCiliumNetworkPolicyState" => {
            json!({ "ciliumNetworkPolicyId": NetworkPolicyId::sample(1).to_string() })
        }
        "ReportDeploymentStatus" => {
            json!({ "update": { "k8sName": ground::deployment(1).k8s_name.to_string() }, "epoch": epoch, "sequence": 1 })
        }
        "ReportSentinelStatus" => {
            let id = SentinelId::sample(1);
            json!({
                "k8sName": id.kubernetes_name().to_string(), "sentinelId": id.to_string(),
                "health": "HEALTH_HEALTHY", "availableReplicas": 1, "epoch": epoch, "sequence": 1,
            })
        }
        "ReportInventory" => json!({ "epoch": epoch, "sequence": 1 }),
        "ReportApplyError" => {
            let id = DeploymentId::sample(1).to_string();
            json!({ "kind": "KIND_DEPLOYMENT", "id": id, "epoch": epoch, "sequence": 1, "observedVersion": 1 })
        }
        "Heartbeat" => json!({ "epoch": epoch }),
        "WatchRoutes" => json!({ "environmentId": EnvironmentId::sample(environment).to_string() }),
        "ReportTraffic" => {
            let environment = EnvironmentId::sample(environment).to_string();
            json!({ "environmentId": environment, "startId": "life-1", "sequence": 1 })
        }
        other => panic!("say here what {other} would take from its rightful caller"),
    };
    let own = body.as_object_mut().expect("an object");
    own.extend(more.as_object().expect("an object").clone());
    body
}
