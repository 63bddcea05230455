//! Keeps the cache what the cluster is: one watch for each type, and now and then a look whether they missed anything.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use runtime::{clock::Clock, shutdown::Tasks};
use tokio::sync::mpsc;

use crate::{
    cluster::{Cluster, Error, Fault, cache::Cache},
    metrics::{AgentMetrics, Label},
    object::Type,
};

/// How long a watch may be behind a list.
const AUDIT_AGAIN: Duration = Duration::from_secs(5);

/// Why the watches could not be established.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{} cannot be watched", ty.plural())]
    Refused {
        ty: Type,
        #[source]
        error: Error,
    },
    #[error("the first lists did not come within {0:?}{last}", last = LastWord(.1.as_ref()))]
    Late(Duration, Option<Error>),
}

struct LastWord<'a>(Option<&'a Error>);

impl std::fmt::Display for LastWord<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |error| write!(f, "; the last that was heard: {error}"))
    }
}

/// Watches every type. Returns when each was listed completely; if one cannot be, nothing is left running.
pub(crate) async fn start<C: Cluster>(
    cluster: &Arc<C>,
    cache: &Cache,
    metrics: &AgentMetrics,
    clock: &Clock,
    patience: Duration,
    tasks: &Tasks,
) -> Result<(), StartError> {
    let (failed, mut failures) = mpsc::channel(Type::ALL.len());
    for ty in Type::ALL {
        let feed = feed(cluster.clone(), ty, cache.clone(), metrics.clone(), failed.clone());
        let stopping = tasks.token();
        tasks.spawn("watch", async move {
            tokio::select! {
                biased;
                () = stopping.cancelled() => {}
                () = feed => {}
            }
        });
    }
    drop(failed);
    let deadline = clock.instant() + patience;
    let mut last = None;
    loop {
        let remaining = deadline.saturating_duration_since(clock.instant());
        tokio::select! {
            biased;
            () = cache.listed(&Type::ALL) => return Ok(()),
            Some((ty, error)) = failures.recv() => match error.fault {
                // What is refused now is refused in a minute too.
                Fault::Forbidden | Fault::NotFound | Fault::Refused => {
                    return Err(StartError::Refused { ty, error });
                }
                Fault::Busy | Fault::Conflict | Fault::Expired | Fault::Unavailable => last = Some(error),
            },
            () = clock.sleep(remaining) => return Err(StartError::Late(patience, last)),
        }
    }
}

async fn feed<C: Cluster>(
    cluster: Arc<C>,
    ty: Type,
    cache: Cache,
    metrics: AgentMetrics,
    failed: mpsc::Sender<(Type, Error)>,
) {
    let label: Label = [("type", ty.kind())];
    let mut seen = cluster.watch(ty);
    while let Some(seen) = seen.next().await {
        match seen {
            Ok(seen) => {
                tracing::trace!(%seen, "seen");
                cache.take(ty, seen);
                metrics.show_objects(ty, cache.count(ty));
            }
            Err(error) => {
                metrics.watch_failures.get_or_create(&label).inc();
                tracing::warn!(ty = ty.kind(), %error, "the watch is opened again");
                // Somebody listens only until the start is over.
                let _unheard = failed.try_send((ty, error));
            }
        }
    }
    unreachable!("a watch goes on for ever");
}

/// Compares lists with what the watches showed, one type after the other.
pub(crate) async fn audit<C: Cluster>(cluster: &C, cache: &Cache, metrics: &AgentMetrics, clock: &Clock) {
    for ty in Type::ALL {
        if let Err(error) = audit_type(cluster, cache, metrics, clock, ty).await {
            tracing::warn!(ty = ty.kind(), %error, "the list could not be compared");
        }
    }
}

async fn audit_type<C: Cluster>(
    cluster: &C,
    cache: &Cache,
    metrics: &AgentMetrics,
    clock: &Clock,
    ty: Type,
) -> Result<(), Error> {
    let compared = cache.compare(ty, &cluster.list(ty).await?);
    if compared.is_empty() {
        return Ok(());
    }
    // A list may be a moment ahead of the watch; what is still so a while later was missed.
    clock.sleep(AUDIT_AGAIN).await;
    let lasting = compared.lasting(&cache.compare(ty, &cluster.list(ty).await?));
    if !lasting.is_empty() {
        metrics.audit_differences.get_or_create(&[("type", ty.kind())]).inc_by(lasting.len() as u64);
        tracing::error!(ty = ty.kind(), ?lasting, "a list shows what the watch did not");
    }
    Ok(())
}
