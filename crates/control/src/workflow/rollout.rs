//! A rollout through the fleet: the next sentinel only when the last runs with the new image and is healthy.
//!
//! ```text
//! running ─ told ─▶ under way ─ rolled ─▶ the next … ─▶ done
//!                      └ it fails ─▶ paused: resume, cancel, or roll back, which goes the same way in reverse
//! ```
//!
//! While a rollout is paused there is no workflow: resuming or rolling back begins one.

use std::time::Duration;

use model::{
    cluster::ApplyReason,
    deployment::DesiredState,
    id::{RolloutId, SentinelId},
    name::Message,
    rollout::{Fit, FleetRollout, RolloutState},
    sentinel::{Health, Observed, Rollout, Sentinel},
    time::Millis,
    workflow::WorkflowCommit,
};
use store::{Workflow, Write};

use super::{
    hand::{self, Decision, Hand, Next},
    state::{self, passed},
};
use crate::{config::DeployConfig, event::Draft};

/// A commit of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// This sentinel is to have what the rollout brings, or what it had.
    Tell(SentinelId),
    /// It does, or it is gone.
    Pass(SentinelId),
    /// It does not come to.
    Pause(SentinelId, String),
    End,
}

/// How long nothing is looked at if nothing happens: somebody may have asked for a pause.
const LOOK: Duration = Duration::from_secs(5);

/// Sentinels that are looked through in one read.
const PAGE: u32 = 100;

impl Act {
    pub(crate) fn name(&self) -> WorkflowCommit {
        match self {
            Act::Tell(_) => WorkflowCommit::SentinelTold,
            Act::Pass(_) => WorkflowCommit::SentinelRolled,
            Act::Pause(..) => WorkflowCommit::RolloutPaused,
            Act::End => WorkflowCommit::RolloutEnded,
        }
    }
}

/// What is known when a step is decided.
struct Facts {
    rollout: FleetRollout,
    /// The one that is under way, if it is still there.
    under_way: Option<(Sentinel, Observed)>,
    /// The first that has something else than what the rollout brings.
    next: Option<SentinelId>,
}

pub(crate) async fn decide(hand: &Hand<'_>) -> store::Result<Decision> {
    let state: state::Rollout = state::decode(&hand.workflow.state)?;
    let store = &hand.shared.store;
    let rollout = store.rollout(subject(&hand.workflow)?).await?;
    let under_way = match rollout.under_way() {
        Some(id) => there(store.sentinel(id).await)?,
        None => None,
    };
    let mut next = None;
    if rollout.under_way().is_none() {
        let mut after = rollout.position;
        loop {
            let page = store.list_sentinels(None, None, after, PAGE).await?;
            next = first_other(&rollout, &page);
            after = page.last().map(|(last, _)| last.id);
            if next.is_some() || page.len() < PAGE as usize {
                break;
            }
        }
    }
    let facts = Facts { rollout, under_way, next };
    Ok(match step(&state, &facts, &hand.shared.config, hand.now()) {
        Ok(act) => Decision::Act(hand::Act::Rollout(act)),
        Err(until) => Decision::Wait(until),
    })
}

fn first_other(rollout: &FleetRollout, page: &[(Sentinel, Observed)]) -> Option<SentinelId> {
    let is_other = |sentinel: &Sentinel| {
        let fit = Fit::of(&sentinel.desired);
        rollout.target.over(fit.clone()) != fit
    };
    page.iter().find(|(sentinel, _)| is_other(sentinel)).map(|(sentinel, _)| sentinel.id)
}

