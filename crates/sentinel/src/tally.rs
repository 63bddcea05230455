//! What was carried: how many answers of which kind, and how long they took, for each route and deployment.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use model::{
    id::DeploymentId,
    limits,
    name::Hostname,
    traffic::{BUCKETS, Blame, Histogram, StatusClass, Sums},
};

/// Counts that all cores add to, all since the sentinel began.
#[derive(Debug)]
pub struct Tally {
    /// By blame and class.
    counts: [[AtomicU64; CLASSES]; Blame::ALL.len()],
    latency: [AtomicU64; BUCKETS],
}

/// The tallies of all routes there have been. Asked for when a table is made, never by a request.
#[derive(Debug, Default)]
pub struct Tallies(Mutex<BTreeMap<(Hostname, DeploymentId), Arc<Tally>>>);

const CLASSES: usize = 5;

impl Default for Tally {
    fn default() -> Tally {
        Tally { counts: Default::default(), latency: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Tally {
    pub fn count(&self, blame: Blame, status: u16, took: Duration) {
        let class = usize::from(status / 100).clamp(1, CLASSES) - 1;
        self.counts[blame as usize][class].fetch_add(1, Ordering::Relaxed);
        self.latency[Histogram::index_of(took)].fetch_add(1, Ordering::Relaxed);
    }

    pub fn sums(&self) -> Sums {
        let mut counts = BTreeMap::new();
        for (blame, classes) in Blame::ALL.iter().zip(&self.counts) {
            for (class, count) in (1..).zip(classes) {
                let class = StatusClass::new(class).expect("a digit from 1 to 5");
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    counts.insert((*blame, class), count);
                }
            }
        }
        let latency = std::array::from_fn(|index| self.latency[index].load(Ordering::Relaxed));
        Sums { counts, latency: Histogram::new(latency) }
    }
}

impl Tallies {
    /// The tally of one route and deployment: the same whenever it is asked for.
    pub fn of(&self, hostname: &Hostname, deployment: DeploymentId) -> Arc<Tally> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= limits::TRAFFIC_SUMS {
            // Those that no table has any more make room: what they counted was told long ago.
            all.retain(|_, tally| Arc::strong_count(tally) > 1);
        }
        Arc::clone(all.entry((hostname.clone(), deployment)).or_default())
    }

    /// Everything that was counted; what carried nothing is left out.
    pub fn sums(&self) -> BTreeMap<(Hostname, DeploymentId), Sums> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = all.iter().map(|(of, tally)| (of.clone(), tally.sums()));
        sums.filter(|(_, sums)| !sums.is_empty()).take(limits::TRAFFIC_SUMS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_told_by_blame_class_and_time() {
        let tallies = Tallies::default();
        let (hostname, deployment) = ("a.example.com".parse().unwrap(), DeploymentId::sample(1));
        let tally = tallies.of(&hostname, deployment);
        assert!(tallies.sums().is_empty());
        tally.count(Blame::None, 200, Duration::from_millis(1));
        tally.count(Blame::None, 204, Duration::from_millis(3));
        tallies.of(&hostname, deployment).count(Blame::Upstream, 502, Duration::from_secs(1));
        let sums = tallies.sums().remove(&(hostname, deployment)).unwrap();
        let class = |digit| StatusClass::new(digit).unwrap();
        let expected = [((Blame::None, class(2)), 2), ((Blame::Upstream, class(5)), 1)];
        assert_eq!(sums.counts, expected.into());
        assert_eq!(sums.latency.count(), 3);
    }

    #[test]
    fn the_order_of_blames_is_that_of_their_numbers() {
        for (index, blame) in Blame::ALL.iter().enumerate() {
            assert_eq!(*blame as usize, index);
        }
    }
}
