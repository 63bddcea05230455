//! How many pods each replica set of a deployment shall have next.

use serde_json::Value;

/// What a rollout may do at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rollout {
    desired: i64,
    /// So many more than desired may there be.
    surge: i64,
    /// So many fewer may be available.
    pub unavailable: i64,
}

/// One replica set, as a rollout sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set {
    pub wanted: i64,
    pub available: i64,
}

impl Rollout {
    pub fn of(spec: &Value) -> Rollout {
        let desired = spec["replicas"].as_i64().unwrap_or(1);
        let rolling = &spec["strategy"]["rollingUpdate"];
        let is_recreated = spec["strategy"]["type"] == "Recreate";
        let surge = if is_recreated { 0 } else { amount(&rolling["maxSurge"], desired, true) };
        let unavailable =
            if is_recreated { desired } else { amount(&rolling["maxUnavailable"], desired, false) };
        // With neither nothing could ever move.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable.min(desired) };
        Rollout { desired, surge, unavailable }
    }

    /// What the new set and the old ones, the oldest first, shall have.
    pub fn step(self, new: Set, old: &[Set]) -> (i64, Vec<i64>) {
        let old_total: i64 = old.iter().map(|set| set.wanted).sum();
        let room = (self.desired + self.surge - new.wanted - old_total).max(0);
        let next = (new.wanted + room).min(self.desired);
        // Pods of the new set that are not there yet are no reason to take an old one away.
        let new = Set { wanted: next, ..new };
        (next, self.shrunk(new, old))
    }

    fn shrunk(self, new: Set, old: &[Set]) -> Vec<i64> {
        let total = new.wanted + old.iter().map(|set| set.wanted).sum::<i64>();
        let least = self.desired - self.unavailable;
        let mut wanted: Vec<i64> = old.iter().map(|set| set.wanted).collect();
        // What is of no use goes first, however many are available.
        let mut may_go = (total - least - (new.wanted - new.available).max(0)).max(0);
        for (wanted, set) in wanted.iter_mut().zip(old) {
            let useless = (*wanted - set.available).clamp(0, may_go);
            *wanted -= useless;
            may_go -= useless;
        }
        let available = new.available.min(new.wanted) + old.iter().map(|set| set.available).sum::<i64>();
        let mut spare = (available - least).max(0);
        for wanted in &mut wanted {
            let gone = (*wanted).min(spare);
            *wanted -= gone;
            spare -= gone;
        }
        wanted
    }
}

/// A number, or a part of all in percent.
fn amount(value: &Value, of: i64, is_rounded_up: bool) -> i64 {
    match value {
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            if !text.ends_with('%') {
                return percent;
            }
            let hundredths = of * percent;
            if is_rounded_up { (hundredths + 99) / 100 } else { hundredths / 100 }
        }
        value => value.as_i64().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rollout(desired: u32, surge: Value, unavailable: Value) -> Rollout {
        Rollout::of(&json!({ "replicas": desired, "strategy": {
            "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable },
        }}))
    }

    fn set(wanted: i64, available: i64) -> Set {
        Set { wanted, available }
    }

    #[test]
    fn a_part_is_rounded_so_that_no_more_go_than_may() {
        assert_eq!(rollout(3, json!("25%"), json!("25%")), Rollout { desired: 3, surge: 1, unavailable: 0 });
        assert_eq!(rollout(3, json!(0), json!(0)), Rollout { desired: 3, surge: 0, unavailable: 1 });
    }

    /// Runs a rollout whose new pods are well, and says how many of both there were at each step.
    fn steps(rollout: Rollout, mut old: Set) -> Vec<(i64, i64)> {
        let mut new = set(0, 0);
        let mut steps = Vec::new();
        loop {
            let (next, wanted) = rollout.step(new, &[old]);
            let (before_new, before_old) = (new, old);
            new.wanted = next;
            old = set(wanted[0], old.available.min(wanted[0]));
            steps.push((new.wanted, old.wanted));
            if (new.wanted, old.wanted) == (before_new.wanted, before_old.wanted) {
                if new.available == new.wanted {
                    return steps;
                }
                new.available = new.wanted;
            }
        }
    }

    #[test]
    fn one_more_at_a_time_and_never_one_fewer() {
        let mut seen = steps(rollout(2, json!(1), json!(0)), set(2, 2));
        seen.dedup();
        assert_eq!(seen, [(1, 2), (1, 1), (2, 1), (2, 0)]);
    }

    #[test]
    fn old_pods_that_are_of_no_use_go_at_once() {
        let (new, old) = rollout(3, json!(1), json!(0)).step(set(1, 0), &[set(3, 2)]);
        assert_eq!((new, old), (1, vec![3]), "that one of three is broken leaves none to spare");
        let (_, old) = rollout(3, json!(1), json!(1)).step(set(1, 0), &[set(3, 2)]);
        assert_eq!(old, [2]);
    }

    #[test]
    fn a_deployment_at_rest_is_scaled_at_once() {
        assert_eq!(rollout(5, json!(1), json!(0)).step(set(2, 2), &[]).0, 5);
        assert_eq!(rollout(0, json!(1), json!(0)).step(set(2, 2), &[set(0, 0)]), (0, vec![0]));
    }
}
