//! The guard's own case, with an agent and an operator as processes: tombstones were pruned while the agent was away,
//! and what only a list's silence speaks against is too much to go by itself.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Stdio,
};

use agent::object::Type;
use harness::{
    audit::Audit,
    eventually,
    ground::{Ground, fixed},
    kubernetes::Kubernetes,
    runner,
};
use model::{
    cluster::{HeldBack, ListHash},
    deployment::Deployment,
    event::{Event, EventKind, Field},
    kind::Kind,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

const INSTANCE: &str = "confirm";

/// `krane agent`; it is killed when this is dropped.
struct Process {
    child: Child,
    /// Where its numbers are.
    admin: String,
    log: PathBuf,
}

impl Process {
    async fn start(ground: &Ground, home: &Path) -> Process {
        let settings = home.join("agent.toml");
        let pace = "pace.heartbeat = \"500ms\"\npace.resync = \"0s\"\npace.audit = \"0s\"";
        let text = runner::settings(ground, &ground.url, INSTANCE, pace);
        std::fs::write(&settings, text).expect("the settings are written");
        let log = home.join("agent.log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_krane"))
            .args(["agent", "--config"])
            .arg(&settings)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).expect("a log"))
            .kill_on_drop(true)
            .spawn()
            .expect("the binary runs");
        let mut said = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let admin = loop {
            let line = said.next_line().await.expect("it speaks UTF-8");
            let line = line.unwrap_or_else(|| panic!("{}", std::fs::read_to_string(&log).expect("a log")));
            if let Some(rest) = line.split_once("http://").filter(|(_, rest)| rest.contains("/metrics")) {
                break rest.1.split('/').next().expect("an address").to_owned();
            }
        };
        Process { child, admin, log }
    }

    /// A number of its metrics page.
    async fn metric(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(&self.admin).await.expect("it listens");
        let request = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.admin);
        stream.write_all(request.as_bytes()).await.expect("it is asked");
        let mut page = String::new();
        stream.read_to_string(&mut page).await.expect("it answers");
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().expect("a number")
    }

    async fn kill(mut self) {
        self.child.kill().await.expect("it is killed");
    }
}

