//! The sentinel: the reverse proxy of one environment in one region.
//!
//! ```text
//!  control plane ──routes──▶ table ◀──disk
//!                              │
//!  client ──▶ guard ──▶ headers ─▶ route ─▶ instance ─▶ pool ──▶ instance
//!                              │
//!                      log, metrics, traffic
//! ```

pub mod balance;
pub mod blame;
pub mod headers;
pub mod metrics;
pub mod moment;
pub mod routes;
pub mod tally;
pub mod trust;
