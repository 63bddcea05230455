//! Agents that want the same Lease, in simulated time: never do two of them act, and soon one does.

mod agents;
mod rack;
mod storm;

use std::sync::Mutex;

use runtime::{clock::Timestamp, random::Random, ready::State};

use self::{
    agents::{Agent, Desk},
    rack::{Rack, Weather},
};
use super::*;

/// What stands around the agents of a test.
struct Scene {
    clock: Clock,
    rack: Rack,
    desk: Desk,
    tasks: Tasks,
    /// Everybody who was ever started, and whether they may write, be they alive or not.
    terms: Mutex<Vec<(String, Term)>>,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let (clock, random, tasks) =
            (Clock::simulated(Timestamp::from_millis(1_000)), Random::seeded(seed), Tasks::new());
        let rack = Rack::new(&clock, random.fork(), &tasks);
        let desk = Desk::new(&rack, &clock, random.fork());
        Scene { clock, rack, desk, tasks, terms: Mutex::default() }
    }

    fn start(&self, name: &str) -> Agent {
        let agent = Agent::start(name, &self.rack, &self.desk, &self.clock);
        self.terms.lock().unwrap().push((name.to_owned(), agent.term.clone()));
        agent
    }

    /// Who acts now, if anybody does.
    fn acting(&self) -> Option<String> {
        let terms = self.terms.lock().unwrap();
        let acting = terms.iter().filter(|(_, term)| term.may_write().is_ok());
        let mut acting: Vec<String> = acting.map(|(name, _)| name.clone()).collect();
        assert!(acting.len() <= 1, "{acting:?} act at once");
        acting.pop()
    }

    /// One that acts, and one that stands by.
    async fn start_two(&self) -> (Agent, Agent) {
        let one = self.start("one");
        self.until(|| one.is_acting(), Duration::from_secs(1)).await;
        let two = self.start("two");
        self.clock.sleep(Duration::from_secs(1)).await;
        (one, two)
    }

    /// Waits for something that must be so within a time; says after how long it was.
    async fn until(&self, mut is_so: impl FnMut() -> bool, within: Duration) -> Duration {
        let began = self.clock.instant();
        while !is_so() {
            assert!(began.elapsed() < within, "it is not so after {within:?}");
            self.clock.sleep(Duration::from_millis(1)).await;
        }
        began.elapsed()
    }

    /// Looks at every moment of a time that no two act.
    async fn watch_over(&self, time: Duration) {
        let began = self.clock.instant();
        while began.elapsed() < time {
            self.acting();
            self.clock.sleep(Duration::from_millis(10)).await;
        }
    }

    async fn end(self, agents: Vec<Agent>) {
        for agent in agents {
            assert_eq!(agent.failure(), None);
            agent.kill().await;
        }
        self.tasks.abort().await;
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn one_of_two_acts_and_the_other_is_well_and_waits() {
    let scene = Scene::new(1);
    let (one, two) = scene.start_two().await;
    let began = scene.clock.instant();
    scene.watch_over(Duration::from_mins(2)).await;
    assert!(one.is_acting() && !two.is_acting());
    assert_eq!(two.term.phase(), Phase::Waiting);
    let checks = two.readiness.ready().checks;
    assert!(checks.iter().all(|check| check.state == State::Ready), "a standby is ready: {checks:?}");
    let written = scene.rack.written_since(began);
    assert!(written.iter().all(|written| written.by == "one" && written.is_taken), "{written:?}");
    assert!((59..=61).contains(&written.len()), "every two seconds: {}", written.len());
    assert_eq!(scene.desk.terms(), 1, "a standby begins nothing");
    assert_eq!((one.metrics.taken.get(), two.metrics.taken.get()), (1, 0));
    scene.end(vec![one, two]).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_is_taken_at_once() {
    let scene = Scene::new(2);
    let (one, two) = scene.start_two().await;
    one.stop().await;
    let after = scene.until(|| two.is_acting(), SECOND).await;
    assert!(after < Duration::from_millis(200), "{after:?}");
    assert_eq!(scene.rack.lease().unwrap().transitions, 1);
    scene.end(vec![two]).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_renewed_is_taken_eleven_seconds_after_it_last_was() {
    for seed in 0..20 {
        let scene = Scene::new(seed);
        let (one, two) = scene.start_two().await;
        scene.clock.sleep(Duration::from_secs(30) + Duration::from_millis(seed * 97)).await;
        let last = scene.rack.written_since(one_moment_ago(&scene)).pop().expect("it is renewed").at;
        one.kill().await;
        scene.until(|| two.is_acting(), SECOND * 13).await;
        let after = last.elapsed();
        assert!((EXPIRE..EXPIRE + SECOND / 2).contains(&after), "{after:?}");
        scene.end(vec![two]).await;
    }
}

fn one_moment_ago(scene: &Scene) -> Instant {
    scene.clock.instant() - RENEW - SECOND
}

/// The first does nothing for half a minute, and everything it had begun goes on; when it wakes it finds out.
#[tokio::test(start_paused = true)]
async fn whoever_wakes_and_has_lost_the_lease_is_refused_once_and_stands_by() {
    for seed in 0..40 {
        let scene = Scene::new(seed);
        let (one, two) = scene.start_two().await;
        scene.clock.sleep(Duration::from_secs(3) + Duration::from_millis(seed * 53)).await;
        one.freeze(true);
        scene.watch_over(Duration::from_secs(30)).await;
        assert!(two.is_acting());
        let woke = scene.clock.instant();
        one.freeze(false);
        assert!(!one.is_acting(), "before anything was answered");
        scene.watch_over(Duration::from_secs(40)).await;
        let written = scene.rack.written_since(woke);
        let of_one: Vec<_> = written.iter().filter(|written| written.by == "one").collect();
        assert!(of_one.len() <= 1 && of_one.iter().all(|written| !written.is_taken), "{of_one:?}");
        assert!(two.is_acting() && one.term.phase() == Phase::Waiting);
        assert_eq!((one.metrics.lost.get(), two.metrics.taken.get()), (1, 1));
        scene.end(vec![one, two]).await;
    }
}

/// The answer comes four seconds late, and nothing after it: the Lease reaches no further for that.
#[tokio::test(start_paused = true)]
async fn a_slow_answer_does_not_make_the_lease_reach_further() {
    let scene = Scene::new(3);
    let (one, two) = scene.start_two().await;
    scene.clock.sleep(SECOND * 10).await;
    scene.rack.set("one", Weather::Slow(Duration::from_millis(3_950)));
    let asked = scene.clock.instant();
    scene
        .until(|| scene.rack.written_since(asked).iter().any(|written| written.by == "one"), SECOND * 3)
        .await;
    let sent = scene.clock.instant();
    scene.rack.set("one", Weather::Cut);
    scene.until(|| !one.is_acting(), SECOND * 9).await;
    assert!(sent.elapsed() <= super::super::WRITE_FOR, "it began writes {:?} after it", sent.elapsed());
    scene.watch_over(SECOND * 5).await;
    assert!(two.is_acting());
    scene.end(vec![one, two]).await;
}

/// One that is cut off for less than the Lease reaches goes on; for longer, it stops by itself.
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_can_begin() {
    let scene = Scene::new(4);
    let (one, two) = scene.start_two().await;
    scene.rack.set("one", Weather::Cut);
    scene.watch_over(SECOND * 3).await;
    assert!(one.is_acting());
    scene.rack.set("one", Weather::Fair);
    scene.watch_over(SECOND * 20).await;
    assert!(one.is_acting() && scene.desk.terms() == 1, "it was not away for long enough");
    scene.rack.set("one", Weather::Cut);
    scene.until(|| !one.is_acting(), SECOND * 9).await;
    assert!(!two.is_acting());
    // Its term is over with the Lease.
    scene.until(|| one.term.phase() == Phase::Waiting, Duration::from_millis(10)).await;
    scene.until(|| two.is_acting(), SECOND * 5).await;
    scene.end(vec![one, two]).await;
}

/// Wall clocks may be set by hours: nothing depends on them.
#[tokio::test(start_paused = true)]
async fn clocks_that_jump_change_nothing() {
    let scene = Scene::new(5);
    let (one, two) = scene.start_two().await;
    for hours in 1..20 {
        scene.clock.jump_forward(Duration::from_hours(hours));
        scene.watch_over(SECOND * 3).await;
        scene.clock.jump_back(Duration::from_hours(hours * 2));
        scene.watch_over(SECOND * 3).await;
    }
    assert!(one.is_acting() && scene.desk.terms() == 1);
    assert_eq!(scene.rack.lease().unwrap().transitions, 0);
    scene.end(vec![one, two]).await;
}

/// Somebody gave both the same name. The second takes the Lease for its own, and the first does not take it back.
#[tokio::test(start_paused = true)]
async fn two_of_one_name_do_not_take_turns() {
    let scene = Scene::new(6);
    let (first, second) = (scene.start("one"), scene.start("one"));
    scene.clock.sleep(SECOND * 5).await;
    let began = scene.clock.instant();
    scene.watch_over(Duration::from_mins(1)).await;
    assert!(first.is_acting() != second.is_acting());
    assert!(scene.rack.written_since(began).iter().all(|written| written.is_taken));
    scene.end(vec![first, second]).await;
}

/// It was told to stop in the middle of a renewal of which it never heard.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_renewed_unheard_is_given_up_too() {
    let scene = Scene::new(7);
    let (one, two) = scene.start_two().await;
    scene.rack.set("one", Weather::Slow(PATIENCE * 2));
    let asked = scene.clock.instant();
    scene
        .until(|| scene.rack.written_since(asked).iter().any(|written| written.by == "one"), SECOND * 3)
        .await;
    scene.rack.set("one", Weather::Fair);
    one.stop().await;
    scene.until(|| two.is_acting(), SECOND).await;
    scene.end(vec![two]).await;
}
