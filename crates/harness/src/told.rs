//! What the control plane knows by now: what agents have reported, as the store has it.

use model::{
    cluster::ApplyError,
    id::{DeploymentId, NetworkPolicyId, SentinelId},
    instance::{Instance, Status},
    sentinel::Observed,
    watch::Cursor,
};
use store::State;

use crate::{eventually, ground::Ground};

impl Ground {
    /// A number that the control plane counts, over all its labels.
    pub fn count(&self, name: &str) -> u64 {
        let page = self.metrics.encode();
        let values = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            rest.starts_with([' ', '{']).then_some(rest.rsplit(' ').next()?)
        });
        values.map(|value| value.parse::<u64>().expect("a number")).sum()
    }

    /// How many reports have arrived, be they news or not. A heartbeat is none.
    pub fn reports_taken(&self) -> u64 {
        self.count("krane_reports_total")
    }

    /// Why a deployment cannot be applied here, if that was reported.
    pub async fn apply_error(&self, id: DeploymentId) -> Option<ApplyError> {
        let picture = self.store.changes(Cursor::default()).await.expect("the store is read");
        picture.items.iter().find_map(|item| match &item.state {
            State::Routing(routing) if routing.deployment == id => routing.apply_error.clone(),
            _ => None,
        })
    }

    /// How a sentinel was last reported to be.
    pub async fn observed(&self, id: SentinelId) -> Observed {
        self.store.sentinel(id).await.expect("the sentinel is there").1
    }

    pub async fn policy_error(&self, id: NetworkPolicyId) -> Option<ApplyError> {
        self.store.network_policy(id).await.expect("the policy is there").1
    }

    /// Waits until so many instances of a deployment are known, and all of them run.
    pub async fn running(&self, id: DeploymentId, count: usize) -> Vec<Instance> {
        eventually(&format!("{count} instances of {id} run"), async || {
            let instances = self.instances(id).await;
            let is_so = instances.len() == count
                && instances.iter().all(|instance| instance.status == Status::Running);
            if is_so { Ok(instances) } else { Err(format!("{instances:?}")) }
        })
        .await
    }
}
