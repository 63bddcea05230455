//! The story on a local cluster: the same that an agent lives through on Kubernetes, with processes that answer.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use agent::{
    cluster::local::{
        Local,
        process::{
            LocalConfig,
            machine::{Machine, Surroundings},
            ports::Ports,
            services::{Addresses, Door},
        },
    },
    config::AgentConfig,
    object::Type,
};
use harness::{
    PATIENCE, eventually,
    ground::{Ground, fixed},
    runner::{self, Runner},
    story::Story,
};
use model::{deployment::Deployment, instance::Instance};
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
};

/// A local cluster with its agent, before a control plane.
struct World {
    ground: Ground,
    config: AgentConfig,
    local: Local,
    services: watch::Receiver<Arc<Addresses>>,
    agent: Runner,
    pods: Tasks,
}

impl World {
    async fn begin() -> World {
        let ground = Ground::lay().await;
        let mut config = runner::config_anywhere(&ground, &format!("local-{}", ground.names.place.shard));
        config.workload.drain = Duration::from_secs(1);
        config.sentinel.min_ready = Duration::ZERO;
        let krane = env!("CARGO_BIN_EXE_krane");
        // It is given the arguments of a sentinel, which the sample does not know.
        let script = |script: &str| ["sh", "-c", script, "sentinel"].map(str::to_owned).to_vec();
        let sample = |more: &str| script(&format!("exec '{krane}' sample {more}"));
        let deaf = "trap '' TERM; export UNKEY_INSTANCE_ID=$KRANE_SENTINEL__INSTANCE_ID";
        let local = LocalConfig {
            directory: ground.home.path().join("local"),
            images: [
                ("krane/sentinel".to_owned(), sample("")),
                ("fake.local/slow-start".to_owned(), sample("--delay 2s")),
                ("example/deaf".to_owned(), script(&format!("{deaf}; '{krane}' sample"))),
            ]
            .into(),
            restart_first: Duration::from_millis(100),
            ..LocalConfig::default()
        };
        let pods = Tasks::new();
        let around = Surroundings {
            krane: krane.into(),
            ports: Ports::new(local.port_first..=local.port_last, &Random::system()),
            clock: Clock::system(),
            random: Random::system(),
            tasks: pods.clone(),
        };
        let shard = ground.names.place.shard.clone();
        let machine = Machine::open(local, &config.namespace, shard, around).expect("it opens");
        let agent = Runner::start_on(config.clone(), Arc::new(machine.local.clone())).await;
        let Machine { local, services } = machine;
        World { ground, config, local, services, agent: agent.expect("the agent starts"), pods }
    }

    async fn end(self) {
        self.agent.stop().await;
        let drained = self.pods.stop(PATIENCE).await;
        assert!(drained.is_clean(), "{drained:?}");
        self.ground.end().await;
    }

