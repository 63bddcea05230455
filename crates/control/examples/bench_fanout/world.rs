//! The places of the agents, the deployment that runs in all of them, and the change that is measured.

use std::{fmt::Write as _, ops::Range, path::Path, sync::Arc};

use control::tokens::{NewToken, Tokens};
use model::{
    deployment::{Deployment, DesiredState, Progress, Status},
    environment::Environment,
    name::Placement,
    project::{App, Project, Workspace},
    size::{Replicas, Scaling},
    time::Millis,
    token::Scope,
    topology::{Topology, Workload},
};
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use store::{Cause, Config, Store, Surroundings};
use tokio::task::JoinSet;

use crate::agents::now_us;

/// How many tokens are made side by side.
const MAKERS: usize = 8;

const AT: Millis = Millis(1_700_000_000_000);

/// Everything that is written before and while it is measured.
pub struct World {
    store: Store,
    /// Each with its agent's token.
    places: Vec<(Placement, String)>,
    changes: u64,
}

impl World {
    /// Makes what a deployment belongs to, and the deployment, which runs nowhere yet.
    pub async fn lay(url: &str) -> Self {
        let store = Store::open(&Config::postgres(url), Surroundings::real(Tasks::new())).await;
        let store = store.expect("the store opens");
        let mut write = store.begin().await.expect("a write begins");
        let cause = Cause { change: None, at: AT };
        write.put_workspace(&Workspace::sample(), AT).await.expect("a workspace");
        write.put_project(&Project::sample(), AT).await.expect("a project");
        write.put_app(&App::sample(), AT).await.expect("an app");
        write.put_environment(&Environment::sample(), &cause).await.expect("an environment");
        let (status, desired) = (Status::Ready, DesiredState::Running);
        let progress = Progress { status, desired, reason: None, updated_at: AT };
        write.put_deployment(&Deployment::sample(), &progress).await.expect("a deployment");
        write.commit().await.expect("the ground is laid");
        Self { store, places: Vec::new(), changes: 0 }
    }

    /// Makes so many places in all, each with a token, and the deployment in every one of them.
    pub async fn grow(&mut self, count: usize) {
        if self.places.len() < count {
            self.places.extend(places(&self.store, self.places.len()..count).await);
            self.change(count).await;
        }
    }

    /// The first of the places with their tokens, as the load client reads them.
    pub fn save(&self, count: usize, path: &Path) {
        let mut lines = String::new();
        for (place, token) in &self.places[..count] {
            writeln!(lines, "{place} {token}").expect("a string takes everything");
        }
        std::fs::write(path, lines).expect("the places can be written");
    }

    /// Changes the deployment in the first of the places, all in one commit, and says when that was.
    pub async fn change(&mut self, count: usize) -> u64 {
        self.changes += 1;
        let deployment = Deployment::sample();
        let cause = Cause { change: None, at: AT };
        let mut write = self.store.begin().await.expect("a write begins");
        for (place, _) in &self.places[..count] {
            let topology = topology(place, self.changes);
            write.put_topology(&topology, &deployment, Status::Ready, &cause).await.expect("a change");
        }
        write.commit().await.expect("the change is committed");
        now_us()
    }
}

/// The deployment in a place, with as many replicas as make it differ from the change before.
fn topology(place: &Placement, change: u64) -> Topology {
    let replicas = Replicas::new(1 + (change % 9).cast_signed()).expect("a few");
    Topology { placement: place.clone(), ..Topology::sample() }.with_scaling(Scaling::Fixed(replicas))
}

/// What the agent of a place is told after a change.
pub fn workload(place: &Placement, change: u64) -> Workload {
    topology(place, change).workload(&Arc::new(Deployment::sample())).expect("it runs")
}

async fn places(store: &Store, numbers: Range<usize>) -> Vec<(Placement, String)> {
    let mut makers = JoinSet::new();
    for maker in 0..MAKERS {
        let tokens = Tokens::new(store, &Clock::system(), &Random::system());
        let numbers = numbers.clone().skip(maker).step_by(MAKERS);
        makers.spawn(async move {
            let mut made = Vec::new();
            for number in numbers {
                let placement: Placement = format!("load/place-{number}:default").parse().expect("a place");
                let name = format!("load-{number}").parse().expect("a name");
                let scope = Scope::Agent { placement: placement.clone() };
                let created = tokens.create(NewToken { name, scope, expires_in: None }).await;
                made.push((placement, created.expect("a token").bearer.reveal().to_owned()));
            }
            made
        });
    }
    makers.join_all().await.into_iter().flatten().collect()
}