/// One step, by what is known; else until when there is nothing to do.
fn step(state: &state::Rollout, facts: &Facts, config: &DeployConfig, now: Millis) -> Result<Act, Millis> {
    let Facts { rollout, under_way, next } = facts;
    match rollout.state {
        RolloutState::Running | RolloutState::RollingBack => {}
        RolloutState::Paused | RolloutState::Done | RolloutState::Cancelled | RolloutState::RolledBack => {
            return Ok(Act::End);
        }
    }
    let Some(id) = rollout.under_way() else {
        return Ok(next.filter(|_| !rollout.back).map_or(Act::End, Act::Tell));
    };
    let Some((sentinel, seen)) = under_way else { return Ok(Act::Pass(id)) };
    if rollout.back && rollout.previous.get(&id) != Some(&Fit::of(&sentinel.desired)) {
        return Ok(Act::Tell(id));
    }
    if has_rolled(rollout, sentinel, seen, passed(state.since, now), config) {
        return Ok(Act::Pass(id));
    }
    if let Some(why) = trouble(sentinel, seen, passed(state.since, now), config) {
        return Ok(Act::Pause(id, why));
    }
    let settled = Some(Millis(state.since).after(config.rollout_settle)).filter(|settled| *settled > now);
    let last = Millis(state.since).after(config.rollout).min(now.after(LOOK));
    Err(settled.map_or(last, |settled| settled.min(last)))
}

/// Whether a sentinel runs with what it was told. What it ran before is still told of it for a moment: only another
/// image, or some time, shows that it is no old news.
fn has_rolled(
    rollout: &FleetRollout,
    sentinel: &Sentinel,
    seen: &Observed,
    since: Duration,
    config: &DeployConfig,
) -> bool {
    let desired = &sentinel.desired;
    if desired.state == DesiredState::Stopped || desired.replicas.get() == 0 {
        return true;
    }
    let before = rollout.previous.get(&sentinel.id).map(|fit| &fit.image);
    let is_news = !rollout.back && before != Some(&desired.image);
    let is_well = seen.health == Health::Healthy && seen.apply_error.is_none();
    is_well
        && seen.running_image.as_ref() == Some(&desired.image)
        && (is_news || since >= config.rollout_settle)
}

/// Why a rollout must not go on: what is refused stays refused, once that is no word about what it had before; everything
/// else has its time.
fn trouble(sentinel: &Sentinel, seen: &Observed, since: Duration, config: &DeployConfig) -> Option<String> {
    let place = &sentinel.placement;
    if let Some(error) = seen.apply_error.as_ref().filter(|_| since >= config.rollout_settle) {
        match error.reason {
            ApplyReason::Invalid | ApplyReason::Refused | ApplyReason::Forbidden | ApplyReason::Conflict => {
                return Some(format!("{} in {place}: {}: {}", sentinel.id, error.reason, error.message));
            }
            ApplyReason::Secrets | ApplyReason::Unavailable => {}
        }
    }
    let wanted = sentinel.desired.replicas.get();
    (since >= config.rollout).then(|| {
        format!(
            "{} in {place} is not healthy with {} after {} s: {} of {wanted} can take requests",
            sentinel.id,
            sentinel.desired.image,
            since.as_secs(),
            seen.available.get(),
        )
    })
}

pub(crate) async fn perform(
    hand: &Hand<'_>,
    write: &mut Write,
    draft: &Draft,
    act: &Act,
) -> store::Result<Next> {
    let state: state::Rollout = state::decode(&hand.workflow.state)?;
    let draft = &draft.of_change(state.change);
    // Before every sentinel: whoever pauses it is before or after this, and never in between.
    let rollout = write.lock_rollout(subject(&hand.workflow)?).await?;
    let rollout = FleetRollout { updated_at: draft.at(), ..rollout };
    if !matches!(rollout.state, RolloutState::Running | RolloutState::RollingBack) {
        return Ok(match act {
            Act::End => Next::End { step: rollout.state.as_str(), state: state::encode(&state) },
            Act::Tell(_) | Act::Pass(_) | Act::Pause(..) => Next::Again,
        });
    }
    match act {
        Act::Tell(id) => tell(write, draft, rollout, *id, state).await,
        Act::Pass(id) => pass(hand, write, draft, rollout, *id, state).await,
        Act::Pause(id, why) => {
            if rollout.under_way() != Some(*id) {
                return Ok(Next::Again);
            }
            write.set_rollout(*id, Rollout::Failed).await?;
            let reason = Some(Message::cut(why));
            write.put_rollout(&FleetRollout { state: RolloutState::Paused, reason, ..rollout }).await?;
            Ok(Next::End { step: "paused", state: state::encode(&state) })
        }
        Act::End => end(write, rollout, &state).await,
    }
}

