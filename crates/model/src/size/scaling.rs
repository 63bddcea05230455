//! How many instances run in one place.

use super::{Replicas, Threshold};
use crate::{invalid::Invalid, limits};

/// A fixed number of instances, or an autoscaler's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scaling {
    Fixed(Replicas),
    Auto(Autoscaling),
}

/// Bounds and goals of an autoscaler: 1 ≤ min ≤ max.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Autoscaling {
    min: Replicas,
    max: Replicas,
    cpu: Threshold,
    memory: Option<Threshold>,
}

impl Scaling {
    /// The fewest instances that may run.
    pub fn min(&self) -> Replicas {
        match self {
            Scaling::Fixed(replicas) => *replicas,
            Scaling::Auto(auto) => auto.min,
        }
    }

    /// The most instances that may run: what quotas count.
    pub fn max(&self) -> Replicas {
        match self {
            Scaling::Fixed(replicas) => *replicas,
            Scaling::Auto(auto) => auto.max,
        }
    }

    /// The bounds, if there is anything for an autoscaler to decide.
    pub fn autoscaler(&self) -> Option<Autoscaling> {
        match self {
            Scaling::Auto(auto) if auto.min != auto.max => Some(*auto),
            Scaling::Auto(_) | Scaling::Fixed(_) => None,
        }
    }
}

impl Default for Scaling {
    fn default() -> Scaling {
        Scaling::Fixed(Replicas::ONE)
    }
}

impl Autoscaling {
    /// Bounds and goals; without a word about cpu, [`Threshold::DEFAULT_CPU`].
    pub fn new(
        min: Replicas,
        max: Replicas,
        cpu: Option<Threshold>,
        memory: Option<Threshold>,
    ) -> Result<Autoscaling, Invalid> {
        if min.get() < limits::AUTOSCALING_MIN {
            return Err(Invalid::one("min", format!("must be at least {}", limits::AUTOSCALING_MIN)));
        }
        if min > max {
            return Err(Invalid::one("min", format!("is {min}, above max, which is {max}")));
        }
        Ok(Autoscaling { min, max, cpu: cpu.unwrap_or(Threshold::DEFAULT_CPU), memory })
    }

    pub fn min(&self) -> Replicas {
        self.min
    }

    pub fn max(&self) -> Replicas {
        self.max
    }

    pub fn cpu(&self) -> Threshold {
        self.cpu
    }

    pub fn memory(&self) -> Option<Threshold> {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn auto(min: u32, max: u32) -> Result<Autoscaling, Invalid> {
        let replicas = |number: u32| Replicas::new(number.into()).unwrap();
        Autoscaling::new(replicas(min), replicas(max), None, None)
    }

    #[test]
    fn an_autoscaler_never_goes_down_to_nothing() {
        assert_eq!(auto(0, 3).unwrap_err().to_string(), "min: must be at least 1");
        assert_eq!(auto(4, 3).unwrap_err().to_string(), "min: is 4, above max, which is 3");
        assert_eq!(auto(1, 3).unwrap().cpu(), Threshold::DEFAULT_CPU);
    }

    #[test]
    fn equal_bounds_need_no_autoscaler() {
        assert_eq!(Scaling::Auto(auto(3, 3).unwrap()).autoscaler(), None);
        assert_eq!(Scaling::Auto(auto(2, 3).unwrap()).autoscaler(), auto(2, 3).ok());
        assert_eq!(Scaling::default().autoscaler(), None);
    }

    proptest! {
        #[test]
        fn bounds_that_exist_are_in_order(min in 0_u32..=1000, max in 0_u32..=1000) {
            match auto(min, max) {
                Ok(auto) => prop_assert!(1 <= min && auto.min() <= auto.max()),
                Err(_) => prop_assert!(min < 1 || min > max),
            }
        }
    }
}
