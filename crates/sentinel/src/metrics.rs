//! The numbers of a sentinel. Labels are fixed texts: no request can make new ones.

use std::time::Duration;

use model::traffic::{Blame, StatusClass};
use runtime::telemetry::{Counter, Family, Gauge, Histogram, Metrics};

/// Labels with their values.
type Labels = [(&'static str, &'static str); 2];

/// What is counted of the routing table.
#[derive(Clone, Debug)]
pub struct RouteMetrics {
    pub is_connected: Gauge,
    /// 1 from a start with what was kept until the control plane is heard.
    pub is_from_disk: Gauge,
    pub routes: Gauge,
    pub version: Gauge,
    pub lost: Counter,
    pub unreadable: Counter,
    pub out_of_step: Counter,
    pub kept: Counter,
    pub keep_failures: Counter,
}

/// What is counted of requests. The handles are made once: a request looks up no label.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    /// By blame and class.
    answers: [[Counter; 5]; Blame::ALL.len()],
    pub seconds: Histogram,
    pub in_flight: Gauge,
    pub connections: Gauge,
    pub connections_refused: Counter,
    pub retries: Counter,
    pub retries_refused: Counter,
    pub ejections: Counter,
    pub upstream_connections: Counter,
    pub log_dropped: Counter,
}

/// From a quarter of a millisecond to a minute, each four times the one before.
const SECONDS: [f64; 10] = [0.000_25, 0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384, 65.536];

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl RouteMetrics {
    pub fn new(metrics: &Metrics) -> RouteMetrics {
        RouteMetrics {
            is_connected: metrics.gauge("sentinel_routes_connected", "Whether the control plane is heard"),
            is_from_disk: metrics
                .gauge("sentinel_routes_from_disk", "Whether the routing table is the one kept on disk"),
            routes: metrics.gauge("sentinel_routes", "Hostnames in the routing table"),
            version: metrics.gauge("sentinel_routes_version", "The version of the routing table"),
            lost: metrics.counter("sentinel_routes_lost", "Streams of routes that ended"),
            unreadable: metrics.counter("sentinel_routes_unreadable", "Messages that name nothing we know"),
            out_of_step: metrics.counter("sentinel_routes_out_of_step", "Differences found by a census"),
            kept: metrics.counter("sentinel_routes_kept", "Tables written to disk"),
            keep_failures: metrics
                .counter("sentinel_routes_keep_failures", "Tables that could not be written"),
        }
    }
}

impl RouteMetrics {
    /// The control plane has said something: what is in force is what it says.
    pub fn heard(&self) {
        self.is_connected.set(1);
        self.is_from_disk.set(0);
    }
}

impl RequestMetrics {
    pub fn new(metrics: &Metrics) -> RequestMetrics {
        let family: Family<Labels, Counter> =
            metrics.register("sentinel_requests", "Requests answered", Family::default());
        let answers = std::array::from_fn(|blame| {
            std::array::from_fn(|class| {
                let labels = [("blame", Blame::ALL[blame].as_str()), ("class", CLASSES[class])];
                family.get_or_create(&labels).clone()
            })
        });
        RequestMetrics {
            answers,
            seconds: metrics.histogram("sentinel_request_seconds", "What answers took", SECONDS),
            in_flight: metrics.gauge("sentinel_requests_in_flight", "Requests under way"),
            connections: metrics.gauge("sentinel_connections", "Connections of clients"),
            connections_refused: metrics
                .counter("sentinel_connections_refused", "Connections closed because there were too many"),
            retries: metrics.counter("sentinel_retries", "Requests tried at another instance"),
            retries_refused: metrics.counter("sentinel_retries_refused", "Retries that the budget forbade"),
            ejections: metrics.counter("sentinel_ejections", "Instances left alone for their failures"),
            upstream_connections: metrics
                .counter("sentinel_upstream_connections", "Connections to instances"),
            log_dropped: metrics.counter("sentinel_log_dropped", "Records that were not written"),
        }
    }

    pub fn answered(&self, blame: Blame, status: u16, took: Duration) {
        let class = StatusClass::new(u32::from(status / 100)).map_or(4, |class| usize::from(class.get()) - 1);
        self.answers[blame as usize][class].inc();
        self.seconds.observe(took.as_secs_f64());
    }
}
