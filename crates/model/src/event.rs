//! What happened, for those who watch: a closed list of kinds, each with its fixed fields.

use crate::{
    choice::choice,
    id::{
        AppId, ChangeId, DeploymentId, EnvironmentId, EventId, ProjectId, SentinelId, TokenId, WorkspaceId,
    },
    name::{Message, Placement},
    time::Millis,
};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: EventId,
    pub kind: EventKind,
    pub subject: Subject,
    /// The change it belongs to, from request to report.
    pub change: ChangeId,
    pub at: Millis,
    fields: Vec<(String, Message)>,
}

/// What it happened to, as far as each applies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    pub workspace: Option<WorkspaceId>,
    pub project: Option<ProjectId>,
    pub app: Option<AppId>,
    pub environment: Option<EnvironmentId>,
    pub deployment: Option<DeploymentId>,
    pub sentinel: Option<SentinelId>,
    pub token: Option<TokenId>,
    pub placement: Option<Placement>,
}

choice! {
    /// Everything that can happen.
    "a kind of event" EventKind {
        DeploymentCreated = "deployment.created",
        DeploymentStep = "deployment.step",
        DeploymentReady = "deployment.ready",
        DeploymentFailed = "deployment.failed",
        DeploymentSuperseded = "deployment.superseded",
        DeploymentCancelled = "deployment.cancelled",
        DeploymentStopped = "deployment.stopped",
        InstanceRunning = "instance.running",
        InstanceFailed = "instance.failed",
        InstanceGone = "instance.gone",
        ClusterReachable = "cluster.reachable",
        ClusterUnreachable = "cluster.unreachable",
        /// Deletions are held back for an operator, or a second cluster is kept out of a place.
        ClusterGuard = "cluster.guard",
        ClusterConfirmed = "cluster.confirmed",
        ClusterOrphans = "cluster.orphans",
        RouteSwitched = "route.switched",
        /// A sentinel had to serve what answered before.
        RoutePreviousServed = "route.previous_served",
        CanaryJudged = "canary.judged",
        SentinelHealthy = "sentinel.healthy",
        SentinelUnhealthy = "sentinel.unhealthy",
        SentinelRolled = "sentinel.rolled",
        DriftCorrected = "drift.corrected",
        ApplyFailed = "apply.failed",
        ApplyRecovered = "apply.recovered",
        TokenCreated = "token.created",
        TokenRevoked = "token.revoked",
        SecretChanged = "secret.changed",
    }
}

choice! {
    /// What an event may say besides its subject.
    "an event's field" Field {
        Address = "address",
        Available = "available",
        Branch = "branch",
        By = "by",
        Count = "count",
        Epoch = "epoch",
        ExitCode = "exit_code",
        From = "from",
        Hash = "hash",
        Hostname = "hostname",
        Image = "image",
        Instance = "instance",
        Kind = "kind",
        Message = "message",
        Name = "name",
        Reason = "reason",
        Restarts = "restarts",
        Role = "role",
        Sha = "sha",
        Share = "share",
        Step = "step",
        To = "to",
        Verdict = "verdict",
        Wanted = "wanted",
    }
}

