//! A control plane in this process, one region that reports to it, and the sentinel that is shipped.

use std::{net::SocketAddr, sync::Arc};

use harness::ground::{Ground, SECRET, fixed};
use model::{
    cluster::{Epoch, Sequence},
    deployment::Deployment,
    instance::Instance,
    name::Line,
    route::{Route, Targets},
};
use runtime::{clock::Clock, config::SecretString, random::Random};
use wire::{
    auth::CredentialKeys,
    client::{Control, Dial},
    heartbeat::Heartbeat,
    report::{DeploymentReport, Heading},
    request::Caller,
};

use crate::process::Process;

/// One region, as its agent would tell of it.
pub struct Region {
    pub ground: Ground,
    agent: Control,
    epoch: Option<Epoch>,
    sequence: u64,
}

impl Region {
    pub async fn lay() -> Region {
        let ground = Ground::lay().await;
        let place = ground.names.place.clone();
        let caller = Caller { placement: place, instance: Some("bench".parse().expect("a line")) };
        let url = ground.url.parse().expect("an address");
        let dial = Arc::new(Dial::new(None));
        let agent =
            Control::new(vec![url], &ground.token, caller.clone(), dial, Clock::system(), Random::system());
        let agent = agent.expect("a good address");
        let uid: Line = "bench".parse().expect("a line");
        let begin = Heartbeat {
            caller,
            epoch: None,
            begin: Some(uid),
            agent_version: None,
            history: None,
            kinds: vec![],
            capacity: None,
            instances: None,
        };
        let epoch = agent.heartbeat(&begin).await.expect("a term begins").epoch;
        ground.put_sentinel(&ground.names.sentinel(1)).await;
        Region { ground, agent, epoch, sequence: 0 }
    }

    /// A deployment with one instance that runs at this address.
    pub async fn deploy(&mut self, number: u128, address: SocketAddr) {
        let deployment: Deployment = self.ground.names.deployment(number);
        self.ground.put_deployment(&deployment, fixed(1)).await;
        self.sequence += 1;
        let instance = Instance {
            k8s_name: format!("bench-{number}").parse().expect("a name"),
            address: Some(address.to_string().parse().expect("an address")),
            ..Instance::sample(1)
        };
        let heading = Heading {
            caller: self.agent.caller().clone(),
            epoch: self.epoch,
            sequence: Sequence(self.sequence),
            observed: None,
        };
        let report = DeploymentReport { heading, name: deployment.k8s_name, instances: Some(vec![instance]) };
        self.agent.report_deployment(&report).await.expect("it is told");
    }

    /// A route to a deployment.
    pub fn route(&self, hostname: &str, number: u128) -> Route {
        let targets = Targets::one(self.ground.names.deployment_id(number));
        Route { environment: self.ground.names.environment, ..Route::sample().at(hostname).to(targets) }
    }

    /// Starts the sentinel of the region, and returns when it is ready.
    pub async fn start(&self) -> (Process, SocketAddr) {
        let names = &self.ground.names;
        let sentinel = names.sentinel(1);
        let keys =
            CredentialKeys::parse(vec![(sentinel.desired.key.clone(), SecretString::new(SECRET.to_owned()))]);
        let desired = &sentinel.desired;
        let credentials = keys.expect("a good key").credentials(
            sentinel.id,
            names.environment,
            &desired.key,
            desired.credential,
            desired.gossip,
        );
        let token = credentials.expect("the key is there").token;
        let (region, shard) = names
            .place
            .to_string()
            .split_once(':')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .expect("a place");
        let (platform, name) = region.split_once('/').expect("a region");
        let settings = format!(
            "workspace_id = \"{}\"\nenvironment_id = \"{}\"\nsentinel_id = \"{}\"\nshard = \"{shard}\"\nworkers = 1\n\
             listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[region]\nplatform = \"{platform}\"\nname = \"{name}\"\n\
             [control]\nurls = [{:?}]\ntoken = {:?}\n[log]\nlevels = \"error\"\n",
            names.workspace,
            names.environment,
            sentinel.id,
            self.ground.url,
            token.reveal(),
        );
        let path = self.ground.home.path().join("sentinel.toml");
        std::fs::write(&path, settings).expect("settings can be written");
        Process::krane_listening(&["sentinel", "--config", path.to_str().expect("it is text")]).await
    }
}
