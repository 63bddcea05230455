//! Which hostnames a deployment answers from now on: a plan of all routes at once, so that nobody ever sees half of it. Pure.

use std::collections::BTreeSet;

use model::{
    deployment::Deployment,
    environment::Environment,
    id::DeploymentId,
    name::{DnsLabel, Hostname},
    route::{Affinity, Follows, Naming, Route, Subject, Targets},
    size::Percent,
};

/// What is known when routes are planned.
pub(crate) struct Ground<'a> {
    pub(crate) naming: Naming<'a>,
    pub(crate) environment: &'a Environment,
    pub(crate) apex: &'a Hostname,
    /// The environment's routes as they are.
    pub(crate) routes: &'a [Route],
    /// Hostnames that are another environment's.
    pub(crate) taken: &'a BTreeSet<Hostname>,
    /// Whether somebody chose what is live.
    pub(crate) pinned: bool,
}

/// How much of the environment's, the live and the custom routes a deployment is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// All of it, if what has it is older and nobody chose that.
    Due,
    /// All of it, because somebody said so.
    Chosen,
    /// This much, beside what it is compared with.
    Share(Percent, DeploymentId),
}

/// What is to be written: routes as they are to be, and hostnames that are to go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) put: Vec<Route>,
    pub(crate) remove: Vec<Hostname>,
}

/// The plan for a deployment that runs. Its own hostnames are its alone; its branch's it takes from an older one; those
/// of the environment as `take` says.
pub(crate) fn plan(ground: &Ground<'_>, deployment: &Deployment, hostnames: &[Hostname], take: Take) -> Plan {
    let mut plan = Plan::default();
    let own = ground.pick(Subject::Deployment(deployment.id), Follows::Deployment);
    plan.put.extend(own.map(|hostname| ground.switched(hostname, Follows::Deployment, deployment.id)));
    if let Some(branch) = &deployment.git.branch
        && let Some(hostname) = ground.pick(Subject::Branch(branch), Follows::Branch)
        && ground.route(&hostname).is_none_or(|route| route.targets.heaviest() <= deployment.id)
    {
        plan.put.push(ground.switched(hostname, Follows::Branch, deployment.id));
    }
    if may_take(ground, deployment.id, take) {
        weigh(ground, deployment, hostnames, take, &mut plan);
    }
    plan
}

/// Whether the environment's routes are to move at all.
pub(crate) fn may_take(ground: &Ground<'_>, id: DeploymentId, take: Take) -> bool {
    let older = |route: &Route| route.targets.heaviest() <= id;
    match take {
        Take::Chosen => true,
        Take::Due | Take::Share(..) => {
            !ground.pinned && ground.routes.iter().filter(|route| route.follows.is_weighed()).all(older)
        }
    }
}

/// The environment's routes, the live one and the user's own together.
fn weigh(ground: &Ground<'_>, deployment: &Deployment, hostnames: &[Hostname], take: Take, plan: &mut Plan) {
    let mut weighed = Vec::new();
    let environment = Subject::Environment(&ground.environment.slug);
    weighed.extend(ground.pick(environment, Follows::Environment).map(|name| (name, Follows::Environment)));
    if ground.environment.is_production() {
        weighed.extend(ground.pick(Subject::Live, Follows::Live).map(|name| (name, Follows::Live)));
    }
    match take {
        // What the users of the environment call it is not for an older deployment to say.
        Take::Chosen => {
            let custom = ground.routes.iter().filter(|route| route.follows == Follows::Custom);
            weighed.extend(custom.map(|route| (route.hostname.clone(), Follows::Custom)));
        }
        Take::Due | Take::Share(..) => {
            let custom = hostnames.iter().filter(|hostname| !ground.taken.contains(*hostname));
            weighed.extend(custom.map(|hostname| (hostname.clone(), Follows::Custom)));
            let is_left =
                |route: &&Route| route.follows == Follows::Custom && !hostnames.contains(&route.hostname);
            plan.remove.extend(ground.routes.iter().filter(is_left).map(|route| route.hostname.clone()));
        }
    }
    for (hostname, follows) in weighed {
        let route = ground.switched(hostname, follows, deployment.id);
        plan.put.push(match take {
            Take::Due | Take::Chosen => route,
            Take::Share(share, baseline) => ground.shared(route, deployment.id, baseline, share),
        });
    }
}

