//! The two services over the wire, and what their handlers share.
//!
//! ```text
//! auth ─▶ cluster, routing ─┬─▶ watch ─▶ encode         from the tail's image
//!                           └─▶ report, heartbeat       to the store, many in one write
//! ```

pub(crate) mod cluster;
pub(crate) mod encode;
pub mod heartbeat;
pub mod report;
pub(crate) mod routing;
pub(crate) mod watch;

use std::sync::Arc;

use runtime::{clock::Clock, shutdown::Tasks};
use store::{Store, Tail};
use wire::auth::CredentialKeys;

use self::{heartbeat::Hearts, report::Reports};
use crate::{auth::Gate, config::ControlConfig, metrics::ControlMetrics};

/// What every handler may use. Handlers hold it in an `Arc`.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) tail: Tail,
    pub(crate) gate: Gate,
    pub(crate) reports: Reports,
    pub(crate) hearts: Hearts,
    pub(crate) metrics: ControlMetrics,
    pub(crate) config: Arc<ControlConfig>,
    /// What the credentials of sentinels are derived with.
    pub(crate) keys: Arc<CredentialKeys>,
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
}
