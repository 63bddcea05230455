//! A new image or size on its way through the fleet of sentinels, one after the other.

use std::{collections::BTreeMap, fmt};

use crate::{
    choice::choice,
    id::{RolloutId, SentinelId},
    name::{ImageRef, Message},
    sentinel::Desired,
    size::{CpuMillis, MemoryMib},
    time::Millis,
};

/// A rollout as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetRollout {
    pub id: RolloutId,
    pub target: FleetTarget,
    pub state: RolloutState,
    /// It takes back what it did. A pause keeps the direction.
    pub back: bool,
    /// The last sentinel that runs with the target; those after it come next, in the order of their ids.
    pub position: Option<SentinelId>,
    /// Why it is paused.
    pub reason: Option<Message>,
    /// What each sentinel had that it was told to change. One beyond the position is under way.
    pub previous: BTreeMap<SentinelId, Fit>,
    pub created_at: Millis,
    pub updated_at: Millis,
}

/// What sentinels are to have; what is not named stays as each has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetTarget {
    pub image: Option<ImageRef>,
    pub cpu: Option<CpuMillis>,
    pub memory: Option<MemoryMib>,
}

/// What one sentinel has of what a rollout can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    pub image: ImageRef,
    pub cpu: CpuMillis,
    pub memory: MemoryMib,
}

choice! {
    /// How far a rollout is.
    "a rollout's state" RolloutState {
        Running = "running",
        /// It waits for somebody: to resume, cancel or roll it back.
        Paused = "paused",
        RollingBack = "rolling_back",
        Done = "done",
        Cancelled = "cancelled",
        RolledBack = "rolled_back",
    }
}

impl RolloutState {
    /// Whether something can still be asked of it. There is one such rollout at a time.
    pub fn is_open(self) -> bool {
        match self {
            RolloutState::Running | RolloutState::Paused | RolloutState::RollingBack => true,
            RolloutState::Done | RolloutState::Cancelled | RolloutState::RolledBack => false,
        }
    }
}

impl FleetRollout {
    /// The sentinel that was told and has not come to run with it, if there is one.
    pub fn under_way(&self) -> Option<SentinelId> {
        let (last, _) = self.previous.last_key_value()?;
        Some(*last).filter(|last| self.back || self.position.is_none_or(|position| *last > position))
    }
}

impl FleetTarget {
    pub fn is_empty(&self) -> bool {
        *self == FleetTarget::default()
    }

    /// What a sentinel that has this is to have.
    #[must_use]
    pub fn over(&self, fit: Fit) -> Fit {
        Fit {
            image: self.image.clone().unwrap_or(fit.image),
            cpu: self.cpu.unwrap_or(fit.cpu),
            memory: self.memory.unwrap_or(fit.memory),
        }
    }

    /// The same, and what it does not name from another.
    #[must_use]
    pub fn or(self, other: FleetTarget) -> FleetTarget {
        FleetTarget {
            image: self.image.or(other.image),
            cpu: self.cpu.or(other.cpu),
            memory: self.memory.or(other.memory),
        }
    }
}

impl Fit {
    pub fn of(desired: &Desired) -> Fit {
        Fit { image: desired.image.clone(), cpu: desired.cpu, memory: desired.memory }
    }

    /// The desired state with this in it.
    #[must_use]
    pub fn onto(self, desired: Desired) -> Desired {
        Desired { image: self.image, cpu: self.cpu, memory: self.memory, ..desired }
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} m, {} MiB", self.image, self.cpu.get(), self.memory.get())
    }
}

#[cfg(any(test, feature = "sample"))]
impl FleetRollout {
    /// One that has just begun, with another image.
    pub fn sample() -> FleetRollout {
        FleetRollout {
            id: RolloutId::sample(1),
            target: FleetTarget { image: "krane/sentinel:2".parse().ok(), ..FleetTarget::default() },
            state: RolloutState::Running,
            back: false,
            position: None,
            reason: None,
            previous: BTreeMap::new(),
            created_at: Millis(1_700_000_000_000),
            updated_at: Millis(1_700_000_000_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sentinel::Sentinel;

    #[test]
    fn a_target_changes_only_what_it_names() {
        let fit = Fit::of(&Sentinel::sample().desired);
        let target = FleetTarget { cpu: CpuMillis::new(500).ok(), ..FleetTarget::default() };
        let changed = target.over(fit.clone());
        assert_eq!((changed.cpu.get(), &changed.image, changed.memory), (500, &fit.image, fit.memory));
        assert_eq!(FleetTarget::default().over(fit.clone()), fit);
        assert!(FleetTarget::default().is_empty() && !target.is_empty());
    }

    #[test]
    fn one_that_was_told_and_not_passed_is_under_way() {
        let fit = Fit::of(&Sentinel::sample().desired);
        let (first, second) = (SentinelId::sample(1), SentinelId::sample(2));
        let mut rollout = FleetRollout::sample();
        assert_eq!(rollout.under_way(), None);
        rollout.previous.insert(first, fit.clone());
        assert_eq!(rollout.under_way(), Some(first));
        rollout.position = Some(first);
        assert_eq!(rollout.under_way(), None);
        rollout.previous.insert(second, fit);
        assert_eq!(rollout.under_way(), Some(second));
        let back = FleetRollout { back: true, position: Some(second), ..rollout };
        assert_eq!(back.under_way(), Some(second), "the way back begins with the last");
    }
}
