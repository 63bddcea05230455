//! Everything that can go wrong, in an order that a seed draws.

use std::{collections::BTreeMap, time::Duration};

use runtime::random::Random;

use super::{Scene, agents::Agent, rack::Weather};

const SEEDS: u64 = 120;
const STORM: Duration = Duration::from_mins(2);
/// Eleven seconds for the Lease, and some for what was on its way.
const CALM: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_millis(20);

/// What happened in all runs.
type Happened = BTreeMap<&'static str, u64>;

/// What must have.
const ALL: [&str; 18] = [
    "another acts",
    "clock set",
    "cut",
    "fair",
    "frozen",
    "killed",
    "late",
    "lost",
    "never answered",
    "refused",
    "slow",
    "stopped",
    "storm",
    "terms",
    "thawed",
    "unknown outcome",
    "weather",
    "writes refused",
];

#[tokio::test(start_paused = true)]
async fn in_any_weather_two_never_act_and_in_the_end_one_does() {
    let mut happened = Happened::new();
    for seed in 0..SEEDS {
        println!("seed {seed}");
        run(seed, &mut happened).await;
    }
    println!("{SEEDS} seeds: {happened:#?}");
    let never: Vec<&str> = ALL.into_iter().filter(|name| !happened.contains_key(name)).collect();
    assert!(never.is_empty(), "these never happened: {never:?}");
}

async fn run(seed: u64, happened: &mut Happened) {
    let scene = Scene::new(seed);
    let random = Random::seeded(seed ^ 0x5eed);
    let mut agents = ["one", "two", "three"].map(|name| scene.start(name));
    let began = scene.clock.instant();
    let mut next = began;
    let mut acted = None;
    while began.elapsed() < STORM {
        if scene.clock.instant() >= next {
            next += random.duration(Duration::ZERO..Duration::from_secs(6));
            *happened.entry(meddle(&scene, &random, &mut agents)).or_default() += 1;
        }
        let acting = scene.acting();
        if acting.is_some() && acting != acted {
            *happened.entry("another acts").or_default() += 1;
            acted = acting;
        }
        scene.clock.sleep(STEP).await;
    }
    settle(&scene, &agents).await;
    for (fate, times) in scene.rack.met() {
        *happened.entry(fate).or_default() += u64::from(times);
    }
    let refused = scene.rack.written().iter().filter(|written| !written.is_taken).count();
    *happened.entry("writes refused").or_default() += refused as u64;
    *happened.entry("terms").or_default() += scene.desk.terms();
    scene.end(agents.into()).await;
}

/// One thing that happens; says what.
fn meddle(scene: &Scene, random: &Random, agents: &mut [Agent; 3]) -> &'static str {
    let one_of = |count: usize| usize::try_from(random.below(count as u64)).expect("it is small");
    let agent = &mut agents[one_of(3)];
    match random.below(9) {
        0 | 1 => {
            agent.freeze(true);
            "frozen"
        }
        2 | 3 => {
            agent.freeze(false);
            "thawed"
        }
        4 => {
            let weathers = [Weather::Fair, Weather::Cut, Weather::Slow(Duration::from_secs(3))];
            scene.rack.set(&agent.name, weathers[one_of(3)]);
            "weather"
        }
        5 | 6 => {
            scene.rack.set(&agent.name, Weather::Stormy);
            "storm"
        }
        7 => {
            scene.clock.jump_forward(random.duration(Duration::ZERO..Duration::from_hours(1)));
            "clock set"
        }
        _ => {
            let successor = scene.start(&format!("agent-{}", random.below(1 << 32)));
            let old = std::mem::replace(agent, successor);
            if random.below(2) == 0 {
                scene.tasks.spawn("kill", old.kill());
                "killed"
            } else {
                scene.tasks.spawn("stop", old.stop());
                "stopped"
            }
        }
    }
}

/// Everything is well now: soon one acts, and nothing changes any more.
async fn settle(scene: &Scene, agents: &[Agent]) {
    for agent in agents {
        agent.freeze(false);
        scene.rack.set(&agent.name, Weather::Fair);
    }
    scene.watch_over(CALM).await;
    let acting = scene.acting();
    assert!(acting.is_some(), "nobody acts");
    let terms = scene.desk.terms();
    let began = scene.clock.instant();
    while began.elapsed() < Duration::from_secs(20) {
        assert_eq!(scene.acting(), acting);
        scene.clock.sleep(STEP).await;
    }
    assert_eq!(scene.desk.terms(), terms, "a term was begun for nothing");
}
