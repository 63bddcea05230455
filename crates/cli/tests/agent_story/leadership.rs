//! Two agents of one place, as processes: one acts, and the other does when the first is killed, frozen, or stopped.

use std::time::Duration;

use agent::object::{Ref, Type};
use harness::{
    audit::{Audit, Request},
    eventually, eventually_within,
    ground::{Ground, fixed},
    kubernetes::Kubernetes,
    sluice::Sluice,
    story::SENTINEL,
};
use runtime::clock::Clock;
use serde_json::Value;

use super::{agent_settings, process::Process, write};

/// Eleven seconds for the Lease, and some for all that follows.
const TAKEOVER: Duration = Duration::from_secs(15);

/// How long a leader is frozen.
const FROZEN: Duration = Duration::from_secs(30);

/// One place, and what its API server was asked.
struct Place {
    ground: Ground,
    kubernetes: Kubernetes,
    audit: Audit,
}

impl Place {
    async fn new() -> Place {
        let ground = Ground::lay().await;
        let kubernetes = Kubernetes::connect().await;
        kubernetes.grant(ground.names.namespace.as_str()).await;
        Place { ground, kubernetes, audit: Audit::from_now() }
    }

    /// What an agent is called: no other test's is called the same.
    fn name(&self, agent: &str) -> String {
        format!("{agent}-{}", self.ground.names.place.shard)
    }

    async fn start(&self, agent: &str, more: &[&str]) -> Process {
        let (home, instance) = (self.ground.home.path(), self.name(agent));
        let control = self.ground.url.strip_prefix("http://").expect("a URL").parse().expect("an address");
        let file = write(home, &format!("{agent}.toml"), &agent_settings(&self.ground, &instance, control));
        let arguments = [&["agent", "--config", &file], more].concat();
        Process::start(&arguments, &home.join(format!("{agent}.log")), "admin   http://").await
    }

    /// Starts one that will act, and one that stands by.
    async fn start_two(&self, more: &[&str]) -> (Process, Process) {
        let one = self.start("one", more).await;
        self.is_led_by("one").await;
        let two = self.start("two", &[]).await;
        self.stands_by("two", &self.audit).await;
        (one, two)
    }

    async fn is_led_by(&self, agent: &str) {
        let (namespace, lease) =
            (self.ground.names.namespace.as_str(), format!("krane-{}", self.ground.names.place.shard));
        eventually_within(TAKEOVER, "the lease is taken", async || {
            let holder = self.kubernetes.lease_holder(namespace, &lease).await;
            if holder == Some(Some(self.name(agent))) { Ok(()) } else { Err(format!("{holder:?}")) }
        })
        .await;
    }

    /// Waits until an agent watches the Lease.
    async fn stands_by(&self, agent: &str, since: &Audit) {
        eventually("the standby watches the lease", async || {
            let asked = since.of_agent(&self.name(agent));
            let is_watch = |request: &Request| request.verb == "watch" && request.resource == "leases";
            if asked.iter().any(is_watch) { Ok(()) } else { Err(format!("{} requests", asked.len())) }
        })
        .await;
    }

    /// Wants one more deployment, and waits until the cluster has it; says how long that took.
    async fn wants(&self, number: u128, within: Duration) -> Duration {
        let deployment = self.ground.names.deployment(number);
        let set =
            Ref::new(Type::ReplicaSet, self.ground.names.namespace.as_str(), deployment.k8s_name.as_str());
        self.ground.put_deployment(&deployment, fixed(1)).await;
        let began = Clock::system().instant();
        eventually_within(within, "it is made", async || {
            self.kubernetes.get(&set).await.map(drop).ok_or_else(|| "not there".to_owned())
        })
        .await;
        began.elapsed()
    }

    /// Wants another port in the one policy that there is, and waits until the cluster has it.
    async fn wants_port(&self, port: u32) {
        let mut policy = self.ground.names.policy(1);
        let mut rules: Value = serde_json::from_str(policy.policy.as_str()).expect("it is JSON");
        rules["spec"]["ingress"][0]["toPorts"][0]["ports"][0]["port"] = port.to_string().into();
        policy.policy = rules.to_string().parse().expect("an object");
        self.ground.put_policy(&policy).await;
        let object = Ref::new(Type::CiliumNetworkPolicy, policy.namespace.as_str(), policy.name.as_str());
        eventually_within(TAKEOVER, "the policy is changed", async || {
            let spec =
                self.kubernetes.get(&object).await.map(|live| live["spec"].clone()).unwrap_or_default();
            if spec == rules["spec"] { Ok(()) } else { Err(spec.to_string()) }
        })
        .await;
    }

    /// Who wrote objects, in the order in which it was done.
    fn writers(&self) -> Vec<(String, Request)> {
        let ours =
            |request: &Request| request.is_write() && request.resource != "leases" && request.code < 300;
        let named = |request: Request| {
            let agent = ["one", "two", "three"]
                .into_iter()
                .find(|agent| request.agent == format!("krane-agent/{}", self.name(agent)))?;
            Some((agent.to_owned(), request))
        };
        self.audit.requests().into_iter().filter(ours).filter_map(named).collect()
    }

