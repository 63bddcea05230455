//! The janitor: removes what has been over for long enough, and takes the tail's numbers into ours.

use std::time::Duration;

use model::time::Millis;
use runtime::{
    clock::{Clock, Timestamp},
    shutdown::Tasks,
};
use store::{Store, Tail, Wake};

use crate::{config::RetentionConfig, metrics::ControlMetrics};

/// How often tombstones are looked for.
const SWEEP: Duration = Duration::from_mins(1);

/// How often the tail's numbers are taken over.
const LOOK: Duration = Duration::from_secs(1);

/// Starts both.
pub(crate) fn start(
    store: &Store,
    tail: &Tail,
    retention: &RetentionConfig,
    clock: &Clock,
    tasks: &Tasks,
    metrics: &ControlMetrics,
) {
    let (store, kept, sweeping) = (store.clone(), retention.clone(), clock.clone());
    let stopping = tasks.token();
    tasks.spawn("janitor", async move {
        stopping.run_until_cancelled(sweep(&store, &kept, &sweeping)).await;
    });
    let (tail, metrics, clock, stopping) = (tail.clone(), metrics.clone(), clock.clone(), tasks.token());
    tasks.spawn("numbers", async move {
        stopping.run_until_cancelled(look(&tail, &metrics, &clock)).await;
    });
}

async fn sweep(store: &Store, retention: &RetentionConfig, clock: &Clock) {
    loop {
        clock.sleep(SWEEP).await;
        if let Err(error) = store.prune(clock.now() - retention.tombstones).await {
            tracing::warn!(%error, "old tombstones could not be removed");
        }
        if let Err(error) = forget_traffic(store, clock.now() - retention.traffic).await {
            tracing::warn!(%error, "old traffic could not be removed");
        }
    }
}

async fn forget_traffic(store: &Store, before: Timestamp) -> store::Result<()> {
    let removed = store.retry(async || {
        let mut write = store.begin().await?;
        write.prune_traffic(Millis(before.millis())).await?;
        write.commit().await
    });
    removed.await.map(drop)
}

async fn look(tail: &Tail, metrics: &ControlMetrics, clock: &Clock) {
    let causes = [(Wake::Commit, "channel"), (Wake::Notify, "notify"), (Wake::Poll, "poll")];
    loop {
        for (wake, cause) in causes {
            let woken = i64::try_from(tail.woken(wake)).unwrap_or(i64::MAX);
            metrics.wakeups.get_or_create(&[("cause", cause)]).set(woken);
        }
        let head = i64::try_from(tail.position().version.get()).unwrap_or(i64::MAX);
        metrics.stream.head_version.set(head);
        clock.sleep(LOOK).await;
    }
}
