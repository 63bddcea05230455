//! The bell between processes: NOTIFY after commits, many as one, and LISTEN for the others'.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use futures_util::{TryStreamExt, stream};
use runtime::{clock::Clock, limit::Limit};
use tokio::sync::{Notify, watch};
use tokio_postgres::{AsyncMessage, Client, Config};

use super::{tls::Tls, translate};
use crate::{
    Result,
    backend::{POLL, Surroundings, Wake},
};

/// How often the bell rings: hundreds of times a second if the process is busy, not thousands, and for a few commits that
/// follow each other, after each.
const RINGS_PER_SECOND: u32 = 400;
const RINGS_BURST: u32 = 40;

/// How long to wait before a lost connection is made again; the tail's poll covers the gap.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) struct Bell {
    /// Tells this process's listeners of its own commits.
    ours: watch::Sender<()>,
    /// Tells them of other processes'.
    theirs: watch::Receiver<()>,
    /// Keeps one permit, which is all the coalescing there is.
    pull: Arc<Notify>,
    clock: Clock,
}

impl Bell {
    /// Keeps a connection that rings for our commits and hears other processes'.
    pub(super) fn hang(server: Config, tls: Tls, surroundings: &Surroundings) -> Self {
        let pull = Arc::<Notify>::default();
        let (heard, theirs) = watch::channel(());
        let Surroundings { clock, tasks, .. } = surroundings.clone();
        let attendant = Attendant { server, tls, pull: pull.clone(), heard, clock: clock.clone() };
        let token = tasks.token();
        tasks.spawn("bell", async move {
            // It ends with the process's tasks, or with the store that rings it.
            let _stopped = token.run_until_cancelled(attendant.attend()).await;
        });
        Self { ours: watch::Sender::new(()), theirs, pull, clock }
    }

    /// Never part of the transaction: a NOTIFY inside would queue all commits behind one global lock.
    pub(crate) fn ring(&self) {
        self.ours.send_replace(());
        self.pull.notify_one();
    }

    pub(crate) fn listen(&self) -> Ear {
        Ear { ours: self.ours.subscribe(), theirs: self.theirs.clone(), clock: self.clock.clone() }
    }
}

pub(crate) struct Ear {
    ours: watch::Receiver<()>,
    theirs: watch::Receiver<()>,
    clock: Clock,
}

impl Ear {
    pub(crate) async fn wake(&mut self) -> Wake {
        tokio::select! {
            biased;
            Ok(()) = self.ours.changed() => Wake::Commit,
            Ok(()) = self.theirs.changed() => Wake::Notify,
            () = self.clock.sleep(POLL) => Wake::Poll,
        }
    }
}

/// Whoever stands at the bell's connection.
struct Attendant {
    server: Config,
    tls: Tls,
    pull: Arc<Notify>,
    heard: watch::Sender<()>,
    clock: Clock,
}

impl Attendant {
    async fn attend(self) {
        while !self.heard.is_closed() {
            if let Err(error) = self.serve().await {
                tracing::warn!(%error, "the bell's connection was lost; other processes are polled meanwhile");
            }
            self.clock.sleep(RETRY).await;
        }
    }

    async fn serve(&self) -> Result<()> {
        let (client, mut connection) = self.server.connect(self.tls.clone()).await.map_err(translate)?;
        let own = AtomicI32::new(0);
        let listen = async {
            let mut messages = stream::poll_fn(|context| connection.poll_message(context));
            while let Some(message) = messages.try_next().await.map_err(translate)? {
                // Our own ring is old news: the process was told when it committed.
                if let AsyncMessage::Notification(ring) = message
                    && ring.process_id() != own.load(Ordering::Relaxed)
                {
                    self.heard.send_replace(());
                }
            }
            Ok(())
        };
        // The connection moves only while `listen` is polled, so the two run side by side.
        tokio::select! {
            done = listen => done,
            done = self.ring(&client, &own) => done,
            () = self.heard.closed() => Ok(()),
        }
    }

    async fn ring(&self, client: &Client, own: &AtomicI32) -> Result<()> {
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await.map_err(translate)?;
        own.store(row.get(0), Ordering::Relaxed);
        // A NOTIFY takes a transaction id, so its commit would wait for the disk like any other.
        client.batch_execute("SET synchronous_commit TO off; LISTEN krane").await.map_err(translate)?;
        // Whatever was committed before we listened was not heard.
        self.heard.send_replace(());
        let limit = Limit::new(RINGS_PER_SECOND, RINGS_BURST, self.clock.clone());
        loop {
            self.pull.notified().await;
            limit.take().await;
            client.batch_execute("NOTIFY krane").await.map_err(translate)?;
        }
    }
}
