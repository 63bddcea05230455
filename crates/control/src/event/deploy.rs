//! What happens to deployments, their instances, routes and sentinels.

use model::{
    deployment::{Deployment, StepKind},
    event::{Event, EventKind, Field, Subject},
    id::DeploymentId,
    name::Placement,
    route::Route,
    sentinel::Sentinel,
};

use super::Draft;

impl Draft {
    pub fn deployment_created(&self, deployment: &Deployment) -> Event {
        let mut event = self.of_deployment(EventKind::DeploymentCreated, deployment);
        event = event.with(Field::Image, deployment.image.as_str());
        if let Some(branch) = &deployment.git.branch {
            event = event.with(Field::Branch, branch.as_str());
        }
        match &deployment.git.sha {
            Some(sha) => event.with(Field::Sha, sha.as_str()),
            None => event,
        }
    }

    /// A step was begun, or something is to be known of the one that is under way.
    pub fn deployment_step(&self, deployment: &Deployment, step: StepKind, message: Option<&str>) -> Event {
        let event =
            self.of_deployment(EventKind::DeploymentStep, deployment).with(Field::Step, step.as_str());
        match message {
            Some(message) => event.with(Field::Message, message),
            None => event,
        }
    }

    pub fn deployment_ready(&self, deployment: &Deployment) -> Event {
        self.of_deployment(EventKind::DeploymentReady, deployment)
    }

    pub fn deployment_failed(
        &self,
        deployment: &Deployment,
        step: StepKind,
        reason: &str,
        message: &str,
    ) -> Event {
        self.of_deployment(EventKind::DeploymentFailed, deployment)
            .with(Field::Step, step.as_str())
            .with(Field::Reason, reason)
            .with(Field::Message, message)
    }

    pub fn deployment_superseded(&self, deployment: &Deployment, by: DeploymentId) -> Event {
        self.of_deployment(EventKind::DeploymentSuperseded, deployment).with(Field::By, &by.to_string())
    }

    pub fn deployment_cancelled(&self, deployment: &Deployment) -> Event {
        self.of_deployment(EventKind::DeploymentCancelled, deployment)
    }

    pub fn deployment_stopped(&self, deployment: &Deployment, reason: &str) -> Event {
        self.of_deployment(EventKind::DeploymentStopped, deployment).with(Field::Reason, reason)
    }

    /// A hostname leads to another deployment, or to two with shares; `share` is the percentage that `to` has now.
    pub fn route_switched(
        &self,
        deployment: &Deployment,
        route: &Route,
        from: Option<DeploymentId>,
        share: u32,
    ) -> Event {
        let event = self
            .of_deployment(EventKind::RouteSwitched, deployment)
            .with(Field::Hostname, route.hostname.as_str())
            .with(Field::To, &deployment.id.to_string())
            .with(Field::Share, &share.to_string());
        match from {
            Some(from) => event.with(Field::From, &from.to_string()),
            None => event,
        }
    }

    pub fn canary_judged(
        &self,
        deployment: &Deployment,
        verdict: &str,
        share: u32,
        reason: &str,
        figures: &str,
    ) -> Event {
        self.of_deployment(EventKind::CanaryJudged, deployment)
            .with(Field::Verdict, verdict)
            .with(Field::Share, &share.to_string())
            .with(Field::Reason, reason)
            .with(Field::Message, figures)
    }

    pub fn sentinel_rolled(&self, sentinel: &Sentinel, from: &str, to: &str) -> Event {
        self.of(EventKind::SentinelRolled, subject_of_sentinel(sentinel))
            .with(Field::From, from)
            .with(Field::To, to)
    }

    fn of_deployment(&self, kind: EventKind, deployment: &Deployment) -> Event {
        self.of(kind, subject_of(deployment, None))
    }

    fn of(&self, kind: EventKind, subject: Subject) -> Event {
        Event::new(self.id, kind, subject, self.change, self.at)
    }
}

/// Everything that a deployment belongs to.
pub(crate) fn subject_of(deployment: &Deployment, placement: Option<&Placement>) -> Subject {
    Subject {
        workspace: Some(deployment.workspace),
        project: Some(deployment.project),
        app: Some(deployment.app),
        environment: Some(deployment.environment),
        deployment: Some(deployment.id),
        placement: placement.cloned(),
        ..Subject::default()
    }
}

fn subject_of_sentinel(sentinel: &Sentinel) -> Subject {
    Subject {
        workspace: Some(sentinel.workspace),
        project: Some(sentinel.project),
        app: Some(sentinel.app),
        environment: Some(sentinel.environment),
        sentinel: Some(sentinel.id),
        placement: Some(sentinel.placement.clone()),
        ..Subject::default()
    }
}
