//! What is to be looked at: each thing once, when it is due, and never twice at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    future,
    time::Duration,
};

use runtime::{
    backoff::{Backoff, InvalidBackoff},
    clock::Clock,
    random::Random,
};
use tokio::time::Instant;

/// How long a thing rests after something was done about it, unless there is news.
const REST: Duration = Duration::from_millis(100);

/// Things that wait for their turn. Of two times asked for, the earlier counts.
pub(crate) struct Queue<K> {
    clock: Clock,
    random: Random,
    backoff: Backoff,
    /// A thing is not handed out again before this much time is over.
    spacing: Duration,
    due: BTreeMap<K, Instant>,
    /// The same by time, and for equal times by thing.
    order: BTreeSet<(Instant, K)>,
    /// Handed out and not given back yet.
    running: BTreeSet<K>,
    /// Asked for while running, and whether that was news: they go round again as soon as they are back.
    dirty: BTreeMap<K, bool>,
    failing: BTreeMap<K, Backoff>,
    handed_out: BTreeMap<K, Instant>,
    /// Worked on a moment ago: until when only news of them counts.
    resting: BTreeMap<K, Instant>,
}

impl<K: Clone + Ord> Queue<K> {
    pub(crate) fn new(
        (first, max): (Duration, Duration),
        spacing: Duration,
        clock: Clock,
        random: Random,
    ) -> Result<Queue<K>, InvalidBackoff> {
        Ok(Queue {
            clock,
            random,
            backoff: Backoff::new(first, max)?,
            spacing,
            due: BTreeMap::new(),
            order: BTreeSet::new(),
            running: BTreeSet::new(),
            dirty: BTreeMap::new(),
            failing: BTreeMap::new(),
            handed_out: BTreeMap::new(),
            resting: BTreeMap::new(),
        })
    }

    /// There is news of it: it is due now, whatever it failed with before.
    pub(crate) fn push(&mut self, thing: K) {
        if self.running.contains(&thing) {
            self.dirty.insert(thing, true);
        } else {
            self.enqueue(thing, Duration::ZERO);
        }
    }

    /// Something had to be done about it. Somebody may undo that at once, each time: what is merely seen to move again
    /// waits for a moment, so that nobody is fought at full speed.
    pub(crate) fn rest(&mut self, thing: K) {
        let now = self.clock.instant();
        self.resting.retain(|_, until| now < *until);
        self.resting.insert(thing, now + REST);
    }

    /// Somebody saw it move: it is due now, unless it rests or waits because it failed. A failed attempt may be what moved
    /// it, and must not be its own reason for the next. Says whether nobody else had asked for it.
    pub(crate) fn nudge(&mut self, thing: K) -> bool {
        if self.running.contains(&thing) {
            self.dirty.entry(thing).or_insert(false);
            return false;
        }
        let is_first = !self.failing.contains_key(&thing) && !self.due.contains_key(&thing);
        if !self.failing.contains_key(&thing) {
            let rest = self.rest_of(&thing);
            self.enqueue(thing, rest);
        }
        is_first
    }

    /// Waits for the next thing that is due. It may be dropped and called again.
    pub(crate) async fn next(&mut self) -> K {
        let Some((at, thing)) = self.order.first().cloned() else { return future::pending().await };
        let wait = at.saturating_duration_since(self.clock.instant());
        if !wait.is_zero() {
            self.clock.sleep(wait).await;
        }
        self.order.remove(&(at, thing.clone()));
        self.due.remove(&thing);
        let is_fresh = self.running.insert(thing.clone());
        assert!(is_fresh, "what runs is not queued");
        if !self.spacing.is_zero() {
            let now = self.clock.instant();
            self.handed_out.retain(|_, at| now < *at + self.spacing);
            self.handed_out.insert(thing.clone(), now);
        }
        thing
    }

    /// Gives it back: nothing more to do until somebody asks again.
    pub(crate) fn succeeded(&mut self, thing: &K) {
        self.give_back(thing);
        self.failing.remove(thing);
        if let Some(delay) = self.asked_meanwhile(thing) {
            self.enqueue(thing.clone(), delay);
        }
    }

