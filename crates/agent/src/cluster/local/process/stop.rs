//! That a pod shall end, and by when.

use std::time::Duration;

use runtime::{clock::Clock, shutdown::Tasks};
use tokio::{sync::watch, time::Instant};

use crate::cluster::local::node::Running;

/// What the cluster holds of a pod that runs. Dropped, it lets the pod end at once.
pub struct Handle {
    by: watch::Sender<Option<Instant>>,
    clock: Clock,
}

/// The same, as the pod sees it.
pub struct Stop {
    asked: watch::Receiver<Option<Instant>>,
    tasks: Tasks,
    clock: Clock,
    /// How long it may take when everything ends.
    drain: Duration,
    by: Option<Instant>,
    /// Nobody routes to it any more: it need not go on as if nothing were.
    is_hurried: bool,
}

/// Both sides of one pod.
pub fn stopping(clock: &Clock, tasks: &Tasks, drain: Duration) -> (Handle, Stop) {
    let (by, asked) = watch::channel(None);
    let stop = Stop { asked, tasks: tasks.clone(), clock: clock.clone(), drain, by: None, is_hurried: false };
    (Handle { by, clock: clock.clone() }, stop)
}

impl Running for Handle {
    fn stop(&mut self, grace: Duration) {
        let by = self.clock.instant() + grace;
        self.by.send_modify(|before| *before = Some(before.map_or(by, |before| before.min(by))));
    }
}

impl Stop {
    /// Resolves when it shall end.
    pub async fn asked(&mut self) {
        if self.by.is_none() {
            self.news().await;
        }
    }

    pub fn is_asked(&self) -> bool {
        self.by.is_some()
    }

    /// Resolves when it must be gone: at this moment, or sooner if it is asked to.
    pub async fn over(&mut self, limit: Option<Instant>) {
        while !self.step(limit).await {}
    }

    /// The same, but also when nobody routes to it any more; says whether it must be gone.
    pub async fn over_or_hurried(&mut self, limit: Option<Instant>) -> bool {
        while !self.is_hurried {
            if self.step(limit).await {
                return true;
            }
        }
        false
    }

    /// Waits for news, or until it must be gone, and says whether it must.
    async fn step(&mut self, limit: Option<Instant>) -> bool {
        let at = [self.by, limit].into_iter().flatten().min();
        let left = at.map(|at| at.saturating_duration_since(self.clock.instant()));
        let clock = self.clock.clone();
        let wait = async {
            match left {
                Some(left) => clock.sleep(left).await,
                None => std::future::pending().await,
            }
        };
        if left == Some(Duration::ZERO) {
            return true;
        }
        tokio::select! {
            biased;
            () = self.news() => false,
            () = wait => true,
        }
    }

    /// Waits until something is asked that was not before.
    async fn news(&mut self) {
        if self.is_hurried {
            std::future::pending::<()>().await;
        }
        tokio::select! {
            biased;
            () = self.tasks.stopping() => {
                self.is_hurried = true;
                self.sooner(self.clock.instant() + self.drain);
            }
            changed = self.asked.changed() => {
                let by = *self.asked.borrow_and_update();
                match (changed, by) {
                    (Ok(()), Some(by)) => self.sooner(by),
                    (Ok(()), None) => {}
                    (Err(_), _) => {
                        self.is_hurried = true;
                        self.sooner(self.clock.instant());
                    }
                }
            }
        }
    }

    fn sooner(&mut self, by: Instant) {
        self.by = Some(self.by.map_or(by, |before| before.min(by)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn the_shorter_time_counts() {
        let clock = Clock::system();
        let (mut handle, mut stop) = stopping(&clock, &Tasks::new(), MINUTE);
        assert!(!stop.is_asked());
        let start = clock.instant();
        handle.stop(Duration::from_secs(30));
        stop.asked().await;
        assert!(stop.is_asked() && !stop.is_hurried);
        handle.stop(Duration::from_secs(40));
        handle.stop(Duration::from_secs(10));
        stop.over(Some(start + MINUTE)).await;
        assert_eq!(clock.instant() - start, Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_dropped_ends_at_once_and_all_end_with_the_cluster() {
        let (clock, tasks) = (Clock::system(), Tasks::new());
        let (handle, mut stop) = stopping(&clock, &tasks, Duration::from_secs(2));
        let start = clock.instant();
        drop(handle);
        stop.asked().await;
        stop.over(None).await;
        assert!(stop.is_hurried);
        assert_eq!(clock.instant(), start);

        let (mut handle, mut stop) = stopping(&clock, &tasks, Duration::from_secs(2));
        handle.stop(MINUTE);
        stop.asked().await;
        tasks.token().cancel();
        assert!(!stop.over_or_hurried(None).await, "there is time left to end well");
        stop.over(None).await;
        assert_eq!(clock.instant() - start, Duration::from_secs(2));
    }
}
