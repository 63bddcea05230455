//! Events of the control plane's own making: ids from a draft, so that a write made again says the same.

mod deploy;
mod turn;

use model::{
    cluster::{ApplyError, Epoch, HeldBack, ListHash},
    event::{Event, EventKind, Field, Subject},
    id::{
        AppId, ChangeId, DeploymentId, EnvironmentId, EventId, NetworkPolicyId, ProjectId, RolloutId,
        SentinelId, WorkflowId,
    },
    kind::Kind,
    name::{Line, Placement},
    time::Millis,
    token::Token,
};
use runtime::{clock::Clock, random::Random};
use store::{ApplyReport, ApplySubject, Cause};

/// Makes drafts.
#[derive(Clone)]
pub struct Events {
    clock: Clock,
    random: Random,
}

/// The id and the time of an event that may come to be.
#[derive(Debug, Clone, Copy)]
pub struct Draft {
    id: EventId,
    change: ChangeId,
    at: Millis,
}

impl Events {
    pub fn new(clock: &Clock, random: &Random) -> Self {
        Self { clock: clock.clone(), random: random.clone() }
    }

    pub fn draft(&self) -> Draft {
        let at = Millis(self.clock.now().millis());
        let millis = u64::try_from(at.0).unwrap_or_default();
        let (id, change) = (self.random.bytes(), self.random.bytes());
        Draft { id: EventId::new(millis, id), change: ChangeId::new(millis, change), at }
    }
}

impl Draft {
    pub fn change(&self) -> ChangeId {
        self.change
    }

    pub fn at(&self) -> Millis {
        self.at
    }

    /// What rows that follow from it are put down to.
    pub fn cause(&self) -> Cause {
        Cause { change: Some(self.change), at: self.at }
    }

    /// The id of a deployment that may come to be with it.
    pub fn deployment(&self) -> DeploymentId {
        DeploymentId::from_u128(self.id.as_u128())
    }

    /// The ids of what a document may need above its deployment.
    pub fn project(&self) -> ProjectId {
        ProjectId::from_u128(self.id.as_u128())
    }

    pub fn app(&self) -> AppId {
        AppId::from_u128(self.id.as_u128())
    }

    pub fn environment(&self) -> EnvironmentId {
        EnvironmentId::from_u128(self.id.as_u128())
    }

    /// The id of a workflow that may come to be with it.
    pub fn workflow(&self) -> WorkflowId {
        WorkflowId::from_u128(self.id.as_u128())
    }

    pub fn sentinel(&self) -> SentinelId {
        SentinelId::from_u128(self.id.as_u128())
    }

    pub fn network_policy(&self) -> NetworkPolicyId {
        NetworkPolicyId::from_u128(self.id.as_u128())
    }

    pub fn rollout(&self) -> RolloutId {
        RolloutId::from_u128(self.id.as_u128())
    }

    /// The same at the same time, as a part of another change.
    #[must_use]
    pub fn of_change(&self, change: ChangeId) -> Draft {
        Draft { change, ..*self }
    }

    /// The draft of another event of the same change.
    #[must_use]
    pub fn nth(&self, nth: usize) -> Draft {
        Draft { id: EventId::from_u128(self.id.as_u128().wrapping_add(nth as u128)), ..*self }
    }

    pub fn reachable(&self, placement: &Placement, epoch: Epoch) -> Event {
        self.of_cluster(EventKind::ClusterReachable, placement).with(Field::Epoch, &epoch.0.to_string())
    }

    pub fn unreachable(&self, placement: &Placement, epoch: Epoch) -> Event {
        self.of_cluster(EventKind::ClusterUnreachable, placement)
            .with(Field::Epoch, &epoch.0.to_string())
            .with(Field::Message, "its lease expired: what runs there is unknown, not gone")
    }

    /// An agent of another cluster asked for a place that is held.
    pub fn second_cluster(&self, placement: &Placement, uid: &Line, holder: &Line) -> Event {
        let message = format!("the cluster {uid} claims this place, which {holder} holds; it was refused");
        self.of_cluster(EventKind::ClusterGuard, placement).with(Field::Message, &message)
    }

    /// A cluster waits with deletions until an operator has looked at them.
    pub fn held_back(&self, placement: &Placement, held: &HeldBack) -> Event {
        let message = "these are in no list any more, and too many for one: if that is meant, \
                       `krane control cluster confirm` with this hash lets them go";
        self.of_cluster(EventKind::ClusterGuard, placement)
            .with(Field::Kind, held.kind.as_str())
            .with(Field::Count, &held.count.to_string())
            .with(Field::Hash, &held.hash.to_string())
            .with(Field::Message, message)
    }

    /// A cluster has things that nobody accounts for, more than it had.
    pub fn orphans(&self, placement: &Placement, kind: Kind, count: u64) -> Event {
        self.of_cluster(EventKind::ClusterOrphans, placement)
            .with(Field::Kind, kind.as_str())
            .with(Field::Count, &count.to_string())
    }

    /// A cluster put right what others had changed, so often since it was last told.
    pub fn drift_corrected(&self, placement: &Placement, kind: Kind, count: u64) -> Event {
        self.of_cluster(EventKind::DriftCorrected, placement)
            .with(Field::Kind, kind.as_str())
            .with(Field::Count, &count.to_string())
    }

    /// An operator let a cluster make the deletions that it held back.
    pub fn confirmed(&self, placement: &Placement, kind: Kind, hash: ListHash) -> Event {
        self.of_cluster(EventKind::ClusterConfirmed, placement)
            .with(Field::Kind, kind.as_str())
            .with(Field::Hash, &hash.to_string())
    }

    /// Something can no longer be applied in a cluster, and why.
    pub fn apply_failed(&self, report: &ApplyReport, error: &ApplyError) -> Event {
        self.of_apply(EventKind::ApplyFailed, report)
            .with(Field::Reason, error.reason.as_str())
            .with(Field::Message, error.message.as_str())
    }

    pub fn apply_recovered(&self, report: &ApplyReport) -> Event {
        self.of_apply(EventKind::ApplyRecovered, report)
    }

    pub fn token_created(&self, token: &Token) -> Event {
        self.of_token(EventKind::TokenCreated, token).with(Field::Kind, token.kind().as_str())
    }

    pub fn token_revoked(&self, token: &Token) -> Event {
        self.of_token(EventKind::TokenRevoked, token)
    }

    fn of_cluster(&self, kind: EventKind, placement: &Placement) -> Event {
        let subject = Subject { placement: Some(placement.clone()), ..Subject::default() };
        Event::new(self.id, kind, subject, self.change, self.at)
    }

    fn of_apply(&self, kind: EventKind, report: &ApplyReport) -> Event {
        let mut subject = Subject { placement: Some(report.placement.clone()), ..Subject::default() };
        let (of, name) = match report.subject {
            ApplySubject::Deployment(id) => {
                subject.deployment = Some(id);
                (Kind::Deployment, id.to_string())
            }
            ApplySubject::Sentinel(id) => {
                subject.sentinel = Some(id);
                (Kind::Sentinel, id.to_string())
            }
            ApplySubject::NetworkPolicy(id) => (Kind::NetworkPolicy, id.to_string()),
        };
        let event = Event::new(self.id, kind, subject, self.change, self.at);
        event.with(Field::Kind, of.as_str()).with(Field::Name, &name)
    }

    fn of_token(&self, kind: EventKind, token: &Token) -> Event {
        let subject = Subject { token: Some(token.id), ..Subject::default() };
        Event::new(self.id, kind, subject, self.change, self.at).with(Field::Name, token.name.as_str())
    }
}