    /// Everything that each wrote came before everything that the next did.
    fn act_in_turn(&self, agents: &[&str]) {
        let written = self.writers();
        let mut turns: Vec<&str> = written.iter().map(|(agent, _)| agent.as_str()).collect();
        turns.dedup();
        assert_eq!(turns, agents, "they wrote at the same time: {written:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_acts_soon_after_the_leader_was_killed_and_at_once_after_it_was_stopped() {
    let place = Place::new().await;
    let (one, two) = place.start_two(&[]).await;
    place.wants(1, TAKEOVER).await;
    place.act_in_turn(&["one"]);

    let killed = Clock::system().instant();
    one.kill().await;
    place.wants(2, TAKEOVER).await;
    let after_kill = killed.elapsed();
    assert!(after_kill < TAKEOVER, "{after_kill:?}");
    place.act_in_turn(&["one", "two"]);

    let three = place.start("three", &[]).await;
    place.stands_by("three", &place.audit).await;
    two.terminate().await;
    let after_stop = place.wants(3, Duration::from_secs(5)).await;
    place.act_in_turn(&["one", "two", "three"]);
    println!("another acted {after_kill:?} after a kill, and {after_stop:?} after a stop");
    assert!(after_stop < Duration::from_secs(2), "{after_stop:?}");
    three.terminate().await;
    place.ground.end().await;
}

/// Changes keep coming all the while, so that there is always something to write.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_frozen_writes_nothing_when_it_wakes_but_one_refused_renewal() {
    let place = Place::new().await;
    let (one, two) = place.start_two(&[]).await;
    let changing = async {
        for port in 3000.. {
            place.wants_port(port).await;
        }
    };
    let freezing = async {
        eventually("it acts", async || {
            let count = place.writers().len();
            if count > 20 { Ok(()) } else { Err(format!("{count} writes")) }
        })
        .await;
        one.signal("STOP").await;
        let frozen = Clock::system().instant();
        place.is_led_by("two").await;
        let taken = frozen.elapsed();
        tokio::time::sleep(FROZEN.saturating_sub(frozen.elapsed())).await;
        let woken = Audit::from_now();
        one.signal("CONT").await;
        place.stands_by("one", &woken).await;
        // By now it has caught up with every stream, and would have written what it thinks is missing.
        let before = place.writers().len();
        eventually("the other goes on", async || {
            let count = place.writers().len() - before;
            if count > 40 { Ok(()) } else { Err(format!("{count} writes")) }
        })
        .await;
        let written: Vec<Request> =
            woken.of_agent(&place.name("one")).into_iter().filter(Request::is_write).collect();
        println!(
            "the lease was taken after {taken:?}; after it woke, the old leader asked for: {written:#?}"
        );
        assert!(written.len() <= 1, "{written:#?}");
        assert!(written.iter().all(|request| request.resource == "leases" && request.code == 409));
    };
    tokio::select! {
        () = changing => unreachable!("it goes on for ever"),
        () = freezing => {}
    }
    place.act_in_turn(&["one", "two"]);
    two.terminate().await;
    one.terminate().await;
    place.ground.end().await;
}

/// The network keeps what the leader had sent until another leads and has written something newer.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_under_way_when_the_leader_froze_is_undone_by_the_next() {
    let place = Place::new().await;
    let sluice = Sluice::lay(place.ground.home.path()).await;
    let kubeconfig = sluice.kubeconfig.to_str().expect("UTF-8").to_owned();
    let (one, two) = place.start_two(&["--kubeconfig", &kubeconfig]).await;
    let mut sentinel = place.ground.names.sentinel(1);
    let object = Ref::new(Type::Deployment, SENTINEL, sentinel.k8s_name.as_str());
    let mut wants = async |image: &str| {
        sentinel.desired.image = image.parse().expect("an image");
        place.ground.put_sentinel(&sentinel).await;
    };
    let has = async |image: &str, within: Duration| {
        eventually_within(within, "it has the image", async || {
            let live = place.kubernetes.get(&object).await.unwrap_or_default();
            let now = live["spec"]["template"]["spec"]["containers"][0]["image"].clone();
            if now == image { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
    };
    let (first, second, third) = ("fake.local/sample:1", "fake.local/sample:2", "fake.local/sample:3");
    wants(first).await;
    has(first, TAKEOVER).await;
    // The last of what it makes for a sentinel: nothing else is under way.
    let last = Ref::new(Type::PodDisruptionBudget, SENTINEL, &object.name);
    eventually("it is made whole", async || {
        place.kubernetes.get(&last).await.map(drop).ok_or_else(|| "not there".to_owned())
    })
    .await;

    sluice.shut();
    wants(second).await;
    // A renewal of the Lease is a fraction of this; a Deployment is more.
    eventually("its apply is under way", async || {
        if sluice.held() > 3_000 { Ok(()) } else { Err(format!("{} bytes", sluice.held())) }
    })
    .await;
    one.signal("STOP").await;
    has(second, TAKEOVER).await;
    wants(third).await;
    has(third, TAKEOVER).await;

    let opened = Audit::from_now();
    sluice.open();
    let patches = |agent: &str| {
        let of_object = |request: &Request| request.resource == "deployments" && request.is_write();
        let asked = opened.of_agent(&place.name(agent)).into_iter();
        asked.filter(of_object).map(|request| request.code).collect::<Vec<u64>>()
    };
    eventually("the late write arrives", async || {
        if patches("one") == [200] { Ok(()) } else { Err(format!("{:?}", patches("one"))) }
    })
    .await;
    eventually("it is undone", async || {
        if patches("two") == [200] { Ok(()) } else { Err(format!("{:?}", patches("two"))) }
    })
    .await;
    has(third, TAKEOVER).await;

    one.signal("CONT").await;
    place.stands_by("one", &opened).await;
    let is_other = |request: &Request| request.is_write() && request.resource != "deployments";
    let written: Vec<Request> = opened.of_agent(&place.name("one")).into_iter().filter(is_other).collect();
    assert!(written.len() <= 1, "{written:#?}");
    assert!(written.iter().all(|request| request.resource == "leases" && request.code == 409));
    assert_eq!(patches("one"), [200], "it did not try again");
    has(third, TAKEOVER).await;
    two.terminate().await;
    one.terminate().await;
    place.ground.end().await;
}