    /// Gives it back, to be tried again after a while, and not before `at_least`. Says how long that is: no time at
    /// all if there was news meanwhile, for then it is no longer the same attempt.
    pub(crate) fn failed(&mut self, thing: &K, at_least: Option<Duration>) -> Duration {
        self.give_back(thing);
        let is_news = self.dirty.remove(thing) == Some(true);
        let backoff = self.failing.entry(thing.clone()).or_insert_with(|| self.backoff.clone());
        let delay = match (is_news, at_least) {
            (true, None) => Duration::ZERO,
            (true, Some(at_least)) => at_least,
            (false, at_least) => backoff.next(&self.random).max(at_least.unwrap_or_default()),
        };
        self.enqueue(thing.clone(), delay);
        delay
    }

    /// Gives it back without a word about how it went: it was not its turn.
    pub(crate) fn put_back(&mut self, thing: &K, delay: Duration) {
        self.give_back(thing);
        self.dirty.remove(thing);
        self.enqueue(thing.clone(), delay);
    }

    /// Gives it back because something stood in its way, to be tried again when that is seen to move; it may have been
    /// while this ran. What it failed with before is no reason not to hear of it.
    pub(crate) fn blocked(&mut self, thing: &K, at_most: Duration) {
        self.give_back(thing);
        self.failing.remove(thing);
        let delay = self.asked_meanwhile(thing).unwrap_or(at_most);
        self.enqueue(thing.clone(), delay);
    }

    /// Whether nothing waits that is due, and nothing runs.
    pub(crate) fn is_idle(&self) -> bool {
        let now = self.clock.instant();
        self.running.is_empty() && self.order.first().is_none_or(|(at, _)| *at > now)
    }

    /// How many things failed the last time they were tried.
    pub(crate) fn failing(&self) -> usize {
        self.failing.len()
    }

    /// Whether it failed the last time it was tried.
    pub(crate) fn is_failing(&self, thing: &K) -> bool {
        self.failing.contains_key(thing)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.due.len()
    }

    /// Whether it was asked for while it ran, and how long that may wait: news not at all.
    fn asked_meanwhile(&mut self, thing: &K) -> Option<Duration> {
        let is_news = self.dirty.remove(thing)?;
        Some(if is_news { Duration::ZERO } else { self.rest_of(thing) })
    }

