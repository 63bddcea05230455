//! The one way a workflow writes: a named commit, made only by whoever holds the workflow at that moment.

use std::{fmt, sync::Arc};

use model::{
    name::LabelValue,
    time::Millis,
    workflow::{WorkflowCommit, WorkflowKind},
};
use runtime::clock::Clock;
use store::{Store, Tail, Workflow, WorkflowClaim, Write};

use super::{delete, deploy, retire, rollout, switch};
use crate::{
    config::DeployConfig,
    event::{Draft, Events},
};

/// What every workflow needs of the process it runs in.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) tail: Tail,
    pub(crate) config: DeployConfig,
    /// What new sentinels' credentials are derived with.
    pub(crate) key: LabelValue,
    pub(crate) clock: Clock,
    pub(crate) events: Events,
    /// Names this replica to people who look at claims.
    pub(crate) holder: String,
    pub(crate) points: Points,
}

/// Where a test may end a replica: before a commit is made and right after. Nothing else can set one.
#[derive(Clone, Default)]
pub struct Points(Option<Arc<Point>>);

type Point = dyn Fn(WorkflowCommit, Side) -> bool + Send + Sync;

/// Which side of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Before,
    After,
}

/// A commit that a workflow wants to make; each has its name.
#[derive(Debug)]
pub(crate) enum Act {
    Deploy(deploy::Act),
    Switch(switch::Act),
    Retire(retire::Act),
    Delete(delete::Act),
    Rollout(rollout::Act),
    /// What it is about is no longer there.
    Abandon,
}

/// What a decision comes to.
#[derive(Debug)]
pub(crate) enum Decision {
    Act(Act),
    /// Nothing to do until something happens, or until then.
    Wait(Millis),
}

/// How a workflow stands after a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    Step {
        step: &'static str,
        state: String,
    },
    End {
        step: &'static str,
        state: String,
    },
    /// What was decided on is no longer so: nothing is written, and it is decided again.
    Again,
}

/// Why a turn went no further.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Somebody else has the workflow now.
    Lost,
    /// A test ended this replica here.
    Killed,
    Store(store::Error),
}

/// A workflow in the hand of its holder.
pub(crate) struct Hand<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) claim: WorkflowClaim,
    pub(crate) workflow: Workflow,
}

impl Hand<'_> {
    /// Makes a commit, and is the only one who does: it holds the workflow first, and writes nothing if that is
    /// somebody else's.
    pub(crate) async fn commit(&mut self, act: &Act) -> Result<Next, Halt> {
        let Shared { store, events, points, .. } = self.shared;
        let name = act.name();
        points.pass(name, Side::Before)?;
        // Made once: a write that is made again must be the same.
        let draft = events.draft();
        let made = store.retry(async || {
            let mut write = store.begin().await?;
            if !write.hold_workflow(&self.claim).await? {
                write.rollback().await?;
                return Ok(None);
            }
            let next = self.perform(&mut write, &draft, act).await?;
            let id = self.workflow.id;
            match &next {
                Next::Step { step, state } => write.step_workflow(id, step, state, draft.at()).await?,
                Next::End { step, state } => write.end_workflow(id, step, state, draft.at()).await?,
                Next::Again => {
                    write.rollback().await?;
                    return Ok(Some(next));
                }
            }
            write.commit().await?;
            Ok(Some(next))
        });
        let next = made.await.map_err(Halt::Store)?.ok_or(Halt::Lost)?;
        tracing::debug!(workflow = %self.workflow.id, commit = %name, "a workflow's commit");
        points.pass(name, Side::After)?;
        if let Next::Step { step, state } = &next {
            (*step).clone_into(&mut self.workflow.step);
            self.workflow.state.clone_from(state);
        }
        Ok(next)
    }

    async fn perform(&self, write: &mut Write, draft: &Draft, act: &Act) -> store::Result<Next> {
        match act {
            Act::Deploy(act) => deploy::perform(self, write, draft, act).await,
            Act::Switch(act) => switch::perform(self, write, draft, act).await,
            Act::Retire(act) => retire::perform(self, write, draft, act).await,
            Act::Delete(act) => delete::perform(self, write, draft, act).await,
            Act::Rollout(act) => rollout::perform(self, write, draft, act).await,
            Act::Abandon => Ok(Next::End { step: "abandoned", state: self.workflow.state.clone() }),
        }
    }

    /// What is to be done now, by what is known now.
    pub(crate) async fn decide(&self) -> Result<Decision, Halt> {
        let decided = match self.workflow.kind {
            WorkflowKind::Deploy => deploy::decide(self).await,
            WorkflowKind::Switch => switch::decide(self).await,
            WorkflowKind::Retire => retire::decide(self).await,
            WorkflowKind::Delete => delete::decide(self).await,
            WorkflowKind::Rollout => rollout::decide(self).await,
        };
        decided.map_err(Halt::Store)
    }

    pub(crate) fn now(&self) -> Millis {
        Millis(self.shared.clock.now().millis())
    }
}

impl Act {
    fn name(&self) -> WorkflowCommit {
        match self {
            Act::Deploy(act) => act.name(),
            Act::Switch(act) => act.name(),
            Act::Retire(act) => act.name(),
            Act::Delete(act) => act.name(),
            Act::Rollout(act) => act.name(),
            Act::Abandon => WorkflowCommit::Abandoned,
        }
    }
}

impl Points {
    /// Ends the replica wherever this says so.
    pub fn new(point: impl Fn(WorkflowCommit, Side) -> bool + Send + Sync + 'static) -> Points {
        Points(Some(Arc::new(point)))
    }

    fn pass(&self, name: WorkflowCommit, side: Side) -> Result<(), Halt> {
        match &self.0 {
            Some(point) if point(name, side) => Err(Halt::Killed),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Points(set)" } else { "Points(none)" })
    }
}
