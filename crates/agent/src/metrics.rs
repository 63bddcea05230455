//! The numbers of the agent. Labels are fixed texts: no object can make new ones.

use model::kind::Kind;
use runtime::{
    breaker::BreakerState,
    telemetry::{Counter, Family, Gauge, Metrics},
};
use wire::heartbeat::KindStatus;

use crate::object::Type;

/// One label with its value.
pub type Label = [(&'static str, &'static str); 1];

/// Everything the agent counts.
#[derive(Clone)]
pub struct AgentMetrics {
    kinds: Families,
    /// Whether the Lease is ours and a term was begun.
    pub is_acting: Gauge,
    pub lease: LeaseMetrics,
    /// Objects in the cache, by the label `type`.
    pub objects: Family<Label, Gauge>,
    /// What a list showed that the watches had not, by the label `type`. It should stay at zero.
    pub audit_differences: Family<Label, Counter>,
    /// Watches that had to be opened again, by the label `type`.
    pub watch_failures: Family<Label, Counter>,
}

/// How often the Lease changed hands, as this agent saw it.
#[derive(Clone, Default)]
pub struct LeaseMetrics {
    pub taken: Counter,
    /// Another had it, or was quicker. One that is given up is not lost.
    pub lost: Counter,
}

/// The same numbers for each kind, by the label `kind`.
#[derive(Clone)]
struct Families {
    writes: Family<Label, Counter>,
    deletes: Family<Label, Counter>,
    failures: Family<Label, Counter>,
    drift_corrected: Family<Label, Counter>,
    resyncs: Family<Label, Counter>,
    resync_corrected: Family<Label, Counter>,
    reports: Family<Label, Counter>,
    reports_refused: Family<Label, Counter>,
    reports_failed: Family<Label, Counter>,
    restarts: Family<Label, Counter>,
    held: Family<Label, Gauge>,
    failing: Family<Label, Gauge>,
    orphans: Family<Label, Gauge>,
    held_back: Family<Label, Gauge>,
    cursor: Family<Label, Gauge>,
    breaker: Family<Label, Gauge>,
    applies_waiting: Family<Label, Gauge>,
    reports_waiting: Family<Label, Gauge>,
}

/// The numbers of one kind.
#[derive(Clone)]
pub struct KindMetrics {
    /// Applies sent to the cluster.
    pub writes: Counter,
    pub deletes: Counter,
    pub failures: Counter,
    pub drift_corrected: Counter,
    /// How often everything was looked at again.
    pub resyncs: Counter,
    /// What nothing but that had found. It should stay at zero.
    pub resync_corrected: Counter,
    pub reports: Counter,
    pub reports_refused: Counter,
    pub reports_failed: Counter,
    /// How often the loop panicked and began again.
    pub restarts: Counter,
    held: Gauge,
    failing: Gauge,
    orphans: Gauge,
    held_back: Gauge,
    cursor: Gauge,
    breaker: Gauge,
    applies_waiting: Gauge,
    reports_waiting: Gauge,
}

impl AgentMetrics {
    pub fn new(metrics: &Metrics) -> AgentMetrics {
        AgentMetrics {
            kinds: Families::new(metrics),
            is_acting: metrics.gauge("acting", "Whether this agent holds the lease and has begun a term"),
            lease: LeaseMetrics {
                taken: metrics.counter("lease_taken", "How often this agent took the lease"),
                lost: metrics.counter("lease_lost", "How often this agent found its lease to be another's"),
            },
            objects: metrics.register(
                "objects",
                "Objects of ours in the cluster, by type",
                Family::default(),
            ),
            audit_differences: metrics.register(
                "audit_differences",
                "What a list showed that the watches had not, by type",
                Family::default(),
            ),
            watch_failures: metrics.register(
                "watch_failures",
                "Watches that had to be opened again, by type",
                Family::default(),
            ),
        }
    }

