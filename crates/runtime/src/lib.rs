//! What every process is: time, chance, tasks, readiness, settings, telemetry, servers, and no noun of ours.
//!
//! ```text
//!   config ──▶ the process ──▶ http, tls ──▶ serve ──▶ connections
//!                  │
//!     clock, random ──▶ backoff, breaker, limit (the only doors to time and chance)
//!                  │
//!     shutdown ◀───┴───▶ ready, telemetry ──▶ admin
//! ```

pub mod admin;
pub mod backoff;
pub mod breaker;
pub mod clock;
pub mod config;
pub mod http;
pub mod limit;
pub mod random;
pub mod ready;
pub mod serve;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod watch;
