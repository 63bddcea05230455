//! A whole local cluster on this machine: its objects, its pods as processes, and the listeners of its Services.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use model::name::{Line, Shard};
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use tokio::sync::watch;

use super::{
    LocalConfig, OpenError, Parts, Processes, failed,
    ports::Ports,
    services::{Addresses, Door, Services, Wanted},
};
use crate::{
    cluster::local::{Endpoints, Local, LocalSettings},
    object::Ref,
};

/// A cluster that runs.
pub struct Machine {
    pub local: Local,
    /// Where its Services are.
    pub services: watch::Receiver<Arc<Addresses>>,
}

/// What it needs of the process that it lives in.
pub struct Surroundings {
    /// The binary that knows `local-run`, and stands for images of ours.
    pub krane: PathBuf,
    /// Shared by all clusters of this machine.
    pub ports: Ports,
    pub clock: Clock,
    pub random: Random,
    /// Asked to stop, they end every pod.
    pub tasks: Tasks,
}

impl Machine {
    /// Opens the cluster of a directory, and begins to run it. `namespace` is the agent's own.
    pub fn open(
        config: LocalConfig,
        namespace: &str,
        shard: Shard,
        around: Surroundings,
    ) -> Result<Machine, OpenError> {
        let Surroundings { krane, ports, clock, random, tasks } = around;
        let (directory, zone) = (config.directory.clone(), config.zone.clone());
        let parts = Parts { krane, ports: ports.clone(), clock: clock.clone(), tasks: tasks.clone() };
        let node = Processes::open(config, parts)?;
        let settings = LocalSettings {
            uid: Some(uid(&directory, &random)?),
            zone: Some(zone).filter(|zone| !zone.is_empty()),
            namespaces: vec![namespace.to_owned()],
            ..LocalSettings::default()
        };
        let local = Local::new(settings, node, shard, clock, random);
        let mut listeners = Services::new(&directory, ports, tasks.clone());
        let services = listeners.addresses();
        let (mut endpoints, stopping) = (local.endpoints(), tasks.clone());
        tasks.spawn("services", async move {
            loop {
                let wanted = wanted(&endpoints.borrow_and_update());
                listeners.set(&wanted).await;
                tokio::select! {
                    biased;
                    () = stopping.stopping() => return,
                    changed = endpoints.changed() => if changed.is_err() { return },
                }
            }
        });
        let (controllers, stopping) = (local.clone(), tasks.clone());
        tasks.spawn("local", async move {
            tokio::select! {
                biased;
                () = stopping.stopping() => {}
                () = controllers.run() => {}
            }
        });
        Ok(Machine { local, services })
    }
}

/// What tells this cluster from every other, also after a restart: made up once, and written down.
fn uid(directory: &Path, random: &Random) -> Result<Line, OpenError> {
    let path = directory.join("uid");
    let known = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed("read", &path)(error)),
    };
    if let Some(uid) = known {
        return Ok(uid);
    }
    let text = format!("local-{:016x}{:016x}", random.u64(), random.u64());
    fs::write(&path, &text).map_err(failed("write", &path))?;
    Ok(text.parse().expect("a short line"))
}

/// A listener for each port of a Service. Headless ones have none: they are their pods.
fn wanted(endpoints: &BTreeMap<Ref, Endpoints>) -> Wanted {
    let led = endpoints.iter().filter(|(_, endpoints)| !endpoints.is_headless);
    let doors = led.flat_map(|(service, endpoints)| {
        let ports = endpoints.ports.iter().filter(|port| port.protocol == "TCP");
        ports.map(|port| (Door::new(&service.namespace, &service.name, port.port), port.targets.clone()))
    });
    doors.collect()
}
