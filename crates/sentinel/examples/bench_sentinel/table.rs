//! A table on disk for a sentinel that knows no control plane.

use std::{net::SocketAddr, path::Path};

use model::{
    deployment::{Protocol, Status as DeploymentStatus},
    id::{DeploymentId, EnvironmentId, HistoryId, SentinelId, WorkspaceId},
    instance::Status,
    route::{Route, Targets},
    token::TokenKind,
    watch::{Cursor, Reader, Version},
};
use runtime::random::Random;
use sentinel::routes::disk::Disk;
use wire::{
    auth::Bearer,
    route::{Routed, Upstream},
};

/// The host that leads to the instances.
pub const HOST: &str = "bench.example.com";

/// Writes settings, and a table with one deployment on these instances: the path of the settings.
pub async fn prepare(home: &Path, instances: &[SocketAddr], more: &str) -> String {
    let environment = EnvironmentId::sample(1);
    let deployment = Routed::Deployment {
        id: DeploymentId::sample(1),
        status: DeploymentStatus::Ready,
        protocol: Protocol::Http1,
        upstreams: (0..).zip(instances).map(|(nth, address)| upstream(nth, *address)).collect(),
    };
    let route = Routed::Route(Route::sample().at(HOST).to(Targets::one(DeploymentId::sample(1))));
    let all = [deployment, route];
    let known = (1..)
        .zip(&all)
        .map(|(version, routed)| (wire::route::key(routed), Version::new(version), Ok(routed.clone())));
    let cursor = Cursor { history: Some(HistoryId::sample(1)), version: Version::new(10) };
    let disk = Disk::new(home, environment, "aws/us-east-1:default".parse().expect("a place"));
    disk.keep(&Reader::restored(cursor, known)).await.expect("the table can be kept");
    let settings = format!(
        "workspace_id = \"{}\"\nenvironment_id = \"{environment}\"\nsentinel_id = \"{}\"\nsnapshot = {:?}\n\
         listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{more}\n[region]\nplatform = \"aws\"\nname = \"us-east-1\"\n\
         [control]\nurls = [\"http://127.0.0.1:9\"]\ntoken = {:?}\n[log]\nlevels = \"error\"\n",
        WorkspaceId::sample(1),
        SentinelId::sample(1),
        home.display().to_string(),
        Bearer::generate(TokenKind::Agent, &Random::system()).reveal(),
    );
    let path = home.join("sentinel.toml");
    std::fs::write(&path, settings).expect("settings can be written");
    path.to_str().expect("it is text").to_owned()
}

fn upstream(nth: usize, address: SocketAddr) -> Upstream {
    Upstream {
        name: format!("pod-{nth}").parse().expect("a name"),
        address: Some(address.to_string().parse().expect("an address")),
        zone: None,
        status: Status::Running,
    }
}