/// `krane control cluster …` on the store of a ground: whether it succeeded, and what it said.
async fn cluster(ground: &Ground, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_krane"));
    command.args(["control", "--directory"]).arg(ground.home.path()).arg("cluster").args(arguments);
    let output = command.output().await.expect("the binary runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("it speaks UTF-8"))
}

async fn confirm(ground: &Ground, kind: &str, hash: ListHash) -> (bool, String) {
    let (place, hash) = (ground.names.place.to_string(), hash.to_string());
    cluster(ground, &["confirm", &place, "--kind", kind, "--hash", &hash]).await
}

/// Waits until exactly these stand.
async fn stand(kubernetes: &Kubernetes, ground: &Ground, deployments: &[Deployment]) {
    let wanted: BTreeSet<String> =
        deployments.iter().map(|deployment| deployment.k8s_name.to_string()).collect();
    eventually("just these stand", async || {
        for ty in [Type::ReplicaSet, Type::PodDisruptionBudget] {
            let names = kubernetes.names(ty, ground.names.namespace.as_str()).await;
            let there: BTreeSet<String> = names.into_iter().collect();
            if there != wanted {
                return Err(format!("{there:?}"));
            }
        }
        Ok(())
    })
    .await;
}

/// What the agent asked the API server to delete, by name.
fn deleted(audit: &Audit) -> BTreeSet<String> {
    let asked = audit.of_agent(INSTANCE).into_iter();
    asked.filter(|request| request.verb.starts_with("delete")).map(|request| request.name).collect()
}

async fn of_kind(ground: &Ground, kind: EventKind) -> Vec<Event> {
    ground.events().await.into_iter().filter(|event| event.kind == kind).collect()
}

fn said(event: &Event) -> [Option<String>; 2] {
    [Field::Kind, Field::Hash].map(|field| event.get(field).map(ToString::to_string))
}

/// Waits for so many heartbeats, by what they do to the lease.
async fn beats(ground: &Ground, count: usize) {
    for _ in 0..count {
        let before = ground.cluster().await.lease_expires_at;
        eventually("a heartbeat", async || {
            let now = ground.cluster().await.lease_expires_at;
            if now > before { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }
}

/// Removes the last few while nobody looks, and with them all trace of it.
async fn remove_unseen(ground: &Ground, deployments: &mut Vec<Deployment>, count: usize) -> Vec<Deployment> {
    let removed = deployments.split_off(deployments.len() - count);
    for deployment in &removed {
        ground.remove_deployment(deployment).await;
    }
    ground.prune().await;
    removed
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_that_only_absence_speaks_for_wait_for_an_operator_who_names_them() {
    let (ground, kubernetes) = (Ground::lay().await, Kubernetes::connect().await);
    let home = tempfile::tempdir().expect("a directory");
    kubernetes.grant(ground.names.namespace.as_str()).await;
    let mut deployments: Vec<_> = (1..=10).map(|number| ground.names.deployment(number)).collect();
    ground.put_deployments(&deployments, fixed(0)).await;
    let agent = Process::start(&ground, home.path()).await;
    stand(&kubernetes, &ground, &deployments).await;
    agent.kill().await;
    let all = deployments.clone();
    let removed = remove_unseen(&ground, &mut deployments, 3).await;

    let audit = Audit::from_now();
    let agent = Process::start(&ground, home.path()).await;
    let held = eventually("the report says what is held back", async || {
        assert_eq!(deleted(&audit), BTreeSet::new(), "nobody was asked");
        let held = ground.held_back().await;
        <[HeldBack; 1]>::try_from(held).map_err(|held| format!("{held:?}"))
    })
    .await[0];
    assert_eq!((held.kind, held.count, held.confirmed), (Kind::Deployment, 3, None));
    let hash = held.hash.to_string();
    let log = std::fs::read_to_string(&agent.log).expect("a log");
    let is_said = |line: &str| line.contains("deletions wait for an operator") && line.contains(&hash);
    assert!(log.lines().any(is_said), "{log}");
    assert_eq!(agent.metric("krane_held_back{kind=\"deployment\"}").await, 3);
    let events = of_kind(&ground, EventKind::ClusterGuard).await;
    assert_eq!(
        events.iter().map(said).collect::<Vec<_>>(),
        [["deployment".to_owned(), hash.clone()].map(Some)]
    );
    assert_eq!(events[0].get(Field::Count).map(ToString::to_string), Some("3".to_owned()));
    let (succeeded, listed) = cluster(&ground, &["list"]).await;
    assert!(
        succeeded && listed.contains(&format!("holds back 3 deployments, {hash}  to be confirmed")),
        "{listed}"
    );

    // Another list, or the same of another kind, is not the one that an operator has looked at.
    for (kind, hash) in [("deployment", ListHash([7; 32])), ("sentinel", held.hash)] {
        let (succeeded, text) = confirm(&ground, kind, hash).await;
        assert!(!succeeded && text.contains("holds back no such list"), "{text}");
    }
    beats(&ground, 3).await;
    stand(&kubernetes, &ground, &all).await;
    assert_eq!((deleted(&audit), ground.held_back().await), (BTreeSet::new(), vec![held]));

    let (succeeded, text) = confirm(&ground, "deployment", held.hash).await;
    assert!(succeeded && text.contains("is confirmed"), "{text}");
    stand(&kubernetes, &ground, &deployments).await;
    assert_eq!(deleted(&audit), removed.iter().map(|deployment| deployment.k8s_name.to_string()).collect());
    let events = of_kind(&ground, EventKind::ClusterConfirmed).await;
    assert_eq!(events.iter().map(said).collect::<Vec<_>>(), [["deployment".to_owned(), hash].map(Some)]);
    eventually("nothing is held back any more", async || {
        let (held, shown) =
            (ground.held_back().await, agent.metric("krane_held_back{kind=\"deployment\"}").await);
        if held.is_empty() && shown == 0 { Ok(()) } else { Err(format!("{held:?}, {shown}")) }
    })
    .await;
    agent.kill().await;

    // One of seven is less than a fifth: that needs nobody.
    let removed = remove_unseen(&ground, &mut deployments, 1).await;
    let audit = Audit::from_now();
    let agent = Process::start(&ground, home.path()).await;
    stand(&kubernetes, &ground, &deployments).await;
    assert_eq!(deleted(&audit), BTreeSet::from([removed[0].k8s_name.to_string()]));
    beats(&ground, 2).await;
    assert_eq!(of_kind(&ground, EventKind::ClusterGuard).await.len(), 1, "nothing more was held back");
    agent.kill().await;
    ground.end().await;
}
