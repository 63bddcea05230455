//! The whole system in one thread and in simulated time, with everything that happens drawn from one seed.
//!
//! ```text
//! users ──▶ store (SQLite) ──tail──▶ control plane ◀──network──▶ agents ◀──rough──▶ clusters ◀── strangers
//!                                              checker: store = clusters = reports
//! ```
//!
//! A run is a time of troubles and then a calm. In the calm everything must come to agree by itself, and stay so. The
//! same seed gives the same run, byte for byte: one that fails prints its number, and can be looked at again.

mod check;
mod fate;
mod history;
mod network;
mod rough;
mod seeds;
mod stage;
mod stranger;
mod transcript;
mod weather;
mod world;

use std::{collections::BTreeMap, time::Duration};

use runtime::random::Random;
use tokio::time::Instant;

use self::{
    check::disagreements,
    fate::Fate,
    history::Users,
    world::{Setup, World},
};
pub use self::{
    history::Operation,
    seeds::{Tally, run_all},
    stranger::Drift,
    weather::Fault,
};

/// The namespace of the agents' Leases.
const NAMESPACE: &str = "krane";

/// What users and strangers do in one run.
pub const OPERATIONS: usize = 200;

/// How long the calm may take to bring everything together. Whatever needs longer needs a net that is not there.
const CALM_MAX: Duration = Duration::from_mins(2);

/// How often it is looked whether everything agrees.
const LOOKS: Duration = Duration::from_secs(5);

/// How long everything must stay as it is then.
const STAYS: Duration = Duration::from_secs(30);

/// What came of one seed.
pub struct Outcome {
    pub seed: u64,
    pub setup: String,
    /// How often each thing was done, and each went wrong.
    pub operations: BTreeMap<String, u64>,
    pub faults: BTreeMap<Fault, u64>,
    /// What did not agree in the end, or should never have happened.
    pub wrong: Vec<String>,
    /// Simulated time, all in all.
    pub lasted: Duration,
    pub transcript: String,
}

/// Runs one seed. An even one has the nets that look at everything again; an odd one must do without.
pub fn run(seed: u64, is_transcribed: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(play(seed, is_transcribed))
}

async fn play(seed: u64, is_transcribed: bool) -> Outcome {
    let random = Random::seeded(seed);
    let setup = Setup {
        regions: 1 + usize::from(random.below(3) == 0),
        replicas: 1 + usize::from(random.below(3) == 0),
        has_nets: seed.is_multiple_of(2),
        is_transcribed,
    };
    let mut world = World::new(setup, random.fork()).await;
    let begun = world.clock.instant();
    world.begin().await;
    let operations = trouble(&mut world, &random).await;
    world.transcript.say(format_args!("calm"));
    let unsettled = settle(&mut world).await;
    let mut wrong = world.ledger.wrongs();
    wrong.extend(unsettled);
    wrong.extend(world.failures());
    let (faults, transcript) = (world.weather.struck(), world.transcript.clone());
    let lasted = world.clock.instant() - begun;
    world.end().await;
    Outcome {
        seed,
        setup: format!("{setup:?}"),
        operations,
        faults,
        wrong,
        lasted,
        transcript: transcript.text(),
    }
}

/// The time of troubles: users and strangers at work, and everything that can go wrong.
async fn trouble(world: &mut World, random: &Random) -> BTreeMap<String, u64> {
    let mut users = Users::new(world, random.fork());
    let (drifting, mut fate) = (random.fork(), Fate::new(random.fork()));
    let mut done = BTreeMap::new();
    let mut count = 0;
    while count < OPERATIONS {
        world.clock.sleep(Duration::from_millis(random.below(800))).await;
        fate.strike(world).await;
        let name = if random.below(4) == 0 {
            let region = usize::try_from(random.below(world.regions.len() as u64)).expect("an index fits");
            match stranger::meddle(world, region, &drifting) {
                Some(drift) => format!("{drift:?}"),
                None => continue,
            }
        } else {
            users.act(world).await.to_string()
        };
        *done.entry(name).or_default() += 1;
        count += 1;
    }
    fate.relent(world);
    done
}

/// Waits until everything agrees and nothing moves any more; says what does not, if that never comes.
async fn settle(world: &mut World) -> Vec<String> {
    let begun = world.clock.instant();
    let mut last = Moved::in_(world).await;
    let (mut agrees_since, mut look_at): (Option<Instant>, _) = (None, begun);
    loop {
        world.clock.sleep(Duration::from_secs(1)).await;
        world.restart_the_fallen();
        world.confirm_all().await;
        let (now, moved) = (world.clock.instant(), Moved::in_(world).await);
        let has_moved = std::mem::replace(&mut last, moved) != moved;
        if has_moved {
            agrees_since = None;
        }
        match agrees_since {
            // Nothing was written, by us or by anybody; at the end that is looked at once more.
            Some(since) if now >= since + STAYS => return disagreements(world).await,
            None if now >= begun + CALM_MAX => {
                let wrong = disagreements(world).await;
                let restless = format!("everything agrees, and something moves all the same: {moved:?}");
                return if wrong.is_empty() { vec![restless] } else { wrong };
            }
            // To look at everything costs more than to wait until nothing moves.
            None if !has_moved && now >= look_at => {
                look_at = now + LOOKS;
                agrees_since = disagreements(world).await.is_empty().then_some(now);
            }
            Some(_) | None => {}
        }
    }
}

/// What does not move once everything is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moved {
    version: Option<model::watch::Version>,
    writes: u64,
    is_settled: bool,
}

impl Moved {
    async fn in_(world: &World) -> Moved {
        let position = world.store.position().await;
        Moved {
            version: position.ok().map(|position| position.version),
            writes: world.ledger.writes(),
            is_settled: world.regions.iter().all(|region| region.stage.is_settled()),
        }
    }
}
