//! The numbers of the control plane. Labels are fixed texts, so that no client can make new ones.

use runtime::telemetry::{Counter, Family, Gauge, Metrics};
use store::Taken;

/// One label with its value.
pub type Label = [(&'static str, &'static str); 1];

/// Everything the control plane counts.
#[derive(Clone)]
pub struct ControlMetrics {
    pub stream: StreamMetrics,
    pub auth: AuthMetrics,
    pub report: ReportMetrics,
    pub lease: LeaseMetrics,
    /// What the tail was woken by, taken over from it now and then.
    pub wakeups: Family<Label, Gauge>,
}

/// What streams are given.
#[derive(Clone)]
pub struct StreamMetrics {
    /// Open streams, by the label `kind`.
    pub streams: Family<Label, Gauge>,
    /// Up to where the slowest of those that were served last has everything.
    pub delivered_version: Gauge,
    pub head_version: Gauge,
    pub lag_versions: Gauge,
    pub encoded_bytes: Counter,
    pub sent_bytes: Counter,
    pub states_sent: Counter,
    pub inits: Counter,
    pub resumes: Counter,
}

/// Who was let in, and who was not.
#[derive(Clone)]
pub struct AuthMetrics {
    /// Requests that were refused, by the label `reason`.
    pub refusals: Family<Label, Counter>,
    /// How often a token that we did not know was looked for in the store.
    pub lookups: Counter,
    pub tokens: Gauge,
}

#[derive(Clone)]
pub struct ReportMetrics {
    /// Reports by the labels of `outcome`.
    pub taken: Family<Label, Counter>,
    /// Reports that wait to be written.
    pub queued: Gauge,
    pub writes: Counter,
    pub failures: Counter,
}

#[derive(Clone)]
pub struct LeaseMetrics {
    pub heartbeats: Counter,
    /// Heartbeats that were not taken: of another term, or from a place that is unknown.
    pub refused: Counter,
    pub begun: Counter,
    pub expired: Counter,
    pub restored: Counter,
    pub queued: Gauge,
    pub writes: Counter,
    pub failures: Counter,
}

impl ControlMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            stream: StreamMetrics::new(metrics),
            auth: AuthMetrics::new(metrics),
            report: ReportMetrics::new(metrics),
            lease: LeaseMetrics::new(metrics),
            wakeups: metrics.register("tail_wakeups", "Wake-ups of the tail, by cause", Family::default()),
        }
    }
}

impl StreamMetrics {
    fn new(metrics: &Metrics) -> Self {
        Self {
            streams: metrics.register("streams", "Open streams, by kind", Family::default()),
            delivered_version: metrics
                .gauge("delivered_version", "Version up to which streams were given all"),
            head_version: metrics.gauge("head_version", "Version of the image"),
            lag_versions: metrics.gauge("lag_versions", "Versions between the image and the streams"),
            encoded_bytes: metrics.counter("encoded_bytes", "Bytes of states that were encoded"),
            sent_bytes: metrics.counter("sent_bytes", "Bytes of messages that streams were given"),
            states_sent: metrics.counter("states_sent", "States that streams were given"),
            inits: metrics.counter("stream_inits", "Streams that began with everything"),
            resumes: metrics.counter("stream_resumes", "Streams that went on from a cursor"),
        }
    }
}

impl AuthMetrics {
    fn new(metrics: &Metrics) -> Self {
        Self {
            refusals: metrics.register("auth_refusals", "Requests refused, by reason", Family::default()),
            lookups: metrics.counter("auth_lookups", "Unknown tokens that were looked for in the store"),
            tokens: metrics.gauge("auth_tokens", "Tokens that are known"),
        }
    }
}

impl ReportMetrics {
    fn new(metrics: &Metrics) -> Self {
        Self {
            taken: metrics.register("reports", "Reports of agents, by outcome", Family::default()),
            queued: metrics.gauge("reports_queued", "Reports that wait to be written"),
            writes: metrics.counter("report_writes", "Transactions that wrote reports"),
            failures: metrics.counter("report_failures", "Transactions of reports that failed"),
        }
    }

    pub(crate) fn count(&self, taken: Taken) {
        self.taken.get_or_create(&outcome(taken)).inc();
    }
}

impl LeaseMetrics {
    fn new(metrics: &Metrics) -> Self {
        Self {
            heartbeats: metrics.counter("heartbeats", "Heartbeats that renewed a lease"),
            refused: metrics.counter("heartbeats_refused", "Heartbeats that renewed nothing"),
            begun: metrics.counter("terms_begun", "Terms that agents began"),
            expired: metrics.counter("leases_expired", "Clusters that became unreachable"),
            restored: metrics.counter("leases_restored", "Clusters that became reachable"),
            queued: metrics.gauge("heartbeats_queued", "Heartbeats that wait for the next write"),
            writes: metrics.counter("lease_writes", "Transactions that renewed leases"),
            failures: metrics.counter("lease_failures", "Transactions of leases that failed"),
        }
    }
}

/// What became of a report, as a label.
fn outcome(taken: Taken) -> Label {
    let outcome = match taken {
        Taken::WrongEpoch => "wrong_epoch",
        Taken::Old => "old",
        Taken::Unknown => "unknown",
        Taken::Same => "same",
        Taken::Changed => "changed",
    };
    [("outcome", outcome)]
}
