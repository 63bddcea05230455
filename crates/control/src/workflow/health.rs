//! What is wrong with a deployment in one place, and how long that may be so: pure.

use std::time::Duration;

use model::{
    cluster::{ApplyError, ApplyReason},
    deployment::Deployment,
    instance::{Instance, KnownReason, Reason, Status},
    size::Scaling,
};

use crate::config::DeployConfig;

/// What was seen of a deployment in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Whether what is seen can be believed: the place's agent is heard.
    pub(crate) reachable: bool,
    pub(crate) instances: Vec<Instance>,
    /// Why something of it cannot be applied.
    pub(crate) error: Option<ApplyError>,
    /// Whether a sentinel of its environment can take requests there.
    pub(crate) sentinel: bool,
}

/// Something that keeps a deployment from running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// What the failure is called.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// How long it may last; `None`, as long as the deployment itself may take.
    pub(crate) grace: Option<Duration>,
}

impl Sight {
    /// How many answer.
    pub(crate) fn running(&self) -> usize {
        self.instances.iter().filter(|instance| instance.status == Status::Running).count()
    }

    /// Whether enough runs.
    pub(crate) fn is_healthy(&self, scaling: &Scaling) -> bool {
        self.error.is_none() && self.running() >= scaling.min().get() as usize
    }

    /// Everything that is wrong, the worst first.
    pub(crate) fn complaints(&self, deployment: &Deployment, config: &DeployConfig) -> Vec<Complaint> {
        let refused = self.error.iter().map(refusal);
        let ill = self.instances.iter().filter(|instance| instance.status != Status::Running);
        let mut all: Vec<Complaint> =
            refused.chain(ill.filter_map(|instance| complaint(instance, deployment, config))).collect();
        all.sort_by_key(|complaint| complaint.grace.unwrap_or(Duration::MAX));
        all
    }
}

/// What the API server or the agent refuses stays refused; what could not be reached may answer soon.
fn refusal(error: &ApplyError) -> Complaint {
    let grace = match error.reason {
        ApplyReason::Invalid | ApplyReason::Refused | ApplyReason::Forbidden | ApplyReason::Conflict => {
            Some(Duration::ZERO)
        }
        ApplyReason::Secrets | ApplyReason::Unavailable => None,
    };
    Complaint { reason: error.reason.to_string(), message: error.message.to_string(), grace }
}

fn complaint(instance: &Instance, deployment: &Deployment, config: &DeployConfig) -> Option<Complaint> {
    let reason = instance.reason.as_ref()?;
    let patience = match reason {
        Reason::Known(known) => patience(*known, instance, deployment, config),
        Reason::Other(_) => Patience::Total,
    };
    let grace = match patience {
        Patience::NoTrouble => return None,
        Patience::For(grace) => Some(grace),
        Patience::Total => None,
    };
    let said = instance.message.as_ref().map(ToString::to_string).unwrap_or_default();
    let code = instance.exit_code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
    let message = format!("{}: {said}{code}, {} restarts", instance.k8s_name, instance.restarts);
    Some(Complaint { reason: reason.to_string(), message, grace })
}

/// How long a trouble is borne with.
enum Patience {
    /// It is none.
    NoTrouble,
    For(Duration),
    /// As long as the deployment itself may take.
    Total,
}

/// How long an instance may be in this trouble.
fn patience(
    reason: KnownReason,
    instance: &Instance,
    deployment: &Deployment,
    config: &DeployConfig,
) -> Patience {
    match reason {
        KnownReason::ContainerCreating | KnownReason::PodInitializing => Patience::NoTrouble,
        KnownReason::CrashLoopBackOff
        | KnownReason::OomKilled
        | KnownReason::Error
        | KnownReason::Evicted => {
            let is_hopeless = instance.restarts >= config.crash_restarts || instance.status == Status::Failed;
            if is_hopeless { Patience::For(Duration::ZERO) } else { Patience::Total }
        }
        KnownReason::ErrImagePull
        | KnownReason::ImagePullBackOff
        | KnownReason::CreateContainerConfigError
        | KnownReason::CreateContainerError
        | KnownReason::RunContainerError => Patience::For(config.image_pull),
        KnownReason::InvalidImageName => Patience::For(Duration::ZERO),
        KnownReason::Unschedulable => Patience::For(config.unschedulable),
        KnownReason::ContainersNotReady | KnownReason::Unhealthy => {
            probe_limit(deployment).map_or(Patience::Total, Patience::For)
        }
    }
}

/// How long a deployment says itself that it may take to answer its probe: the delay, and so many failures in a row.
fn probe_limit(deployment: &Deployment) -> Option<Duration> {
    let health = deployment.health.as_ref()?;
    let once = health.interval().duration() + health.timeout().duration();
    Some(health.initial_delay.duration() + once * health.failure_threshold())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::name::Message;

    fn ill(reason: &str, restarts: u32) -> Instance {
        Instance {
            status: Status::Pending,
            ready: false,
            reason: Reason::read(reason),
            restarts,
            ..Instance::sample(1)
        }
    }

    fn sight(instances: Vec<Instance>) -> Sight {
        Sight { reachable: true, instances, error: None, sentinel: true }
    }

    #[test]
    fn every_reason_has_its_grace() {
        let config = DeployConfig::default();
        let (now, minutes) = (Some(Duration::ZERO), |minutes| Some(Duration::from_mins(minutes)));
        let cases = [
            ("CrashLoopBackOff", 2, Some(None)),
            ("CrashLoopBackOff", 3, Some(now)),
            ("OOMKilled", 1, Some(None)),
            ("OOMKilled", 3, Some(now)),
            ("ErrImagePull", 0, Some(minutes(2))),
            ("ImagePullBackOff", 0, Some(minutes(2))),
            ("InvalidImageName", 0, Some(now)),
            ("Unschedulable", 0, Some(minutes(10))),
            ("Unhealthy", 0, Some(Some(Duration::from_secs(45)))),
            ("ContainersNotReady", 0, Some(Some(Duration::from_secs(45)))),
            ("ContainerCreating", 0, None),
            ("SomethingNew", 0, Some(None)),
        ];
        let deployment = Deployment::sample().with_health("/health");
        for (reason, restarts, grace) in cases {
            let complaints = sight(vec![ill(reason, restarts)]).complaints(&deployment, &config);
            assert_eq!(complaints.first().map(|complaint| complaint.grace), grace, "{reason} {restarts}");
        }
    }

    #[test]
    fn what_is_refused_is_refused_at_once_and_what_is_away_may_come_back() {
        let config = DeployConfig::default();
        let of = |reason| {
            let error = ApplyError { reason, message: Message::cut("no"), since: model::time::Millis(0) };
            let sight = Sight { error: Some(error), ..sight(vec![]) };
            sight.complaints(&Deployment::sample(), &config)[0].grace
        };
        assert_eq!(of(ApplyReason::Refused), Some(Duration::ZERO));
        assert_eq!(of(ApplyReason::Unavailable), None);
    }

    #[test]
    fn the_worst_is_told_first_and_what_runs_complains_of_nothing() {
        let config = DeployConfig::default();
        let all = sight(vec![ill("Unschedulable", 0), Instance::sample(2), ill("CrashLoopBackOff", 5)]);
        let reasons: Vec<String> =
            all.complaints(&Deployment::sample(), &config).into_iter().map(|one| one.reason).collect();
        assert_eq!(reasons, ["CrashLoopBackOff", "Unschedulable"]);
        assert_eq!(all.running(), 1);
    }
}
