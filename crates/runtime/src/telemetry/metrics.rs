//! The numbers of a process, all under one prefix, in the `OpenMetrics` text format.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::text;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::family::Family;
pub use prometheus_client::metrics::gauge::Gauge;
pub use prometheus_client::metrics::histogram::Histogram;

const PREFIX: &str = "krane";

/// The metrics of one process. Keep the handles that registration returns: they cost next to nothing to use.
#[derive(Clone)]
pub struct Metrics(Arc<Mutex<Registered>>);

/// What was built, as the `krane_build_info` metric tells it.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    pub role: &'static str,
    pub version: &'static str,
    pub revision: &'static str,
}

struct Registered {
    registry: Registry,
    names: BTreeSet<String>,
}

impl Metrics {
    pub fn new(build: Build) -> Self {
        let registry = Registry::with_prefix(PREFIX);
        let metrics = Self(Arc::new(Mutex::new(Registered { registry, names: BTreeSet::new() })));
        let labels = vec![("role", build.role), ("version", build.version), ("revision", build.revision)];
        metrics.add("build", "What runs here", Info::new(labels));
        metrics
    }

    /// A number that only grows. Its name is shown with `_total` behind it.
    pub fn counter(&self, name: &str, help: &str) -> Counter {
        self.register(name, help, Counter::default())
    }

    /// A number that goes up and down.
    pub fn gauge(&self, name: &str, help: &str) -> Gauge {
        self.register(name, help, Gauge::default())
    }

    /// A distribution, counted in buckets up to each of the given bounds.
    pub fn histogram(&self, name: &str, help: &str, buckets: impl IntoIterator<Item = f64>) -> Histogram {
        self.register(name, help, Histogram::new(buckets))
    }

    /// Any other metric, such as a `Family` with labels, and returns it.
    ///
    /// # Panics
    /// If the name is taken: a scraper would refuse the whole page.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.add(name, help, metric.clone());
        metric
    }

    /// The whole page, as a scraper reads it.
    pub fn encode(&self) -> String {
        let mut page = String::new();
        text::encode(&mut page, &self.registered().registry).expect("writing to a string cannot fail");
        page
    }

    fn add(&self, name: &str, help: &str, metric: impl Metric) {
        let mut registered = self.registered();
        let is_new = registered.names.insert(name.to_owned());
        assert!(is_new, "there is already a metric {name:?}");
        registered.registry.register(name, help, metric);
    }

    fn registered(&self) -> MutexGuard<'_, Registered> {
        // The only panic under this lock is the one about a name, and it leaves the registry whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        Metrics::new(Build { role: "control", version: "1.2.3", revision: "abc" })
    }

    #[test]
    fn a_page_shows_every_metric_under_our_prefix() {
        let metrics = metrics();
        metrics.counter("commits", "Commits").inc();
        metrics.gauge("streams", "Open streams").set(3);
        metrics.histogram("lag_seconds", "Lag", [0.1, 1.0]).observe(0.5);

        expect_test::expect![[r#"
            # HELP krane_build What runs here.
            # TYPE krane_build info
            krane_build_info{role="control",version="1.2.3",revision="abc"} 1
            # HELP krane_commits Commits.
            # TYPE krane_commits counter
            krane_commits_total 1
            # HELP krane_streams Open streams.
            # TYPE krane_streams gauge
            krane_streams 3
            # HELP krane_lag_seconds Lag.
            # TYPE krane_lag_seconds histogram
            krane_lag_seconds_sum 0.5
            krane_lag_seconds_count 1
            krane_lag_seconds_bucket{le="0.1"} 0
            krane_lag_seconds_bucket{le="1.0"} 1
            krane_lag_seconds_bucket{le="+Inf"} 1
            # EOF
        "#]]
        .assert_eq(&metrics.encode());
    }

    #[test]
    fn clones_share_one_page() {
        let metrics = metrics();
        let family: Family<Vec<(String, String)>, Counter> =
            metrics.clone().register("reports", "Reports", Family::default());
        family.get_or_create(&vec![("outcome".into(), "ok".into())]).inc_by(2);
        assert!(metrics.encode().contains("krane_reports_total{outcome=\"ok\"} 2\n"));
    }

    #[test]
    #[should_panic(expected = "there is already a metric \"commits\"")]
    fn two_metrics_of_one_name_are_refused() {
        let metrics = metrics();
        metrics.counter("commits", "Commits");
        metrics.gauge("commits", "Commits");
    }
}
