//! The verb `apply`: makes the cluster have what one thing needs, and nothing else of it.
//!
//! It starts from the beginning each time, looks at everything, and may be interrupted anywhere. What is in step
//! costs no request.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use model::{cluster::ApplyReason, id::EnvironmentId, invalid::Invalid, secret::Sealed};
use serde_json::{Value, json};

use super::hands::Hands;
use crate::{
    cluster::{Cluster, Error, Manager, cache::Cache},
    object::{Live, Ref, Scale, Stamped, difference},
    secrets::{Secrets, Variables},
    term::{NotNow, Term},
};

/// What a write needs.
pub(crate) struct Actor<C> {
    pub(crate) cluster: Arc<C>,
    pub(crate) cache: Cache,
    pub(crate) term: Term,
    pub(crate) hands: Hands,
    pub(crate) secrets: Arc<dyn Secrets>,
}

/// What is to be done about one thing, with everything worked out that needs no request.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Its variables come first: what it needs cannot be said before they are opened.
    Open(EnvironmentId, Sealed),
    Make {
        wanted: Vec<Stamped>,
        /// It was once made as it is wanted now: what is missing was taken away.
        was_made: bool,
    },
    Unmake(Vec<Arc<Live>>),
    Park(Failure),
    Nothing,
}

/// What came of it. What had to be done was, up to where it ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) done: Done,
    pub(crate) end: End,
}

/// How it ended.
#[derive(Debug, Default)]
pub(crate) enum End {
    #[default]
    Whole,
    /// Now that this is open, it can be said what it needs.
    Opened(Sealed, Variables),
    /// Something stands in the way that goes by itself; we will see when it does.
    Blocked(Ref),
    /// We may not write now.
    NotNow,
    Failed(Failure),
}

/// What had to be done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Done {
    pub(crate) writes: u32,
    pub(crate) deletes: u32,
    /// Objects that somebody had changed or taken away.
    pub(crate) drifted: u32,
}

/// Why it cannot be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: ApplyReason,
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
}

/// Why an attempt ended early.
enum Stop {
    Blocked(Ref),
    NotNow,
    Failed(Failure),
}

impl<C: Cluster> Actor<C> {
    pub(crate) async fn carry_out(&self, plan: Plan, of_key: impl Fn() -> Vec<Arc<Live>>) -> Outcome {
        let mut done = Done::default();
        let ended = match plan {
            Plan::Open(environment, sealed) => {
                return Outcome { done, end: self.open(environment, sealed).await };
            }
            Plan::Make { wanted, was_made } => self.make(wanted, was_made, of_key, &mut done).await,
            Plan::Unmake(objects) => self.unmake(objects, &mut done).await,
            Plan::Park(failure) => Err(Stop::Failed(failure)),
            Plan::Nothing => Ok(()),
        };
        let end = match ended {
            Ok(()) => End::Whole,
            Err(Stop::Blocked(object)) => End::Blocked(object),
            Err(Stop::NotNow) => End::NotNow,
            Err(Stop::Failed(failure)) => End::Failed(failure),
        };
        Outcome { done, end }
    }

    async fn open(&self, environment: EnvironmentId, sealed: Sealed) -> End {
        match self.secrets.open(environment, &sealed).await {
            Ok(variables) => End::Opened(sealed, variables),
            Err(error) => End::Failed(Failure {
                reason: ApplyReason::Secrets,
                message: error.to_string(),
                retry_after: None,
            }),
        }
    }

    async fn make(
        &self,
        wanted: Vec<Stamped>,
        was_made: bool,
        of_key: impl Fn() -> Vec<Arc<Live>>,
        done: &mut Done,
    ) -> Result<(), Stop> {
        let names: BTreeSet<Ref> = wanted.iter().map(|stamped| stamped.object.clone()).collect();
        for stamped in wanted {
            let object = stamped.object.clone();
            self.make_one(stamped, was_made, done).await.map_err(|stop| stop.about(&object))?;
        }
        // Applying does not remove: what this thing has and no longer needs is taken away.
        let extra = of_key().into_iter().filter(|live| live.pod().is_none() && !names.contains(&live.object));
        self.unmake(extra.collect(), done).await
    }

