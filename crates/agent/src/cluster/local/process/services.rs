//! Services of a local cluster: for each a listener on loopback that stays, and leads to whichever pods are ready.

use std::{
    collections::BTreeMap,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use runtime::{serve::serve, shutdown::Tasks};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};

use super::ports::Ports;

/// One port of a Service: `namespace/name:port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Door(String);

/// Where each door is.
pub type Addresses = BTreeMap<Door, SocketAddr>;

/// The pods that are behind each door.
pub type Wanted = BTreeMap<Door, Vec<SocketAddr>>;

/// The listeners of one cluster.
pub struct Services {
    /// Where it is written down which door has which port, so that it has it again after a restart.
    file: PathBuf,
    remembered: BTreeMap<Door, u16>,
    open: BTreeMap<Door, Open>,
    addresses: watch::Sender<Arc<Addresses>>,
    ports: Ports,
    tasks: Tasks,
}

/// A listener. Its tasks end with it.
struct Open {
    port: u16,
    targets: watch::Sender<Vec<SocketAddr>>,
    tasks: Tasks,
}

/// Connections at a time through one door.
const CONNECTIONS_MAX: usize = 1024;

/// How long a pod may take to accept.
const CONNECT: Duration = Duration::from_secs(2);

impl Door {
    pub fn new(namespace: &str, service: &str, port: u16) -> Door {
        Door(format!("{namespace}/{service}:{port}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Services {
    /// Keeps the ports that doors had before for them, as far as nobody else has them.
    pub fn new(directory: &Path, ports: Ports, tasks: Tasks) -> Services {
        let file = directory.join("services.json");
        let mut remembered = read(&file);
        remembered.retain(|_, port| ports.claim(*port));
        Services {
            file,
            remembered,
            open: BTreeMap::new(),
            addresses: watch::Sender::default(),
            ports,
            tasks,
        }
    }

    pub fn addresses(&self) -> watch::Receiver<Arc<Addresses>> {
        self.addresses.subscribe()
    }

    /// Opens, leads and shuts doors as it is wanted now. One that cannot be opened is tried again the next time.
    pub async fn set(&mut self, wanted: &Wanted) {
        let gone: Vec<Door> = self.open.keys().filter(|door| !wanted.contains_key(door)).cloned().collect();
        for door in gone {
            self.shut(&door);
        }
        for (door, targets) in wanted {
            if let Some(open) = self.open.get(door) {
                open.targets.send_if_modified(|there| {
                    let is_other = there != targets;
                    there.clone_from(targets);
                    is_other
                });
            } else if let Err(error) = self.open_door(door, targets).await {
                tracing::warn!(door = door.as_str(), %error, "a Service has no listener");
            }
        }
        self.publish();
    }

    async fn open_door(&mut self, door: &Door, targets: &[SocketAddr]) -> io::Result<()> {
        let (port, listener) = self.listen(door).await?;
        let (sender, receiver) = watch::channel(targets.to_vec());
        let tasks = self.tasks.child();
        let (serving, next) = (tasks.clone(), Arc::new(AtomicUsize::new(0)));
        tasks.spawn("service", async move {
            let tasks = serving.clone();
            let lead = move |client, _| {
                let order = in_turn(&receiver.borrow(), next.fetch_add(1, Ordering::Relaxed));
                let tasks = tasks.clone();
                async move {
                    tokio::select! {
                        biased;
                        () = tasks.stopping() => {}
                        () = splice(client, order) => {}
                    }
                }
            };
            serve("service", listener, CONNECTIONS_MAX, &serving, lead).await;
        });
        self.open.insert(door.clone(), Open { port, targets: sender, tasks });
        self.remembered.insert(door.clone(), port);
        self.write_down();
        Ok(())
    }

    /// Takes the port that the door had before, or another.
    async fn listen(&mut self, door: &Door) -> io::Result<(u16, TcpListener)> {
        if let Some(port) = self.remembered.remove(door) {
            match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
                Ok(listener) => return Ok((port, listener)),
                Err(error) => {
                    tracing::info!(door = door.as_str(), port, %error, "a Service gets another port");
                    self.ports.give_back(port);
                }
            }
        }
        let port = self.ports.take().ok_or_else(|| io::Error::other("no port is free"))?;
        self.ports.release(port);
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        bound.map(|listener| (port, listener)).inspect_err(|_| self.ports.give_back(port))
    }

    fn shut(&mut self, door: &Door) {
        self.remembered.remove(door);
        if let Some(Open { port, tasks, .. }) = self.open.remove(door) {
            // Whoever is connected is let go, and nobody is waited for.
            tasks.abort_now();
            self.ports.give_back(port);
            self.write_down();
        }
    }

    fn publish(&self) {
        let address = |open: &Open| SocketAddr::from((Ipv4Addr::LOCALHOST, open.port));
        let addresses: Addresses =
            self.open.iter().map(|(door, open)| (door.clone(), address(open))).collect();
        self.addresses.send_if_modified(|there| {
            let is_other = **there != addresses;
            *there = Arc::new(addresses);
            is_other
        });
    }

    fn write_down(&self) {
        let ports: BTreeMap<&str, u16> =
            self.remembered.iter().map(|(door, port)| (door.as_str(), *port)).collect();
        let text = serde_json::to_string(&ports).expect("names and numbers");
        let beside = self.file.with_extension("new");
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &self.file));
        if let Err(error) = written {
            tracing::warn!(file = %self.file.display(), %error, "ports of Services may be others after a restart");
        }
    }
}

/// The ports of an earlier run; a file that is not there, or not ours, remembers nothing.
fn read(file: &Path) -> BTreeMap<Door, u16> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let ports: BTreeMap<String, u16> = serde_json::from_str(&text).unwrap_or_default();
    ports.into_iter().map(|(door, port)| (Door(door), port)).collect()
}

/// The pods in the order in which they are tried: each request begins with the next.
fn in_turn(targets: &[SocketAddr], turn: usize) -> Vec<SocketAddr> {
    let mut order = targets.to_vec();
    if let Some(first) = turn.checked_rem(order.len()) {
        order.rotate_left(first);
    }
    order
}

/// Leads a connection to the first pod that takes it, until either side has said all. Without one it is closed.
async fn splice(mut client: TcpStream, targets: Vec<SocketAddr>) {
    for target in targets {
        if let Ok(Ok(mut server)) = timeout(CONNECT, TcpStream::connect(target)).await {
            // Small answers shall not wait for more. Whoever breaks off has his reasons.
            let _nodelay = (client.set_nodelay(true), server.set_nodelay(true));
            let _broken = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests;
