//! The janitor: removes what has been over for long enough, and takes the tail's numbers into ours.

use std::time::Duration;

use model::time::Millis;
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use store::{Cause, Store, Tail, Wake};

use crate::{config::RetentionConfig, metrics::ControlMetrics};

/// How often tombstones are looked for.
const SWEEP: Duration = Duration::from_mins(1);

/// How many rows go in one commit.
const BATCH: u32 = 500;

/// How often the tail's numbers are taken over.
const LOOK: Duration = Duration::from_secs(1);

/// Starts both.
pub(crate) fn start(
    store: &Store,
    tail: &Tail,
    retention: &RetentionConfig,
    (clock, random): (&Clock, &Random),
    tasks: &Tasks,
    metrics: &ControlMetrics,
) {
    let (store, kept, sweeping) = (store.clone(), retention.clone(), clock.clone());
    let holder = format!("{:016x}", random.u64());
    let stopping = tasks.token();
    tasks.spawn("janitor", async move {
        stopping.run_until_cancelled(sweep(&store, &kept, &sweeping, &holder)).await;
    });
    let (tail, metrics, clock, stopping) = (tail.clone(), metrics.clone(), clock.clone(), tasks.token());
    tasks.spawn("numbers", async move {
        stopping.run_until_cancelled(look(&tail, &metrics, &clock)).await;
    });
}

async fn sweep(store: &Store, retention: &RetentionConfig, clock: &Clock, holder: &str) {
    loop {
        clock.sleep(SWEEP).await;
        let swept = async {
            // One replica at a time: what two remove at once they only wait for each other with.
            if take_broom(store, holder).await? {
                sweep_once(store, retention, clock).await?;
            }
            Ok::<(), store::Error>(())
        };
        if let Err(error) = swept.await {
            tracing::warn!(%error, "what is over could not be removed; it will be tried again");
        }
    }
}

async fn take_broom(store: &Store, holder: &str) -> store::Result<bool> {
    let taken = store.retry(async || {
        let mut write = store.begin().await?;
        let taken = write.take_broom(holder, SWEEP * 3 / 2).await?;
        write.commit().await?;
        Ok(taken)
    });
    taken.await
}

/// Each in batches, so that nobody waits long for a sweep.
async fn sweep_once(store: &Store, retention: &RetentionConfig, clock: &Clock) -> store::Result<()> {
    let before = |age: Duration| Millis((clock.now() - age).millis());
    store.prune(clock.now() - retention.tombstones).await?;
    forget_traffic(store, before(retention.traffic)).await?;
    while store.prune_events(before(retention.events), BATCH).await? == BATCH as usize {}
    while store.prune_once_keys(Millis(clock.now().millis()), BATCH).await? == BATCH as usize {}
    while forget_workflows(store, before(retention.workflows)).await? == BATCH as usize {}
    while forget_tokens(store, before(retention.tokens), before(Duration::ZERO)).await? == BATCH as usize {}
    Ok(())
}

async fn forget_traffic(store: &Store, before: Millis) -> store::Result<()> {
    let removed = store.retry(async || {
        let mut write = store.begin().await?;
        write.prune_traffic(before).await?;
        write.commit().await
    });
    removed.await.map(drop)
}

async fn forget_workflows(store: &Store, before: Millis) -> store::Result<usize> {
    let removed = store.retry(async || {
        let mut write = store.begin().await?;
        let removed = write.prune_workflows(before, BATCH).await?;
        write.commit().await?;
        Ok(removed)
    });
    removed.await
}

/// Tokens that have opened nothing for long enough; whoever watches is told, as of everything that goes.
async fn forget_tokens(store: &Store, before: Millis, now: Millis) -> store::Result<usize> {
    let over = store.tokens_over(before, BATCH).await?;
    let removed = store.retry(async || {
        let mut write = store.begin().await?;
        for id in &over {
            write.remove_token(*id, &Cause { change: None, at: now }).await?;
        }
        write.commit().await
    });
    removed.await?;
    Ok(over.len())
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