    async fn make_one(&self, mut wanted: Stamped, was_made: bool, done: &mut Done) -> Result<(), Stop> {
        let _hand = self.hands.take(&wanted.object).await;
        if let Some(owner) = wanted.owned_by.clone() {
            let owner = self.cache.get(&owner).ok_or(Stop::Blocked(owner))?;
            wanted.go_with(&owner.uid);
        }
        let held = self.cache.get(&wanted.object);
        if held.as_ref().is_some_and(|live| live.is_deleting) {
            return Err(Stop::Blocked(wanted.object));
        }
        let same_spec = |live: &Arc<Live>| live.stamp.spec_hash.as_deref() == Some(&wanted.spec_hash);
        let mut is_drift = was_made || held.as_ref().is_some_and(same_spec);
        let live = match held {
            Some(live) if is_in_step(&wanted, &live) => live,
            _ => {
                done.drifted += u32::from(std::mem::take(&mut is_drift));
                self.write(Manager::Krane, &wanted.object, &wanted.body, done).await?
            }
        };
        if let Some(replicas) = wanted.scale.and_then(|scale| missing_scale(scale, &live)) {
            done.drifted += u32::from(was_made && is_drift);
            let body = scale_body(&wanted, replicas);
            self.write(Manager::Scale, &wanted.object, &body, done).await?;
        }
        Ok(())
    }

    async fn write(
        &self,
        manager: Manager,
        object: &Ref,
        body: &Value,
        done: &mut Done,
    ) -> Result<Arc<Live>, Stop> {
        let live = self.term.within(self.cluster.apply(manager, object, body)).await??;
        done.writes += 1;
        let stored = live.json().expect("a pod is never applied");
        let live = Arc::new(live);
        self.cache.note((*live).clone());
        // Somebody rewrites what we send, each time. Not to be fought at full speed.
        match difference(body, &stored) {
            Some(path) => Err(Stop::Failed(Failure {
                reason: ApplyReason::Conflict,
                message: format!("the API server keeps another value of {path} than was applied"),
                retry_after: None,
            })),
            None => Ok(live),
        }
    }

    /// Deletes in the opposite order of making. What is on its way out already needs no word more.
    async fn unmake(&self, mut objects: Vec<Arc<Live>>, done: &mut Done) -> Result<(), Stop> {
        objects.sort_by(|one, other| other.object.cmp(&one.object));
        for live in objects {
            let _hand = self.hands.take(&live.object).await;
            // Whoever had it in hand before may have seen to it.
            let now = self.cache.get(&live.object);
            if now.is_none_or(|now| now.uid != live.uid || now.is_deleting) {
                continue;
            }
            let deleted = self.term.within(self.cluster.delete(&live.object, &live.uid)).await?;
            deleted.map_err(|error| Stop::from(error).about(&live.object))?;
            self.cache.note_deleted(&live.object, &live.uid);
            done.deletes += 1;
        }
        Ok(())
    }
}

/// Whether the cluster has it as it is wanted: it was made from this very spec, and nobody changed what we set.
fn is_in_step(wanted: &Stamped, live: &Live) -> bool {
    live.stamp.spec_hash.as_deref() == Some(&wanted.spec_hash)
        && live.json().is_some_and(|json| difference(&wanted.body, &json).is_none())
}

/// The number of pods to apply, if it has to be.
fn missing_scale(scale: Scale, live: &Live) -> Option<u32> {
    let json = live.json()?;
    // The API server's own default.
    let present = json["spec"]["replicas"].as_u64().unwrap_or(1);
    match scale {
        // Also when it is right by chance: only what this manager owns is safe from being reset.
        Scale::Exactly(replicas) => {
            (present != u64::from(replicas) || !live.is_scaled_by_us).then_some(replicas)
        }
        Scale::AtLeast(replicas) => (present < u64::from(replicas)).then_some(replicas),
    }
}

/// The number of pods and nothing else, so that nothing else is owned with it.
fn scale_body(wanted: &Stamped, replicas: u32) -> Value {
    let Ref { ty, namespace, name } = &wanted.object;
    json!({
        "apiVersion": ty.api_version(),
        "kind": ty.kind(),
        "metadata": { "name": &**name, "namespace": &**namespace },
        "spec": { "replicas": replicas },
    })
}

impl Stop {
    /// Says which object it is about.
    fn about(self, object: &Ref) -> Stop {
        match self {
            Stop::Failed(failure) => {
                let message = format!("{object}: {}", failure.message);
                Stop::Failed(Failure { message, ..failure })
            }
            Stop::Blocked(_) | Stop::NotNow => self,
        }
    }
}

impl From<NotNow> for Stop {
    fn from(NotNow: NotNow) -> Stop {
        Stop::NotNow
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        let failure =
            Failure { reason: error.reason(), message: error.to_string(), retry_after: error.retry_after };
        Stop::Failed(failure)
    }
}

impl From<&Invalid> for Failure {
    fn from(invalid: &Invalid) -> Failure {
        Failure { reason: ApplyReason::Invalid, message: invalid.to_string(), retry_after: None }
    }
}
