//! The end of an environment, an app or a project: routes off, what runs told to go, and rows only after agents said so.

use model::{
    cluster::Reachability,
    deployment::{DesiredState, Progress, Status},
    environment::Environment,
    id::EnvironmentId,
    name::Message,
    time::Millis,
    watch::Cursor,
    workflow::WorkflowCommit,
};
use store::{State, Topic, Write};

use super::{
    hand::{self, Decision, Hand, Next},
    state::{self, Delete, Doomed, passed},
};
use crate::event::Draft;

/// A commit of the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    Empty(EnvironmentId),
    Remove(EnvironmentId),
    /// The app or the project itself, once nothing of it is left.
    RemoveRoot,
    Finish,
}

/// How often it is looked at though nothing happens, as a part of how long it may take: rows go when their tombstones
/// do, which nobody tells.
const LOOKS: u32 = 144;

impl Act {
    pub(crate) fn name(&self) -> WorkflowCommit {
        match self {
            Act::Empty(_) => WorkflowCommit::Emptied,
            Act::Remove(_) => WorkflowCommit::Removed,
            Act::RemoveRoot => WorkflowCommit::RemovedRoot,
            Act::Finish => WorkflowCommit::Deleted,
        }
    }
}

pub(crate) async fn decide(hand: &Hand<'_>) -> store::Result<Decision> {
    let state: Delete = state::decode(&hand.workflow.state)?;
    let now = hand.now();
    let environments = environments(hand, state.what).await?;
    let act = |act| Ok(Decision::Act(hand::Act::Delete(act)));
    for environment in &environments {
        if !state.emptied.contains_key(&environment.id.to_string()) {
            return act(Act::Empty(environment.id));
        }
    }
    let mut wake = now.after(hand.shared.config.deletion / LOOKS);
    for environment in &environments {
        let emptied = state.emptied[&environment.id.to_string()];
        if passed(emptied, now) >= hand.shared.config.deletion || is_gone(hand, environment.id).await? {
            return act(Act::Remove(environment.id));
        }
        wake = wake.min(Millis(emptied).after(hand.shared.config.deletion));
    }
    if !environments.is_empty() {
        return Ok(Decision::Wait(wake));
    }
    match state.what {
        Doomed::Environment(_) => act(Act::Finish),
        Doomed::App(_) | Doomed::Project(_) if hand.shared.store.is_empty(root(state.what)).await? => {
            act(Act::RemoveRoot)
        }
        Doomed::App(_) | Doomed::Project(_) => Ok(Decision::Wait(wake)),
    }
}

/// The environments that are still there.
async fn environments(hand: &Hand<'_>, what: Doomed) -> store::Result<Vec<Environment>> {
    let store = &hand.shared.store;
    let apps = match what {
        Doomed::Environment(id) => {
            return match store.environment(id).await {
                Ok(stored) => Ok(vec![stored.noun]),
                Err(store::Error::NotFound(_)) => Ok(vec![]),
                Err(error) => Err(error),
            };
        }
        Doomed::App(id) => vec![id],
        Doomed::Project(id) => {
            store.apps(id, None, u32::MAX).await?.into_iter().map(|app| app.noun.id).collect()
        }
    };
    let mut environments = Vec::new();
    for app in apps {
        let of = store.environments(app, None, u32::MAX).await?;
        environments.extend(of.into_iter().map(|stored| stored.noun));
    }
    Ok(environments)
}

/// Whether every agent that can be heard has said that nothing of it runs any more. Of one that cannot be heard nothing is
/// known: it is waited for.
async fn is_gone(hand: &Hand<'_>, environment: EnvironmentId) -> store::Result<bool> {
    let tail = &hand.shared.tail;
    for place in hand.shared.store.places_of_environment(environment).await? {
        let topic = Topic::Routing(environment, place.clone());
        let has_any = |item: &std::sync::Arc<store::Item>| match &item.state {
            State::Routing(routing) => !routing.instances.is_empty(),
            _ => false,
        };
        if tail.picture(&[topic], Cursor::default()).items.iter().any(has_any) {
            return Ok(false);
        }
        let cluster = tail.get(&Topic::Clusters, &model::watch::Key::new(place.to_string()));
        let is_heard = cluster.is_some_and(|item| match &item.state {
            State::Cluster(cluster) => cluster.reachability == Reachability::Reachable,
            _ => false,
        });
        if !is_heard {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) async fn perform(
    hand: &Hand<'_>,
    write: &mut Write,
    draft: &Draft,
    act: &Act,
) -> store::Result<Next> {
    let mut state: Delete = state::decode(&hand.workflow.state)?;
    let draft = &draft.of_change(state.change);
    match act {
        Act::Empty(id) => {
            write.lock_environment(*id).await?;
            empty(write, draft, *id).await?;
            state.emptied.insert(id.to_string(), draft.at().0);
            Ok(Next::Step { step: "waiting", state: state::encode(&state) })
        }
        Act::Remove(id) => {
            write.lock_environment(*id).await?;
            write.remove_environment(*id, &draft.cause()).await?;
            Ok(Next::Step { step: "removing", state: state::encode(&state) })
        }
        Act::RemoveRoot => {
            write.remove_empty(root(state.what)).await?;
            Ok(Next::End { step: "removed", state: state::encode(&state) })
        }
        Act::Finish => Ok(Next::End { step: "removed", state: state::encode(&state) }),
    }
}

/// Takes everything off: routes first, then what they led to.
async fn empty(write: &mut Write, draft: &Draft, id: EnvironmentId) -> store::Result<()> {
    let cause = draft.cause();
    for route in write.routes(id, None, u32::MAX).await? {
        write.remove_route(id, &route.hostname, &cause).await?;
    }
    for (deployment, progress) in write.deployments(id, None, u32::MAX).await? {
        let status = match progress.status {
            Status::Ready => Some(Status::Stopped),
            status if status.is_final() => None,
            _ => Some(Status::Cancelled),
        };
        if let Some(status) = status {
            let over = Progress {
                status,
                desired: DesiredState::Stopped,
                reason: Some(Message::cut("its environment is deleted")),
                updated_at: draft.at(),
            };
            write.set_progress(deployment.id, &over).await?;
        }
        for place in write.places_of(deployment.id).await? {
            write.remove_topology(deployment.id, &place, &cause).await?;
        }
        for policy in write.network_policies_of(deployment.id).await? {
            write.remove_network_policy(policy.id, &cause).await?;
        }
    }
    for (sentinel, _) in write.sentinels(id, None, u32::MAX).await? {
        write.remove_sentinel(sentinel.id, &cause).await?;
    }
    Ok(())
}

fn root(what: Doomed) -> store::Root {
    match what {
        Doomed::App(id) => store::Root::App(id),
        Doomed::Project(id) => store::Root::Project(id),
        Doomed::Environment(_) => unreachable!("an environment goes with its tombstone"),
    }
}