impl EventKind {
    /// The fields that an event of this kind may have, in the order they are shown.
    pub fn fields(self) -> &'static [Field] {
        use Field as F;
        match self {
            EventKind::DeploymentCreated => &[F::Image, F::Branch, F::Sha],
            EventKind::DeploymentStep => &[F::Step, F::Message],
            EventKind::DeploymentFailed => &[F::Step, F::Reason, F::Message],
            EventKind::DeploymentSuperseded => &[F::By],
            EventKind::DeploymentReady | EventKind::DeploymentCancelled => &[],
            EventKind::DeploymentStopped => &[F::Reason],
            EventKind::InstanceRunning => &[F::Instance, F::Address, F::Count],
            EventKind::InstanceFailed => {
                &[F::Instance, F::Reason, F::Message, F::Restarts, F::ExitCode, F::Count]
            }
            EventKind::InstanceGone => &[F::Instance, F::Count],
            EventKind::ClusterReachable | EventKind::ClusterUnreachable => &[F::Epoch, F::Message],
            EventKind::ClusterGuard => &[F::Kind, F::Count, F::Hash, F::Message],
            EventKind::ClusterConfirmed => &[F::Kind, F::Count, F::Hash],
            EventKind::ClusterOrphans | EventKind::DriftCorrected => &[F::Kind, F::Count],
            EventKind::RouteSwitched => &[F::Hostname, F::From, F::To, F::Share],
            EventKind::RoutePreviousServed => &[F::Hostname, F::From, F::To],
            EventKind::CanaryJudged => &[F::Verdict, F::Share, F::Reason, F::Message],
            EventKind::SentinelHealthy | EventKind::SentinelUnhealthy => &[F::Available, F::Wanted],
            EventKind::SentinelRolled => &[F::From, F::To],
            EventKind::ApplyFailed => &[F::Kind, F::Name, F::Reason, F::Message],
            EventKind::ApplyRecovered => &[F::Kind, F::Name],
            EventKind::TokenCreated => &[F::Name, F::Kind, F::Role],
            EventKind::TokenRevoked | EventKind::SecretChanged => &[F::Name],
        }
    }
}

impl Event {
    pub fn new(id: EventId, kind: EventKind, subject: Subject, change: ChangeId, at: Millis) -> Event {
        Event { id, kind, subject, change, at, fields: Vec::new() }
    }

    /// The same with one field more, which is one of its kind's.
    #[must_use]
    pub fn with(mut self, field: Field, value: &str) -> Event {
        assert!(self.kind.fields().contains(&field), "{} has no field {field}", self.kind);
        self.fields.push((field.as_str().to_owned(), Message::cut(value)));
        self
    }

    /// The same with fields that were stored, perhaps by a version that knows others: they are kept as they are.
    #[must_use]
    pub fn with_stored(self, fields: Vec<(String, Message)>) -> Event {
        Event { fields, ..self }
    }

    /// What it says, in the order it was said.
    pub fn fields(&self) -> &[(String, Message)] {
        &self.fields
    }

    pub fn get(&self, field: Field) -> Option<&Message> {
        self.fields.iter().find(|(name, _)| name == field.as_str()).map(|(_, value)| value)
    }
}

#[cfg(any(test, feature = "sample"))]
impl Event {
    /// The sample deployment became ready.
    pub fn sample() -> Event {
        let subject = Subject { deployment: Some(DeploymentId::sample(1)), ..Subject::default() };
        let (id, change) = (EventId::sample(1), ChangeId::sample(1));
        Event::new(id, EventKind::DeploymentReady, subject, change, Millis(1_700_000_000_000))
    }

    #[must_use]
    pub fn of(self, kind: EventKind) -> Event {
        Event { kind, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_back() {
        for kind in EventKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
        assert_eq!(EventKind::ALL.len(), 27);
        assert!("deployment.exploded".parse::<EventKind>().is_err());
    }

    #[test]
    fn every_field_is_some_kinds() {
        for field in Field::ALL {
            assert!(EventKind::ALL.iter().any(|kind| kind.fields().contains(field)), "{field}");
        }
    }

    #[test]
    fn an_event_says_what_its_kind_may_say() {
        let event = Event::sample().of(EventKind::DeploymentFailed).with(Field::Reason, "OOMKilled");
        assert_eq!(event.get(Field::Reason).map(Message::as_str), Some("OOMKilled"));
        assert_eq!(event.get(Field::Message), None);
    }

    #[test]
    #[should_panic(expected = "deployment.ready has no field reason")]
    fn an_event_says_nothing_else() {
        let _ = Event::sample().with(Field::Reason, "OOMKilled");
    }

    #[test]
    fn stored_fields_are_kept_whatever_they_are() {
        let event = Event::sample().with_stored(vec![("mood".to_owned(), Message::cut("good"))]);
        assert_eq!(event.fields().len(), 1);
    }
}
