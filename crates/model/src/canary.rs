//! Whether a new deployment does as well as the one it is to replace: a pure judgement on what both answered.

use std::{fmt, time::Duration};

use crate::traffic::{Blame, Sums};

/// What one side of a comparison answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    pub requests: u64,
    /// Answers that are blamed on the instance: a 5xx of its own, or none at all.
    pub errors: u64,
    /// What 95 of 100 answers stayed within.
    pub p95: Option<Duration>,
}

/// How much is needed before anything is said, and how bad is too bad.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// Requests that each arm needs before it can go on.
    pub requests_min: u64,
    /// Percentage points of errors above the baseline, together with `z`.
    pub error_points: f64,
    /// How unlikely it must be that the two only differ by chance: standard deviations.
    pub z: f64,
    /// The same, for taking it back before the step is over.
    pub z_at_once: f64,
    pub requests_min_at_once: u64,
    /// How much slower is too slow, together with `slower_by`.
    pub slower_times: f64,
    pub slower_by: Duration,
    pub requests_min_slower: u64,
}

/// What is to become of a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It does as well: it may have more.
    Promote,
    /// There is too little to tell.
    Wait,
    /// It does worse: it loses everything.
    RollBack(Fault),
}

/// What it does worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Errors,
    Slow,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            requests_min: 200,
            error_points: 1.0,
            z: 3.0,
            z_at_once: 5.0,
            requests_min_at_once: 50,
            slower_times: 1.5,
            slower_by: Duration::from_millis(20),
            requests_min_slower: 500,
        }
    }
}

/// Judges a canary by what it is compared with. Both failing alike is no reason to take it back.
pub fn judge(canary: &Arm, baseline: &Arm, rules: &Rules) -> Verdict {
    let least = canary.requests.min(baseline.requests);
    let z = two_proportions(canary, baseline);
    if alarms(canary, baseline, rules) {
        return Verdict::RollBack(Fault::Errors);
    }
    if least < rules.requests_min {
        return Verdict::Wait;
    }
    let points = (canary.error_rate() - baseline.error_rate()) * 100.0;
    if points >= rules.error_points && z >= rules.z {
        return Verdict::RollBack(Fault::Errors);
    }
    if least >= rules.requests_min_slower && is_slower(canary, baseline, rules) {
        return Verdict::RollBack(Fault::Slow);
    }
    Verdict::Promote
}

/// Whether it is so bad that nobody has to wait for the end of the step.
pub fn alarms(canary: &Arm, baseline: &Arm, rules: &Rules) -> bool {
    let least = canary.requests.min(baseline.requests);
    least >= rules.requests_min_at_once && two_proportions(canary, baseline) >= rules.z_at_once
}

/// How many standard deviations the canary's error rate is above the baseline's, if both were the same; nothing where that
/// cannot be said.
fn two_proportions(canary: &Arm, baseline: &Arm) -> f64 {
    let (ours, theirs) = (number(canary.requests), number(baseline.requests));
    let pooled = number(canary.errors + baseline.errors) / (ours + theirs).max(1.0);
    let deviation = (pooled * (1.0 - pooled) * (1.0 / ours.max(1.0) + 1.0 / theirs.max(1.0))).sqrt();
    if deviation > 0.0 { (canary.error_rate() - baseline.error_rate()) / deviation } else { 0.0 }
}

fn is_slower(canary: &Arm, baseline: &Arm, rules: &Rules) -> bool {
    let (Some(ours), Some(theirs)) = (canary.p95, baseline.p95) else { return false };
    ours.as_secs_f64() > theirs.as_secs_f64() * rules.slower_times
        && ours.saturating_sub(theirs) > rules.slower_by
}

impl Arm {
    /// What merged sums come to.
    pub fn of(sums: &Sums) -> Arm {
        let all = sums.counts.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let blamed = sums.counts.iter().filter(|((blame, _), _)| *blame == Blame::Upstream);
        let errors = blamed.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        Arm { requests: all, errors, p95: sums.latency.quantile(950) }
    }

    fn error_rate(&self) -> f64 {
        number(self.errors) / number(self.requests).max(1.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of an hour are far below 2^52")]
fn number(count: u64) -> f64 {
    count as f64
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests, {:.2} % errors", self.requests, self.error_rate() * 100.0)?;
        match self.p95 {
            Some(p95) => write!(f, ", p95 {:.1} ms", p95.as_secs_f64() * 1000.0),
            None => Ok(()),
        }
    }
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Promote => "promote",
            Verdict::Wait => "wait",
            Verdict::RollBack(_) => "roll_back",
        }
    }
}

