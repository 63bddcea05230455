//! The whole system in one process, or in several, for tests: what stands around an agent, and what can go wrong.
//!
//! ```text
//! Ground (store, control plane) ◀──▶ Runner (agent) ◀──▶ Kubernetes (the real API server, its audit log)
//! ```

#![allow(
    clippy::disallowed_methods,
    reason = "these are tests' own means: they read the environment, wait in real time, and spawn"
)]

pub mod audit;
pub mod door;
pub mod faults;
pub mod ground;
pub mod idle;
pub mod kubernetes;
pub mod outage;
pub mod refusing;
pub mod runner;
pub mod secrets;
pub mod sightings;
pub mod simulation;
pub mod sluice;
pub mod snapshot;
pub mod stage;
pub mod steps;
pub mod story;
pub mod told;

use std::{future::Future, time::Duration};

/// Far longer than anything takes; a test that waits for it has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Shows the log of the run, at the levels that `KRANE_TEST_LOG` names, if it does.
pub fn show_log() {
    if let Ok(levels) = std::env::var("KRANE_TEST_LOG") {
        // Only the first of a process can; the others log to the same place.
        let _first = runtime::telemetry::init(
            &levels,
            runtime::telemetry::LogFormat::Auto,
            &runtime::clock::Clock::system(),
        );
    }
}

/// Waits until the question is answered, asking often; after a long time, says what it last heard.
pub async fn eventually<T, F>(what: &str, ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    eventually_within(PATIENCE, what, ask).await
}

/// The same, for what takes as long as this.
pub async fn eventually_within<T, F>(patience: Duration, what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let started = tokio::time::Instant::now();
    loop {
        let last = match ask().await {
            Ok(answer) => return answer,
            Err(last) => last,
        };
        assert!(started.elapsed() < patience, "{what}: {last}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
