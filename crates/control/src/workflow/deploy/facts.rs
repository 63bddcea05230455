//! What is known of a deployment when its next step is decided: rows from the store, and what was seen from the tail's image.

use std::collections::BTreeMap;

use model::{
    canary::Arm,
    cluster::Reachability,
    deployment::{Deployment, Progress},
    id::{DeploymentId, EnvironmentId},
    name::Placement,
    route::Route,
    sentinel::Health,
    size::Scaling,
    time::Millis,
    topology::Topology,
    traffic::Sums,
    watch::{Cursor, Key},
};
use store::{State, Tail, Topic};

use super::place::policy_id;
use crate::workflow::{
    hand::Hand,
    health::Sight,
    state::{Deploy, Place},
};

/// All of it, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) deployment: Deployment,
    pub(crate) progress: Progress,
    /// A newer deployment of the same branch that has not ended.
    pub(crate) newer: Option<DeploymentId>,
    pub(crate) rows: Vec<Topology>,
    pub(crate) sights: BTreeMap<Placement, Sight>,
    pub(crate) routes: Vec<Route>,
    pub(crate) pinned: bool,
    /// What it and what it is compared with answered in this step.
    pub(crate) arms: (Arm, Arm),
    /// When the step that is under way began.
    pub(crate) step_began: Option<Millis>,
}

impl Facts {
    pub(crate) async fn read(hand: &Hand<'_>, state: &Deploy) -> store::Result<Facts> {
        let store = &hand.shared.store;
        let id: DeploymentId =
            hand.workflow.subject.parse().map_err(|error| {
                store::Error::Broken(format!("the subject of a deploy workflow: {error}"))
            })?;
        let (deployment, progress) = store.deployment(id).await?;
        let rows = store.topology_of(id).await?;
        let routes = store.routes(state.environment, None, u32::MAX).await?;
        let pinned = store.is_pinned(state.environment).await?;
        let living = store.living_deployments(state.environment).await?;
        let steps = store.steps_of(id).await?;
        // What is started again is not overtaken by what was there already.
        let began = hand.workflow.created_at;
        let is_again = began != deployment.created_at;
        let is_newer = |(other, _): &&(Deployment, Progress)| {
            let is_same = other.git.branch == deployment.git.branch;
            other.id > id && is_same && (!is_again || other.created_at > began)
        };
        let newer = living.iter().find(is_newer).map(|(newer, _)| newer.id);
        let under_way = progress.status.step();
        let began = steps.iter().find(|step| Some(step.kind) == under_way).map(|step| step.started_at);
        let place = |(nth, place): (usize, &Place)| {
            let seen = sight(&hand.shared.tail, state.environment, id, &place.placement, nth);
            (place.placement.clone(), seen)
        };
        let sights = state.places.iter().enumerate().map(place).collect();
        let nothing = Arm { requests: 0, errors: 0, p95: None };
        let mut arms = (nothing, nothing);
        if let Some(canary) = &state.canary {
            // Only where both answer: what is asked of one by its own hostname says nothing about the other.
            let mut sums = [Sums::default(), Sums::default()];
            for route in routes.iter().filter(|route| route.follows.is_weighed()) {
                let since = Millis(canary.since);
                let traffic = store.traffic(state.environment, Some(&route.hostname), since).await?;
                for (sums, arm) in sums.iter_mut().zip([&id, &canary.baseline]) {
                    traffic.get(arm).into_iter().for_each(|more| sums.merge(more));
                }
            }
            arms = (Arm::of(&sums[0]), Arm::of(&sums[1]));
        }
        Ok(Facts { deployment, progress, newer, rows, sights, routes, pinned, arms, step_began: began })
    }

    /// How many there are to be in a place: a row may have been scaled since.
    pub(crate) fn scaling<'a>(&'a self, place: &'a Place) -> &'a Scaling {
        let row = self.rows.iter().find(|row| row.placement == place.placement);
        row.map_or(&place.scaling, |row| &row.scaling)
    }
}

/// What the image shows of a deployment in one place; `nth` is the place's number among the deployment's.
pub(crate) fn sight(
    tail: &Tail,
    environment: EnvironmentId,
    deployment: DeploymentId,
    placement: &Placement,
    nth: usize,
) -> Sight {
    let key = |id: String| Key::new(id);
    let cluster = tail.get(&Topic::Clusters, &key(placement.to_string()));
    let reachable = cluster.is_some_and(|item| match &item.state {
        State::Cluster(cluster) => !item.gone && cluster.reachability == Reachability::Reachable,
        _ => false,
    });
    let mut sight = Sight { reachable, instances: vec![], error: None, sentinel: false };
    let routing = Topic::Routing(environment, placement.clone());
    if let Some(item) = tail.get(&routing, &key(deployment.to_string()))
        && let (false, State::Routing(routing)) = (item.gone, &item.state)
    {
        sight.instances.clone_from(&routing.instances);
        sight.error.clone_from(&routing.apply_error);
    }
    let policies = Topic::NetworkPolicyReports(placement.clone());
    if let Some(item) = tail.get(&policies, &key(policy_id(deployment, nth).to_string()))
        && let (false, State::NetworkPolicyReport(report)) = (item.gone, &item.state)
    {
        sight.error = sight.error.or_else(|| report.apply_error.clone());
    }
    for item in tail.picture(&[Topic::SentinelReports(environment)], Cursor::default()).items {
        if let (false, State::SentinelReport(report)) = (item.gone, &item.state)
            && report.placement == *placement
        {
            let serves = report.observed.health == Health::Healthy;
            sight.sentinel |= serves;
            // One that serves is not waited for, whatever else is wanted of it.
            let error = report.observed.apply_error.clone().filter(|_| !serves);
            sight.error = sight.error.or(error);
        }
    }
    sight
}
