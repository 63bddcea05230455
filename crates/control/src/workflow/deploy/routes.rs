//! The commit that moves routes: all of them at once, under the environment's lock.

use std::collections::BTreeSet;

use model::{
    deployment::Deployment,
    environment::Environment,
    id::AppId,
    name::{Hostname, Slug},
    route::{Naming, Route},
};
use store::Write;

use crate::{
    event::Draft,
    workflow::{
        hand::Shared,
        network::{self, Ground, Plan, Take},
    },
};

/// The slugs that hostnames are made of.
pub(crate) struct Names {
    workspace: Slug,
    project: Slug,
    app: Slug,
    app_id: AppId,
}

impl Names {
    fn naming(&self) -> Naming<'_> {
        Naming { workspace: &self.workspace, project: &self.project, app: &self.app, app_id: self.app_id }
    }
}

/// Reads them.
pub(crate) async fn names(write: &mut Write, environment: &Environment) -> store::Result<Names> {
    Ok(Names {
        workspace: write.workspace(environment.workspace).await?.noun.slug,
        project: write.project(environment.project).await?.noun.slug,
        app: write.app(environment.app).await?.noun.slug,
        app_id: environment.app,
    })
}

/// Moves every route of the environment that is this deployment's to have, in the caller's commit. The environment is
/// locked, so that of two who move them one is first.
pub(crate) async fn switch_routes(
    shared: &Shared,
    write: &mut Write,
    draft: &Draft,
    (environment, deployment): (&Environment, &Deployment),
    hostnames: &[Hostname],
    take: Take,
) -> store::Result<()> {
    let names = names(write, environment).await?;
    let apex = shared.config.apex();
    let routes = write.routes(environment.id, None, u32::MAX).await?;
    let mut taken = BTreeSet::new();
    for hostname in network::wanted(names.naming(), environment, deployment, hostnames, &apex) {
        let owner = write.route(&hostname).await?;
        if owner.is_some_and(|route| route.environment != environment.id) {
            taken.insert(hostname);
        }
    }
    let pinned = write.is_pinned(environment.id).await?;
    let ground =
        Ground { naming: names.naming(), environment, apex: &apex, routes: &routes, taken: &taken, pinned };
    let plan = network::plan(&ground, deployment, hostnames, take);
    write_plan(write, draft, deployment, &routes, plan).await
}

/// Writes a plan, and tells of each hostname that leads elsewhere now.
pub(crate) async fn write_plan(
    write: &mut Write,
    draft: &Draft,
    deployment: &Deployment,
    before: &[Route],
    plan: Plan,
) -> store::Result<()> {
    for hostname in &plan.remove {
        write.remove_route(deployment.environment, hostname, &draft.cause()).await?;
    }
    let changed = write.put_routes(&plan.put, &draft.cause()).await?;
    let mut events = Vec::new();
    for (route, _) in plan.put.iter().zip(changed).filter(|(_, changed)| *changed) {
        let was = before.iter().find(|other| other.hostname == route.hostname);
        let share = route.targets.iter().find(|target| target.deployment == deployment.id);
        let from = was.map(|route| route.targets.heaviest()).filter(|from| *from != deployment.id);
        let share = share.map_or(0, |target| target.weight);
        // The first event of a draft is kept for the workflow's own.
        events.push(draft.nth(100 + events.len()).route_switched(deployment, route, from, share));
    }
    write.put_events(&events).await.map(drop)
}