async fn tell(
    write: &mut Write,
    draft: &Draft,
    mut rollout: FleetRollout,
    id: SentinelId,
    state: state::Rollout,
) -> store::Result<Next> {
    let is_next = if rollout.back { rollout.under_way() == Some(id) } else { rollout.under_way().is_none() };
    let Some((sentinel, _)) = there(write.lock_sentinel(id).await)?.filter(|_| is_next) else {
        return Ok(Next::Again);
    };
    let before = Fit::of(&sentinel.desired);
    let wanted = match rollout.previous.get(&id) {
        Some(had) if rollout.back => had.clone(),
        _ => rollout.target.over(before.clone()),
    };
    rollout.previous.entry(id).or_insert(before);
    let environment = Some(sentinel.environment);
    let sentinel = Sentinel { desired: wanted.onto(sentinel.desired.clone()), ..sentinel };
    write.put_sentinel(&sentinel, &draft.cause()).await?;
    write.set_rollout(id, Rollout::Rolling).await?;
    write.put_rollout(&rollout).await?;
    let state = state::Rollout { since: draft.at().0, environment, ..state };
    Ok(Next::Step { step: "rolling", state: state::encode(&state) })
}

async fn pass(
    hand: &Hand<'_>,
    write: &mut Write,
    draft: &Draft,
    mut rollout: FleetRollout,
    id: SentinelId,
    state: state::Rollout,
) -> store::Result<Next> {
    let sentinel = there(write.lock_sentinel(id).await)?;
    let since = passed(state.since, draft.at());
    let is_there = |(sentinel, seen): &(Sentinel, Observed)| {
        has_rolled(&rollout, sentinel, seen, since, &hand.shared.config)
    };
    if rollout.under_way() != Some(id) || !sentinel.as_ref().is_none_or(is_there) {
        return Ok(Next::Again);
    }
    if let (Some((sentinel, _)), Some(had)) = (&sentinel, rollout.previous.get(&id)) {
        let brought = rollout.target.over(had.clone());
        let (from, to) = if rollout.back { (&brought, had) } else { (had, &brought) };
        write.put_event(&draft.sentinel_rolled(sentinel, &from.to_string(), &to.to_string())).await?;
        write.set_rollout(id, Rollout::Idle).await?;
    }
    if rollout.back {
        rollout.previous.remove(&id);
        rollout.position = rollout.previous.last_key_value().map(|(last, _)| *last);
    } else {
        rollout.position = Some(id);
    }
    write.put_rollout(&rollout).await?;
    Ok(Next::Step { step: "waiting", state: state::encode(&state) })
}

/// Nothing is left to be told, and nothing came meanwhile: whoever makes a sentinel holds the rollout as well.
async fn end(write: &mut Write, rollout: FleetRollout, state: &state::Rollout) -> store::Result<Next> {
    let state = state::encode(state);
    if rollout.under_way().is_some() {
        return Ok(Next::Again);
    }
    if rollout.back {
        write.put_rollout(&FleetRollout { state: RolloutState::RolledBack, ..rollout }).await?;
        return Ok(Next::End { step: "rolled_back", state });
    }
    let mut after = rollout.position;
    loop {
        let page = write.sentinels_after(after, PAGE).await?;
        if first_other(&rollout, &page).is_some() {
            return Ok(Next::Again);
        }
        after = page.last().map(|(last, _)| last.id);
        if page.len() < PAGE as usize {
            break;
        }
    }
    write.put_rollout(&FleetRollout { state: RolloutState::Done, ..rollout }).await?;
    Ok(Next::End { step: "done", state })
}

fn subject(workflow: &Workflow) -> store::Result<RolloutId> {
    workflow.subject.parse().map_err(|error| store::Error::Broken(format!("a workflow's subject: {error}")))
}