impl Ground<'_> {
    fn route(&self, hostname: &Hostname) -> Option<&Route> {
        self.routes.iter().find(|route| route.hostname == *hostname)
    }

    /// The hostname for a subject: the one it has already, else the best that is free.
    fn pick(&self, subject: Subject<'_>, follows: Follows) -> Option<Hostname> {
        let candidates: Vec<Hostname> =
            self.naming.candidates(subject).iter().map(|label| under(label, self.apex)).collect();
        let is_ours =
            |hostname: &&Hostname| self.route(hostname).is_some_and(|route| route.follows == follows);
        let is_free =
            |hostname: &&Hostname| !self.taken.contains(*hostname) && self.route(hostname).is_none();
        candidates.iter().find(is_ours).or_else(|| candidates.iter().find(is_free)).cloned()
    }

    fn switched(&self, hostname: Hostname, follows: Follows, to: DeploymentId) -> Route {
        let new = |hostname| Route {
            environment: self.environment.id,
            hostname,
            targets: Targets::one(to),
            previous: None,
            follows,
            affinity: Affinity::None,
        };
        let Some(route) = self.route(&hostname) else { return new(hostname) };
        // After a canary the other side is what answered before, however small its share was in the end.
        let others = route.targets.iter().filter(|target| target.deployment != to && target.weight > 0);
        let switched = route.switched_to(to);
        let before = others.max_by_key(|target| target.weight).map(|target| target.deployment);
        Route { follows, previous: before.or(switched.previous), ..switched }
    }

    /// The same with a share; a hostname that leads nowhere yet has nothing to share and goes to the new one whole.
    fn shared(&self, route: Route, canary: DeploymentId, baseline: DeploymentId, share: Percent) -> Route {
        let Some(before) = self.route(&route.hostname) else { return route };
        match Targets::canary(canary, baseline, share) {
            Ok(targets) => Route { targets, previous: before.previous, ..route },
            Err(_) => route,
        }
    }
}

/// The routes of a canary given back to what it was compared with.
pub(crate) fn given_back(routes: &[Route], canary: DeploymentId, baseline: DeploymentId) -> Vec<Route> {
    let has_some = |route: &&Route| {
        route.follows.is_weighed() && route.targets.iter().any(|target| target.deployment == canary)
    };
    let back = |route: &Route| {
        let previous = route.previous.filter(|previous| *previous != canary && *previous != baseline);
        Route { targets: Targets::one(baseline), previous, ..route.clone() }
    };
    routes.iter().filter(has_some).map(back).collect()
}

/// All hostnames that a plan might want, for whoever knows which are taken.
pub(crate) fn wanted(
    naming: Naming<'_>,
    environment: &Environment,
    deployment: &Deployment,
    hostnames: &[Hostname],
    apex: &Hostname,
) -> Vec<Hostname> {
    let mut subjects =
        vec![Subject::Deployment(deployment.id), Subject::Environment(&environment.slug), Subject::Live];
    subjects.extend(deployment.git.branch.as_ref().map(Subject::Branch));
    let labels = subjects.into_iter().flat_map(|subject| naming.candidates(subject));
    labels.map(|label| under(&label, apex)).chain(hostnames.iter().cloned()).collect()
}

fn under(label: &DnsLabel, apex: &Hostname) -> Hostname {
    format!("{label}.{apex}").parse().expect("a label and a hostname that validation left room for")
}

/// The deployment that has most of what is live, if anything is.
pub(crate) fn live(routes: &[Route]) -> Option<DeploymentId> {
    let of = |follows: Follows| routes.iter().find(move |route| route.follows == follows);
    of(Follows::Live).or_else(|| of(Follows::Environment)).map(|route| route.targets.heaviest())
}

/// How much of what is live a deployment has, in percent.
pub(crate) fn share_of(routes: &[Route], id: DeploymentId) -> Option<u32> {
    let of = |follows: Follows| routes.iter().find(move |route| route.follows == follows);
    let route = of(Follows::Live).or_else(|| of(Follows::Environment))?;
    let total: u32 = route.targets.iter().map(|target| target.weight).sum();
    let own = route.targets.iter().find(|target| target.deployment == id)?;
    Some(own.weight * 100 / total.max(1))
}

/// Whether a route that must be kept leads to it.
pub(crate) fn is_kept(routes: &[Route], id: DeploymentId) -> bool {
    let leads = |route: &&Route| {
        route.follows.keeps()
            && route.targets.iter().any(|target| target.deployment == id && target.weight > 0)
    };
    routes.iter().any(|route| leads(&route))
}

#[cfg(test)]
mod tests;