impl Fault {
    pub fn as_str(self) -> &'static str {
        match self {
            Fault::Errors => "more errors",
            Fault::Slow => "slower",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::StatusClass;
    use proptest::prelude::*;

    fn arm(requests: u64, errors: u64, p95_ms: u64) -> Arm {
        Arm { requests, errors, p95: (requests > 0).then(|| Duration::from_millis(p95_ms)) }
    }

    fn check(canary: (u64, u64, u64), baseline: (u64, u64, u64)) -> Verdict {
        let of = |(requests, errors, p95): (u64, u64, u64)| arm(requests, errors, p95);
        judge(&of(canary), &of(baseline), &Rules::default())
    }

    #[test]
    fn a_canary_is_judged_by_the_page() {
        let (more, slow) = (Verdict::RollBack(Fault::Errors), Verdict::RollBack(Fault::Slow));
        let cases = [
            ("nothing at all", (0, 0, 0), (0, 0, 0), Verdict::Wait),
            ("a canary of 199", (199, 0, 10), (10_000, 0, 10), Verdict::Wait),
            ("a baseline of 199", (10_000, 0, 10), (199, 0, 10), Verdict::Wait),
            ("200 each", (200, 0, 10), (200, 0, 10), Verdict::Promote),
            ("five points more", (1000, 50, 10), (1000, 0, 10), more),
            ("half a point more, and certain", (100_000, 500, 10), (100_000, 0, 10), more),
            ("a point more by chance", (200, 3, 10), (200, 1, 10), Verdict::Promote),
            ("both fail alike", (1000, 500, 10), (1000, 500, 10), Verdict::Promote),
            ("both fail always", (1000, 1000, 10), (1000, 1000, 10), Verdict::Promote),
            ("the canary is better", (1000, 0, 10), (1000, 100, 10), Verdict::Promote),
            ("fifty and half of them bad, at once", (50, 25, 10), (50, 0, 10), more),
            ("forty-nine are too few even then", (49, 49, 10), (49, 0, 10), Verdict::Wait),
            ("twice as slow", (500, 0, 100), (500, 0, 50), slow),
            ("twice as slow with 499", (499, 0, 100), (500, 0, 50), Verdict::Promote),
            ("twice as slow and still quick", (5000, 0, 20), (5000, 0, 10), Verdict::Promote),
            ("half as slow again", (5000, 0, 150), (5000, 0, 100), Verdict::Promote),
            ("a bit more than half", (5000, 0, 151), (5000, 0, 100), slow),
        ];
        for (name, canary, baseline, verdict) in cases {
            assert_eq!(check(canary, baseline), verdict, "{name}");
        }
    }

    #[test]
    fn half_a_point_is_taken_back_only_when_it_is_certain() {
        // Above a point it takes z ≥ 3; below it, only z ≥ 5 is enough.
        assert_eq!(check((10_000, 80, 10), (10_000, 30, 10)), Verdict::Promote);
        assert_eq!(check((10_000, 140, 10), (10_000, 30, 10)), Verdict::RollBack(Fault::Errors));
    }

    #[test]
    fn only_what_is_blamed_on_the_instance_is_an_error() {
        let class = |digit| StatusClass::new(digit).unwrap();
        let mut sums = Sums::default();
        sums.counts.insert((Blame::None, class(2)), 90);
        sums.counts.insert((Blame::Client, class(4)), 5);
        sums.counts.insert((Blame::Platform, class(5)), 3);
        sums.counts.insert((Blame::Upstream, class(5)), 2);
        let arm = Arm::of(&sums);
        assert_eq!((arm.requests, arm.errors), (100, 2));
        assert_eq!(arm.to_string(), "100 requests, 2.00 % errors");
    }

    proptest! {
        #[test]
        fn more_evidence_never_turns_a_rollback_into_a_promotion(
            canary in 1_u64..2000, bad in 0_u64..2000, baseline in 1_u64..2000, worse in 0_u64..2000, times in 2_u64..20,
            ours in 1_u64..500, theirs in 1_u64..500,
        ) {
            // The same again, so many times over: nothing but more of the same evidence.
            let small = (arm(canary, bad.min(canary), ours), arm(baseline, worse.min(baseline), theirs));
            let more = |arm: &Arm| Arm { requests: arm.requests * times, errors: arm.errors * times, ..*arm };
            let rules = Rules::default();
            if let Verdict::RollBack(_) = judge(&small.0, &small.1, &rules) {
                let verdict = judge(&more(&small.0), &more(&small.1), &rules);
                prop_assert!(matches!(verdict, Verdict::RollBack(_)), "{:?} became {:?}", small, verdict);
            }
        }

        #[test]
        fn another_error_of_the_canary_never_helps_it(
            canary in 1_u64..2000, bad in 0_u64..1999, baseline in 1_u64..2000, worse in 0_u64..2000,
        ) {
            let baseline = arm(baseline, worse.min(baseline), 10);
            let (one, two) = (arm(canary, bad.min(canary), 10), arm(canary, (bad + 1).min(canary), 10));
            let rules = Rules::default();
            if let Verdict::RollBack(_) = judge(&one, &baseline, &rules) {
                prop_assert!(matches!(judge(&two, &baseline, &rules), Verdict::RollBack(_)));
            }
        }
    }
}