/// What is not there is nothing.
fn there<T>(found: store::Result<T>) -> store::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(store::Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{cluster::ApplyError, id::ChangeId, size::Replicas};

    fn state() -> state::Rollout {
        state::Rollout { change: ChangeId::sample(1), environment: None, since: 0 }
    }

    /// A sentinel that was told the new image.
    fn told() -> (FleetRollout, Sentinel) {
        let (mut rollout, mut sentinel) = (FleetRollout::sample(), Sentinel::sample());
        rollout.previous.insert(sentinel.id, Fit::of(&sentinel.desired));
        sentinel.desired.image = rollout.target.image.clone().unwrap();
        (rollout, sentinel)
    }

    fn seen(image: &str, available: i64) -> Observed {
        let available = Replicas::new(available).unwrap();
        let health = Health::of(Replicas::ONE, available);
        Observed { running_image: image.parse().ok(), available, health, ..Observed::nothing() }
    }

    fn at(rollout: &FleetRollout, sentinel: Option<(Sentinel, Observed)>, now: i64) -> Result<Act, Millis> {
        let next = Some(SentinelId::sample(9));
        let facts = Facts { rollout: rollout.clone(), under_way: sentinel, next };
        step(&state(), &facts, &DeployConfig::default(), Millis(now))
    }

    #[test]
    fn the_next_is_told_only_when_the_last_is_healthy_with_the_new_image() {
        let (rollout, sentinel) = told();
        let id = sentinel.id;
        let with = |image, available| at(&rollout, Some((sentinel.clone(), seen(image, available))), 1000);
        assert_eq!(with("krane/sentinel:1", 1), Err(Millis(6000)), "it still runs the old one");
        assert_eq!(with("krane/sentinel:2", 0), Err(Millis(6000)), "it is not healthy");
        assert_eq!(with("krane/sentinel:2", 1), Ok(Act::Pass(id)));
        let passed = FleetRollout { position: Some(id), ..rollout.clone() };
        assert_eq!(at(&passed, None, 0), Ok(Act::Tell(SentinelId::sample(9))));
        assert_eq!(at(&rollout, None, 0), Ok(Act::Pass(id)), "one that is gone is not waited for");
    }

    #[test]
    fn one_that_fails_pauses_with_its_reason() {
        let (rollout, sentinel) = told();
        let late = at(&rollout, Some((sentinel.clone(), seen("krane/sentinel:1", 0))), 300_000);
        let Ok(Act::Pause(_, why)) = late else { panic!("{late:?}") };
        assert!(why.contains("not healthy with krane/sentinel:2 after 300 s: 0 of 1"), "{why}");
        let message = Message::cut("no such class");
        let error = ApplyError { reason: ApplyReason::Refused, message, since: Millis(0) };
        let refused = Observed { apply_error: Some(error), ..seen("krane/sentinel:1", 1) };
        let refused = Some((sentinel, refused));
        assert_eq!(at(&rollout, refused.clone(), 1000), Err(Millis(6000)), "that may be about what it had");
        let Ok(Act::Pause(_, why)) = at(&rollout, refused, 10_000) else { panic!("not for the whole time") };
        assert!(why.ends_with("refused: no such class"), "{why}");
    }

    #[test]
    fn a_new_size_is_believed_after_a_while_and_so_is_the_way_back() {
        let (mut rollout, mut sentinel) = told();
        rollout.state = RolloutState::RollingBack;
        rollout.back = true;
        let with = |sentinel: &Sentinel, now| {
            at(&rollout, Some((sentinel.clone(), seen("krane/sentinel:1", 1))), now)
        };
        assert_eq!(with(&sentinel, 0), Ok(Act::Tell(sentinel.id)), "it still has the new one");
        sentinel.desired.image = "krane/sentinel:1".parse().unwrap();
        assert_eq!(with(&sentinel, 1000), Err(Millis(6000)), "that may be old news");
        assert_eq!(with(&sentinel, 10_000), Ok(Act::Pass(sentinel.id)));
    }

    #[test]
    fn whoever_pauses_or_cancels_it_ends_the_work_on_it() {
        let (rollout, sentinel) = told();
        for state in [RolloutState::Paused, RolloutState::Cancelled] {
            let rollout = FleetRollout { state, ..rollout.clone() };
            assert_eq!(at(&rollout, Some((sentinel.clone(), seen("krane/sentinel:2", 1))), 0), Ok(Act::End));
        }
    }
}