    /// Waits until the one instance of a deployment is reported so.
    async fn reported(&self, deployment: &Deployment, is_so: impl Fn(&Instance) -> bool) -> Instance {
        self.ground.put_deployment(deployment, fixed(1)).await;
        eventually(&format!("{} is reported", deployment.id), async || {
            let instances = self.ground.instances(deployment.id).await;
            instances.iter().find(|one| is_so(one)).cloned().ok_or_else(|| format!("{instances:?}"))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_is_lived_on_a_local_cluster() {
    let world = World::begin().await;
    let story = Story { ground: &world.ground, kubernetes: &world.local, config: &world.config };
    tokio::join!(story.of_a_deployment(), story.of_a_sentinel());
    story.of_a_policy().await;
    let mut times = 0;
    story
        .of_an_account(|| {
            times += 1;
            times > 3
        })
        .await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_does_wrong_is_reported_and_disturbs_nobody() {
    let world = World::begin().await;
    let names = &world.ground.names;
    let well = names.deployment(1).with_health("/health");
    world.ground.put_deployment(&well, fixed(2)).await;
    let before = world.ground.running(well.id, 2).await;
    let of =
        |number, words: &[&str]| names.deployment(number).with_image("example/app:1").with_command(words);

    let reason = |reason: &'static str| {
        move |one: &Instance| one.reason.as_ref().is_some_and(|told| told.as_str() == reason)
    };
    let missing = world.reported(&of(2, &["krane-has-no-such-program"]), reason("CrashLoopBackOff")).await;
    let said = missing.message.expect("a message").to_string();
    assert!(said.contains("executable file not found in $PATH"), "{said}");
    let ending =
        world.reported(&of(3, &["sh", "-c", "echo no disk; exit 3"]), reason("CrashLoopBackOff")).await;
    assert_eq!(
        (ending.message.expect("a message").to_string(), ending.exit_code),
        ("no disk".to_owned(), Some(3))
    );
    let unknown =
        world.reported(&names.deployment(4).with_image("example/app:1"), reason("ErrImagePull")).await;
    let said = unknown.message.expect("a message").to_string();
    assert!(said.contains("[local.images] \"example/app\""), "{said}");
    let deaf = of(5, &["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]);
    world.ground.put_deployment(&deaf, fixed(1)).await;
    world.ground.running(deaf.id, 1).await;

    let known = |instances: &[Instance]| {
        let told = instances.iter().map(|one| (one.k8s_name.to_string(), one.restarts));
        told.collect::<Vec<_>>()
    };
    let after = world.ground.running(well.id, 2).await;
    assert_eq!(known(&after), known(&before), "nothing else is disturbed");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_stays_and_leads_to_nobody_who_is_on_the_way_out() {
    let world = World::begin().await;
    let mut sentinel = world.ground.names.sentinel(1).with_replicas(2);
    sentinel.desired.image = "example/deaf:1".parse().expect("an image");
    world.ground.put_sentinel(&sentinel).await;
    let door = Door::new("sentinel", sentinel.k8s_name.as_str(), 8040);
    let mut services = world.services.clone();
    let known = services.wait_for(|known| known.contains_key(&door)).await.expect("the cluster runs");
    let address = known[&door];
    drop(known);
    let both = eventually("both answer", async || {
        let who = who_answers(address).await?;
        if who.len() == 2 { Ok(who) } else { Err(format!("{who:?}")) }
    })
    .await;

    sentinel = sentinel.with_replicas(1);
    world.ground.put_sentinel(&sentinel).await;
    eventually("one is on its way out", async || match leaving(&world) {
        (2, 1) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let one = eventually("one answers", async || {
        let who = who_answers(address).await?;
        if who.len() == 1 { Ok(who) } else { Err(format!("{who:?}")) }
    })
    .await;
    assert!(one.is_subset(&both), "{one:?} of {both:?}");
    assert_eq!(leaving(&world), (2, 1), "the other one would still answer");
    assert_eq!(world.services.borrow()[&door], address);
    world.end().await;
}

/// How many pods there are, and how many of them are on their way out.
fn leaving(world: &World) -> (usize, usize) {
    let pods = world.local.all(Type::Pod);
    let leaving = pods.iter().filter(|pod| !pod["metadata"]["deletionTimestamp"].is_null()).count();
    (pods.len(), leaving)
}

/// Everybody who answers at an address, asked often enough to meet all; or that somebody does not.
async fn who_answers(address: SocketAddr) -> Result<BTreeSet<String>, String> {
    let mut who = BTreeSet::new();
    for _ in 0..8 {
        let mut answer = String::new();
        let asked = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await?;
            stream.read_to_string(&mut answer).await
        };
        let asked = asked.await;
        let name = answer.split("\"instance\":\"").nth(1).and_then(|rest| rest.split('"').next());
        who.insert(name.ok_or_else(|| format!("nobody: {asked:?} {answer:?}"))?.to_owned());
    }
    Ok(who)
}
