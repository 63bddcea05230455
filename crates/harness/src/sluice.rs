//! The way from an agent to the API server, on which what was sent can be held, as a slow network would.
//!
//! ```text
//! agent ──▶ Sluice ──open──▶ API server
//!              └────shut──▶ kept, in order, until it is opened
//! ```

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

use crate::kubernetes::{AGENT, kubeconfig};

/// Carries bytes until it is dropped. Answers are never held.
pub struct Sluice {
    /// An agent that reads this goes through here.
    pub kubeconfig: PathBuf,
    is_shut: watch::Sender<bool>,
    held: Arc<AtomicUsize>,
    _carrying: JoinSet<()>,
}

impl Sluice {
    /// Before the API server that the tests' agents know, for an agent whose kubeconfig will be in this directory.
    pub async fn lay(directory: &Path) -> Sluice {
        let text = std::fs::read_to_string(kubeconfig(AGENT)).expect("a kubeconfig");
        let server = text.lines().find_map(|line| line.trim().strip_prefix("server: https://"));
        let server = server.expect("it names a server").to_owned();
        let to: SocketAddr = server.parse().expect("by its address");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let here = listener.local_addr().expect("it is bound").to_string();
        let kubeconfig = directory.join("sluice.kubeconfig");
        std::fs::write(&kubeconfig, text.replace(&server, &here)).expect("it is written");
        let (is_shut, held) = (watch::Sender::new(false), Arc::<AtomicUsize>::default());
        let mut carrying = JoinSet::new();
        carrying.spawn(listen(listener, to, is_shut.subscribe(), held.clone()));
        Sluice { kubeconfig, is_shut, held, _carrying: carrying }
    }

    pub fn shut(&self) {
        self.is_shut.send_replace(true);
    }

    pub fn open(&self) {
        self.is_shut.send_replace(false);
    }

    /// How many bytes were ever held.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

async fn listen(
    listener: TcpListener,
    to: SocketAddr,
    is_shut: watch::Receiver<bool>,
    held: Arc<AtomicUsize>,
) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (is_shut, held) = (is_shut.clone(), held.clone());
        connections.spawn(async move {
            // A server that is not there refuses; the client sees its connection closed.
            let Ok(server) = TcpStream::connect(to).await else { return };
            let nodelay = [client.set_nodelay(true), server.set_nodelay(true)];
            if nodelay.iter().any(Result::is_err) {
                return;
            }
            let ((from, mut back), (mut answers, on)) = (client.into_split(), server.into_split());
            tokio::select! {
                () = send(from, on, is_shut, held) => {}
                _ended = copy(&mut answers, &mut back) => {}
            }
        });
    }
}

/// Hands on what the agent sends, or keeps it; what it sent counts even if it says no more.
async fn send(
    mut from: OwnedReadHalf,
    mut on: OwnedWriteHalf,
    mut is_shut: watch::Receiver<bool>,
    held: Arc<AtomicUsize>,
) {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let shut = *is_shut.borrow_and_update();
        if !shut && !kept.is_empty() {
            let kept = std::mem::take(&mut kept);
            if on.write_all(&kept).await.is_err() {
                return;
            }
        }
        tokio::select! {
            biased;
            changed = is_shut.changed() => if changed.is_err() { return },
            read = from.read(&mut buffer) => match read {
                Ok(count) if count > 0 => {
                    kept.extend_from_slice(&buffer[..count]);
                    held.fetch_add(if shut { count } else { 0 }, Ordering::Relaxed);
                }
                Ok(_) | Err(_) if shut => {
                    // It has gone; what it had sent arrives all the same.
                    let opened = is_shut.wait_for(|shut| !*shut).await.is_ok();
                    if opened && on.write_all(&kept).await.is_ok() {
                        std::future::pending::<()>().await;
                    }
                    return;
                }
                Ok(_) | Err(_) => return,
            },
        }
    }
}
