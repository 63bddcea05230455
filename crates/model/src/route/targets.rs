//! The deployments that share a route, and which of them a request gets.

use crate::{
    id::DeploymentId,
    invalid::{Invalid, Problems},
    limits,
    size::Percent,
};
use std::sync::Arc;

/// Deployments with weights: each once, not all of them zero, newest first.
///
/// The order is the same whatever order they were given in. A client's hash points at a place on the line of
/// cumulated weights, so while the first of them grows, nobody who has it is sent elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets(Arc<[Target]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub deployment: DeploymentId,
    /// Its part of the sum of all weights.
    pub weight: u32,
}

impl Targets {
    pub fn new(mut targets: Vec<Target>) -> Result<Targets, Invalid> {
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        let max = limits::ROUTE_TARGETS;
        whole.require(targets.len() <= max, format!("there are at most {max} targets"));
        whole.require(targets.iter().any(|target| target.weight > 0), "one target must have a weight");
        for (index, target) in targets.iter().enumerate() {
            let mut this = whole.index(index);
            let is_first = targets[..index].iter().all(|earlier| earlier.deployment != target.deployment);
            this.field("deployment").require(is_first, format!("{} is there already", target.deployment));
            let is_bounded = target.weight <= limits::ROUTE_WEIGHT;
            this.field("weight").require(is_bounded, format!("is at most {}", limits::ROUTE_WEIGHT));
        }
        targets.sort_by_key(|target| std::cmp::Reverse(target.deployment));
        problems.finish(Targets(targets.into()))
    }

    /// All to one.
    pub fn one(deployment: DeploymentId) -> Targets {
        Targets([Target { deployment, weight: 100 }].into())
    }

    /// This share to the canary, the rest to what it is compared with.
    pub fn canary(canary: DeploymentId, baseline: DeploymentId, share: Percent) -> Result<Targets, Invalid> {
        let weights = [(canary, share.get()), (baseline, 100 - share.get())];
        Targets::new(weights.map(|(deployment, weight)| Target { deployment, weight }).into())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Target> {
        self.0.iter()
    }

    /// The one with the most weight; of equals the newest.
    pub fn heaviest(&self) -> DeploymentId {
        let heavier = |best: Target, next: &Target| if next.weight > best.weight { *next } else { best };
        let (first, rest) = self.0.split_first().expect("there is a target with a weight");
        rest.iter().fold(*first, heavier).deployment
    }

    /// The deployment for a point on the line: a client's hash, or a random number.
    pub fn choose(&self, point: u64) -> DeploymentId {
        let total: u128 = self.0.iter().map(|target| u128::from(target.weight)).sum();
        // Scaled rather than taken modulo: the place on the line does not depend on how the weights are written.
        let place = (u128::from(point) * total) >> u64::BITS;
        let mut passed = 0;
        let target = self.0.iter().find(|target| {
            passed += u128::from(target.weight);
            place < passed
        });
        target.expect("the place is below the sum of the weights").deployment
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(number: u128) -> DeploymentId {
        DeploymentId::sample(number)
    }

    fn targets(weights: &[(u128, u32)]) -> Result<Targets, Invalid> {
        let target = |(number, weight): &(u128, u32)| Target { deployment: id(*number), weight: *weight };
        Targets::new(weights.iter().map(target).collect())
    }

    fn percent(share: u32) -> Percent {
        Percent::new(share.into()).unwrap()
    }

    #[test]
    fn weights_that_route_nothing_are_refused() {
        assert!(targets(&[]).is_err());
        assert_eq!(targets(&[(1, 0)]).unwrap_err().to_string(), "one target must have a weight");
        assert!(targets(&[(1, 0), (2, 1)]).is_ok());
    }

    #[test]
    fn a_deployment_is_there_once() {
        let invalid = targets(&[(1, 5), (2, 5), (1, 10_001)]).unwrap_err();
        let fields: Vec<&str> = invalid.problems().iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, ["[2].deployment", "[2].weight"]);
        let many: Vec<(u128, u32)> = (0..17).map(|number| (number, 1)).collect();
        assert!(targets(&many[..16]).is_ok() && targets(&many).is_err());
    }

    #[test]
    fn the_heaviest_has_the_most_weight() {
        assert_eq!(targets(&[(1, 5), (2, 9), (3, 0)]).unwrap().heaviest(), id(2));
        assert_eq!(targets(&[(1, 5), (2, 5)]).unwrap().heaviest(), id(2));
    }

    fn any_targets() -> impl Strategy<Value = Targets> {
        proptest::collection::vec(0_u32..=10_000, 1..=16).prop_filter_map("all zero", |weights| {
            let numbered: Vec<(u128, u32)> = (1..).zip(weights).collect();
            targets(&numbered).ok()
        })
    }

    proptest! {
        #[test]
        fn a_target_without_weight_gets_nothing(targets in any_targets(), point: u64) {
            let chosen = targets.choose(point);
            let target = targets.iter().find(|target| target.deployment == chosen);
            prop_assert!(target.is_some_and(|target| target.weight > 0));
        }

        #[test]
        fn shares_are_what_the_weights_say(targets in any_targets()) {
            const POINTS: u32 = 1000;
            let total: u32 = targets.iter().map(|target| target.weight).sum();
            let evenly = || (0..POINTS).map(|step| u64::from(step) * (u64::MAX / u64::from(POINTS)));
            for target in targets.iter() {
                let got = evenly().filter(|point| targets.choose(*point) == target.deployment).count();
                let wanted = f64::from(target.weight) / f64::from(total) * f64::from(POINTS);
                prop_assert!((f64::from(u32::try_from(got).unwrap()) - wanted).abs() <= 2.0);
            }
        }

        #[test]
        fn a_growing_canary_never_throws_a_client_back(
            point: u64, share in 1_u32..100, more in 1_u32..100, is_newer: bool,
        ) {
            let (canary, baseline) = if is_newer { (id(2), id(1)) } else { (id(1), id(2)) };
            let small = Targets::canary(canary, baseline, percent(share)).unwrap();
            let large = Targets::canary(canary, baseline, percent((share + more).min(100))).unwrap();
            if small.choose(point) == canary {
                prop_assert_eq!(large.choose(point), canary);
            }
            prop_assert_eq!(Targets::one(canary).choose(point), canary);
        }

        #[test]
        fn the_newest_of_many_grows_without_throwing_a_client_back(
            point: u64, old in proptest::collection::vec(1_u32..100, 1..10), weight in 1_u32..100, more in 1_u32..100,
        ) {
            let with = |weight| {
                let mut weights: Vec<(u128, u32)> = (1..).zip(old.iter().copied()).collect();
                weights.push((99, weight));
                targets(&weights).unwrap()
            };
            if with(weight).choose(point) == id(99) {
                prop_assert_eq!(with(weight + more).choose(point), id(99));
            }
        }

        #[test]
        fn the_order_they_were_given_in_does_not_matter(
            weights in Just((1..=6_u128).zip([5, 0, 9, 1, 100, 3]).collect::<Vec<_>>()).prop_shuffle(), point: u64,
        ) {
            let sorted: Vec<(u128, u32)> = (1..=6).zip([5, 0, 9, 1, 100, 3]).collect();
            let (shuffled, sorted) = (targets(&weights).unwrap(), targets(&sorted).unwrap());
            prop_assert_eq!(shuffled.choose(point), sorted.choose(point));
            prop_assert_eq!(shuffled, sorted);
        }
    }
}
