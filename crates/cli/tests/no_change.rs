//! `no_change_is_skipped` through the wire: the binary, killed and started again, behind a bad network.

#[path = "support/support.rs"]
mod support;

use std::time::Duration;

use support::{
    database::Database,
    history::{Scale, no_change_is_skipped},
};

/// What CI runs: enough for every kind of fault to happen several times, and half a minute.
const SCALE: Scale = Scale {
    transactions: 2000,
    writers: 4,
    replicas: 1,
    rest: Duration::from_millis(80),
    half_open: Duration::from_millis(3500),
    seed: 1,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_skipped_on_sqlite() {
    no_change_is_skipped(&Database::sqlite(), SCALE).await.assert_all_happened();
}

#[cfg(feature = "real")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_skipped_on_postgres() {
    let scale = Scale { replicas: 2, seed: 2, ..SCALE };
    no_change_is_skipped(&Database::postgres(), scale).await.assert_all_happened();
}
