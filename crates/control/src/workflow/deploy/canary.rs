//! A canary under way: what it answered is compared, and it gets more, waits, or loses what it has. Pure.

use std::time::Duration;

use model::{
    canary::{Verdict, alarms, judge},
    deployment::StepKind,
    size::Percent,
    time::Millis,
};

use super::{Act, Facts, Judged, Step, fail};
use crate::{
    config::DeployConfig,
    workflow::{
        network,
        state::{Canary, Deploy},
    },
};

/// How often it is looked at, at most: sums are kept in buckets of five seconds.
const LOOK: Duration = Duration::from_secs(5);

/// And at least, however short its steps are.
const LOOK_MIN: Duration = Duration::from_millis(100);

pub(super) fn step(
    state: &Deploy,
    canary: &Canary,
    steps: &[Percent],
    pause: Duration,
    facts: &Facts,
    config: &DeployConfig,
    now: Millis,
) -> Step {
    let id = facts.deployment.id;
    match network::share_of(&facts.routes, id) {
        // Somebody promoted it, or took it back, while it was under way.
        Some(100) => return Step::Act(Act::Switch { judged: None }),
        None | Some(0) => {
            return fail(StepKind::Network, "RolledBack", "somebody took it back".to_owned());
        }
        Some(_) => {}
    }
    let look = pause.clamp(LOOK_MIN, LOOK);
    let rules = config.rules();
    let (ours, theirs) = facts.arms;
    let share = steps[canary.step].get();
    let figures = format!("canary: {ours}; baseline: {theirs}");
    let judged = |verdict: Verdict| Judged {
        verdict: verdict.as_str(),
        share,
        reason: reason(verdict),
        figures: figures.clone(),
    };
    if alarms(&ours, &theirs, &rules) {
        let verdict = Verdict::RollBack(model::canary::Fault::Errors);
        return Step::Act(Act::Unweigh { judged: judged(verdict) });
    }
    let began = Millis(canary.since);
    if canary.paused {
        return Step::Wait(now.after(look));
    }
    if now < began.after(pause) {
        return Step::Wait(began.after(pause).min(now.after(look)));
    }
    let verdict = judge(&ours, &theirs, &rules);
    match verdict {
        Verdict::RollBack(_) => Step::Act(Act::Unweigh { judged: judged(verdict) }),
        Verdict::Promote => {
            let next = canary.step + 1;
            match steps.get(next).filter(|share| share.get() < 100) {
                Some(_) => Step::Act(Act::Weigh {
                    step: next,
                    baseline: canary.baseline,
                    judged: Some(judged(verdict)),
                }),
                None => Step::Act(Act::Switch { judged: Some(judged(verdict)) }),
            }
        }
        Verdict::Wait if now < began.after(pause + config.canary_extension) => {
            Step::Wait(began.after(pause + config.canary_extension).min(now.after(look)))
        }
        Verdict::Wait => {
            let paused = Some(Canary { paused: true, ..canary.clone() });
            let state = Box::new(Deploy { canary: paused, ..state.clone() });
            Step::Act(Act::Pause { state, judged: judged(verdict) })
        }
    }
}

fn reason(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Promote => "as good as what it replaces",
        Verdict::Wait => "not enough traffic",
        Verdict::RollBack(fault) => fault.as_str(),
    }
}