    pub fn of(&self, kind: Kind) -> KindMetrics {
        let label: Label = [("kind", kind.as_str())];
        let Families { writes, deletes, failures, drift_corrected, resyncs, .. } = &self.kinds;
        let Families { resync_corrected, reports, reports_refused, reports_failed, restarts, .. } =
            &self.kinds;
        let Families { held, failing, orphans, held_back, cursor, breaker, .. } = &self.kinds;
        let Families { applies_waiting, reports_waiting, .. } = &self.kinds;
        let counter = |family: &Family<Label, Counter>| family.get_or_create(&label).clone();
        let gauge = |family: &Family<Label, Gauge>| family.get_or_create(&label).clone();
        KindMetrics {
            writes: counter(writes),
            deletes: counter(deletes),
            failures: counter(failures),
            drift_corrected: counter(drift_corrected),
            resyncs: counter(resyncs),
            resync_corrected: counter(resync_corrected),
            reports: counter(reports),
            reports_refused: counter(reports_refused),
            reports_failed: counter(reports_failed),
            restarts: counter(restarts),
            held: gauge(held),
            failing: gauge(failing),
            orphans: gauge(orphans),
            held_back: gauge(held_back),
            cursor: gauge(cursor),
            breaker: gauge(breaker),
            applies_waiting: gauge(applies_waiting),
            reports_waiting: gauge(reports_waiting),
        }
    }

    pub fn show_objects(&self, ty: Type, count: usize) {
        self.objects.get_or_create(&[("type", ty.kind())]).set(whole(count as u64));
    }
}

impl KindMetrics {
    /// Shows where the loop stands.
    pub(crate) fn show(&self, status: &KindStatus, applies: usize, reports: usize) {
        let KindStatus { counts, cursor, breaker, held_back } = status;
        self.held.set(whole(counts.held));
        self.failing.set(whole(counts.failing));
        self.orphans.set(whole(counts.orphans));
        self.held_back.set(whole(held_back.map_or(0, |held_back| held_back.count)));
        self.cursor.set(whole(cursor.get()));
        self.breaker.set(match breaker {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        });
        self.applies_waiting.set(whole(applies as u64));
        self.reports_waiting.set(whole(reports as u64));
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Families {
    fn new(metrics: &Metrics) -> Families {
        let counter = |name: &str, help: &str| metrics.register(name, help, Family::default());
        let gauge = |name: &str, help: &str| metrics.register(name, help, Family::default());
        Families {
            writes: counter("writes", "Objects applied to the cluster, by kind"),
            deletes: counter("deletes", "Objects deleted from the cluster, by kind"),
            failures: counter("apply_failures", "Attempts to apply that failed, by kind"),
            drift_corrected: counter("drift_corrected", "Objects that somebody had changed, by kind"),
            resyncs: counter("resyncs", "How often everything was looked at again, by kind"),
            resync_corrected: counter("resync_corrected", "What only the resync had found, by kind"),
            reports: counter("reports", "Reports that were taken, by kind"),
            reports_refused: counter("reports_refused", "Reports that were refused for good, by kind"),
            reports_failed: counter("reports_failed", "Reports that have to be made again, by kind"),
            restarts: counter("loop_restarts", "How often the loop had to begin again, by kind"),
            held: gauge("held", "Things that are wanted here, by kind"),
            failing: gauge("failing", "Things that cannot be applied, by kind"),
            orphans: gauge("orphans", "Things in the cluster that nobody accounts for, by kind"),
            held_back: gauge("held_back", "Deletions that wait for an operator, by kind"),
            cursor: gauge("cursor", "The version up to which everything is held, by kind"),
            breaker: gauge("breaker", "Calls to the control plane: 0 made, 1 tried, 2 not made, by kind"),
            applies_waiting: gauge("applies_waiting", "Things that wait to be applied, by kind"),
            reports_waiting: gauge("reports_waiting", "Things that wait to be reported, by kind"),
        }
    }
}
