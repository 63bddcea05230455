//! How traffic moves from one deployment to the next.

use crate::{
    choice::choice,
    invalid::{Invalid, Problems},
    limits,
    size::{Percent, Seconds},
};
use std::sync::Arc;

/// The way a new deployment takes over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Strategy {
    /// All at once.
    #[default]
    Immediate,
    /// All at once, and what it replaces is kept warm for a while.
    BlueGreen { keep: Seconds },
    /// A growing share, judged at each step.
    Canary { steps: CanarySteps, pause: Seconds },
}

/// Growing shares of the traffic; the last is all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanarySteps(Arc<[Percent]>);

choice! {
    /// What a strategy is called.
    "a strategy" StrategyKind {
        Immediate = "immediate",
        BlueGreen = "blue_green",
        Canary = "canary",
    }
}

impl Strategy {
    /// A strategy of this kind, with its defaults.
    pub fn of(kind: StrategyKind) -> Strategy {
        match kind {
            StrategyKind::Immediate => Strategy::Immediate,
            StrategyKind::BlueGreen => Strategy::BlueGreen { keep: Seconds::constant(30 * 60) },
            StrategyKind::Canary => {
                Strategy::Canary { steps: CanarySteps::default(), pause: Seconds::constant(2 * 60) }
            }
        }
    }

    pub fn kind(&self) -> StrategyKind {
        match self {
            Strategy::Immediate => StrategyKind::Immediate,
            Strategy::BlueGreen { .. } => StrategyKind::BlueGreen,
            Strategy::Canary { .. } => StrategyKind::Canary,
        }
    }
}

impl CanarySteps {
    pub fn new(steps: Vec<Percent>) -> Result<CanarySteps, Invalid> {
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        let max = limits::CANARY_STEPS;
        whole.require(steps.len() <= max, format!("there are at most {max} steps"));
        whole.require(steps.last() == Some(&Percent::MAX), "the last step must be 100");
        for (index, pair) in steps.windows(2).enumerate() {
            whole.index(index + 1).require(pair[0] < pair[1], "must be above the step before");
        }
        problems.finish(CanarySteps(steps.into()))
    }

    pub fn as_slice(&self) -> &[Percent] {
        &self.0
    }
}

impl Default for CanarySteps {
    fn default() -> CanarySteps {
        let percent = |share| Percent::new(share).expect("a share");
        CanarySteps([5, 25, 50, 100].map(percent).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    fn steps(shares: &[i64]) -> Result<CanarySteps, Invalid> {
        CanarySteps::new(shares.iter().map(|share| Percent::new(*share).unwrap()).collect())
    }

    #[test]
    fn a_canary_grows_to_everything() {
        assert_eq!(steps(&[5, 25, 50, 100]), Ok(CanarySteps::default()));
        assert!(steps(&[100]).is_ok());
        assert_eq!(steps(&[]).unwrap_err().to_string(), "the last step must be 100");
        assert_eq!(
            steps(&[50, 50, 25]).unwrap_err().to_string(),
            "the last step must be 100; [1]: must be above the step before; [2]: must be above the step before"
        );
    }

    #[test]
    fn every_kind_of_strategy_has_defaults() {
        for kind in StrategyKind::ALL {
            assert_eq!(Strategy::of(*kind).kind(), *kind);
        }
    }

    proptest! {
        #[test]
        fn steps_that_exist_only_grow(shares in proptest::collection::vec(1_i64..=100, 0..30)) {
            if let Ok(steps) = steps(&shares) {
                prop_assert!(steps.as_slice().is_sorted());
                prop_assert!(steps.as_slice().len() <= limits::CANARY_STEPS);
            }
        }
    }
}
