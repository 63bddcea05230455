//! What happens to whole processes: they are killed, stopped, cut off, and their clocks jump.

use std::time::Duration;

use runtime::random::Random;
use tokio::time::Instant;

use super::{weather::Fault, world::World};

pub(super) struct Fate {
    random: Random,
    /// What will be put right by itself, and when.
    later: Vec<(Instant, Undo)>,
    turns_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Undo {
    StartAgent(usize, usize),
    StartControl,
    Reconnect(usize, usize),
}

impl Fate {
    pub(super) fn new(random: Random) -> Fate {
        Fate { random, later: Vec::new(), turns_at: None }
    }

    /// One chance for something to happen; and what is due is put right.
    pub(super) async fn strike(&mut self, world: &mut World) {
        let now = world.clock.instant();
        if self.turns_at.is_none_or(|at| now >= at) {
            world.weather.turn();
            self.turns_at = Some(now + self.seconds(3, 15));
        }
        let due = self.later.extract_if(.., |(at, _)| *at <= now).map(|(_, undo)| undo);
        let due: Vec<Undo> = due.collect();
        due.into_iter().for_each(|undo| undo.act(world));
        world.restart_the_fallen();
        if self.random.below(15) != 0 {
            return;
        }
        let (region, slot) = self.one_agent(world);
        match self.random.below(8) {
            kind @ 0..=2 if world.regions[region].agents[slot].is_running() => {
                let is_killed = kind < 2;
                world.weather.note(if is_killed { Fault::AgentKilled } else { Fault::AgentStopped });
                world.end_agent(region, slot, is_killed).await;
                self.undo(world, Undo::StartAgent(region, slot), self.seconds(0, 12));
            }
            kind @ 3..=4 if world.has_control() => {
                let is_killed = kind == 3;
                world.weather.note(if is_killed { Fault::ControlKilled } else { Fault::ControlStopped });
                world.end_control(is_killed).await;
                self.undo(world, Undo::StartControl, self.seconds(0, 8));
            }
            5..=6 => {
                world.weather.note(Fault::Partition);
                world.network.shut(&world.regions[region].agents[slot].name, true);
                self.undo(world, Undo::Reconnect(region, slot), self.seconds(0, 30));
            }
            7 => self.jump(world, region, slot),
            _ => {}
        }
    }

    /// Everything is put right now.
    pub(super) fn relent(self, world: &mut World) {
        world.weather.calm();
        self.later.into_iter().for_each(|(_, undo)| undo.act(world));
        world.regions.iter().for_each(|region| region.stage.heal());
    }

    fn jump(&self, world: &World, region: usize, slot: usize) {
        world.weather.note(Fault::ClockJumped);
        let by = Duration::from_secs(self.random.below(600));
        let agent = &world.regions[region].agents[slot].clock;
        let clock = if self.random.below(2) == 0 { agent } else { &world.clock };
        if self.random.below(2) == 0 { clock.jump_forward(by) } else { clock.jump_back(by) }
    }

    fn undo(&mut self, world: &World, undo: Undo, after: Duration) {
        self.later.push((world.clock.instant() + after, undo));
    }

    fn one_agent(&self, world: &World) -> (usize, usize) {
        let index = |count: usize| usize::try_from(self.random.below(count as u64)).expect("an index fits");
        let region = index(world.regions.len());
        (region, index(world.regions[region].agents.len()))
    }

    fn seconds(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(1000 * from + self.random.below(1000 * (to - from)))
    }
}

impl Undo {
    fn act(self, world: &mut World) {
        match self {
            Undo::StartAgent(region, slot) if !world.regions[region].agents[slot].is_running() => {
                world.start_agent(region, slot);
            }
            Undo::StartControl if !world.has_control() => world.start_control(),
            Undo::Reconnect(region, slot) => {
                world.network.shut(&world.regions[region].agents[slot].name, false);
            }
            Undo::StartAgent(..) | Undo::StartControl => {}
        }
    }
}