    fn rest_of(&self, thing: &K) -> Duration {
        let until = self.resting.get(thing);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(self.clock.instant()))
    }

    fn give_back(&mut self, thing: &K) {
        let was_running = self.running.remove(thing);
        assert!(was_running, "only what runs can be given back");
    }

    fn enqueue(&mut self, thing: K, delay: Duration) {
        let now = self.clock.instant();
        let spaced = self.handed_out.get(&thing).map(|at| *at + self.spacing);
        let at = (now + delay).max(spaced.unwrap_or(now));
        if let Some(earlier) = self.due.get(&thing).copied() {
            if earlier <= at {
                return;
            }
            self.order.remove(&(earlier, thing.clone()));
        }
        self.due.insert(thing.clone(), at);
        self.order.insert((at, thing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKED: Duration = Duration::from_secs(10);

    fn queue(spacing: Duration) -> Queue<&'static str> {
        let clock = Clock::simulated(runtime::clock::Timestamp::from_millis(0));
        let delays = (Duration::from_secs(1), Duration::from_mins(5));
        Queue::new(delays, spacing, clock, Random::seeded(1)).unwrap()
    }

    async fn is_empty(queue: &mut Queue<&'static str>) -> bool {
        tokio::select! {
            biased;
            _ = queue.next() => false,
            () = tokio::time::sleep(Duration::from_nanos(1)) => true,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thing_that_is_asked_for_twice_comes_once() {
        let mut queue = queue(Duration::ZERO);
        queue.push("a");
        queue.push("a");
        assert_eq!(queue.next().await, "a");
        assert!(is_empty(&mut queue).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_thing_that_runs_is_not_handed_out_but_goes_round_again() {
        let mut queue = queue(Duration::ZERO);
        queue.push("a");
        assert_eq!(queue.next().await, "a");
        queue.push("a");
        assert!(is_empty(&mut queue).await);
        queue.succeeded(&"a");
        assert_eq!(queue.next().await, "a");
        queue.succeeded(&"a");
        assert!(is_empty(&mut queue).await && queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_each_time_and_news_waits_for_nothing() {
        let mut queue = queue(Duration::ZERO);
        queue.push("a");
        let mut last = Duration::ZERO;
        for _ in 0..5 {
            assert_eq!(queue.next().await, "a");
            let delay = queue.failed(&"a", None);
            assert!(delay > last / 2 && delay > Duration::ZERO, "{delay:?} after {last:?}");
            last = delay;
        }
        assert!(last > Duration::from_secs(5));
        assert_eq!(queue.failing(), 1);
        queue.push("a");
        let before = queue.clock.instant();
        assert_eq!(queue.next().await, "a");
        assert_eq!(before.elapsed(), Duration::ZERO);
        queue.push("a");
        assert_eq!(queue.failed(&"a", None), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_not_its_own_reason_to_try_again() {
        let mut queue = queue(Duration::ZERO);
        queue.push("a");
        assert_eq!(queue.next().await, "a");
        assert!(!queue.nudge("a"));
        assert!(queue.failed(&"a", None) > Duration::ZERO);
        assert!(!queue.nudge("a"));
        assert!(is_empty(&mut queue).await);
        assert_eq!(queue.next().await, "a");
        assert!(!queue.nudge("a"));
        queue.succeeded(&"a");
        assert_eq!(queue.next().await, "a");
        queue.succeeded(&"a");
        assert!(queue.nudge("a") && !queue.nudge("a"), "only the first who asks is told so");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_blocked_goes_on_when_it_was_seen_to_move_even_before_it_was_back() {
        let mut queue = queue(Duration::ZERO);
        queue.push("a");
        let before = queue.clock.instant();
        assert_eq!(queue.next().await, "a");
        queue.nudge("a");
        queue.blocked(&"a", Duration::from_secs(10));
        assert_eq!(queue.next().await, "a");
        assert_eq!(before.elapsed(), Duration::ZERO);
        queue.blocked(&"a", Duration::from_secs(10));
        assert_eq!(queue.next().await, "a");
        assert_eq!(before.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_blocked_hears_of_its_end_also_after_it_failed() {
        let mut queue = queue(Duration::ZERO);
        queue.push("a");
        assert_eq!(queue.next().await, "a");
        queue.failed(&"a", None);
        assert_eq!(queue.next().await, "a");
        queue.blocked(&"a", Duration::from_secs(10));
        queue.nudge("a");
        let before = queue.clock.instant();
        assert_eq!(queue.next().await, "a");
        assert_eq!((before.elapsed(), queue.failing()), (Duration::ZERO, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_undone_each_time_is_not_fought_at_full_speed_and_news_of_it_waits_for_nothing() {
        let mut queue = queue(Duration::ZERO);
        let before = queue.clock.instant();
        queue.nudge("a");
        for turn in 0..10 {
            assert_eq!(queue.next().await, "a");
            assert_eq!(before.elapsed(), REST * turn);
            queue.rest("a");
            // Undone while it ran, and after.
            if turn % 2 == 0 {
                queue.nudge("a");
            }
            if turn % 3 == 0 {
                queue.blocked(&"a", BLOCKED);
            } else {
                queue.succeeded(&"a");
            }
            queue.nudge("a");
        }
        queue.push("a");
        assert_eq!(queue.next().await, "a");
        assert_eq!(before.elapsed(), REST * 9);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_handed_out_a_moment_ago_waits() {
        let spacing = Duration::from_millis(250);
        let mut queue = queue(spacing);
        queue.push("a");
        let before = queue.clock.instant();
        for turn in 0..4 {
            assert_eq!(queue.next().await, "a");
            assert_eq!(before.elapsed(), spacing * turn);
            queue.push("a");
            queue.succeeded(&"a");
        }
    }
}
