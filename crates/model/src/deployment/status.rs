//! How far a deployment has come.
//!
//! ```text
//! pending → starting → deploying → network → finalizing → ready → stopped
//!                  ↘ failed · cancelled · superseded
//! ```

use crate::{choice::choice, name::Message, time::Millis};

choice! {
    /// Where the deploy workflow stands.
    "a deployment status" Status {
        Pending = "pending",
        /// Quotas, regions and namespace are looked at.
        Starting = "starting",
        /// Waiting for enough instances in enough places.
        Deploying = "deploying",
        /// Traffic is being moved.
        Network = "network",
        /// What it replaces is being stopped.
        Finalizing = "finalizing",
        Ready = "ready",
        Failed = "failed",
        Cancelled = "cancelled",
        /// A newer deployment of its branch overtook it.
        Superseded = "superseded",
        Stopped = "stopped",
    }
}

impl Status {
    /// Whether the workflow has nothing more to do.
    pub fn is_final(self) -> bool {
        match self {
            Status::Pending | Status::Starting | Status::Deploying | Status::Network | Status::Finalizing => {
                false
            }
            Status::Ready | Status::Failed | Status::Cancelled | Status::Superseded | Status::Stopped => true,
        }
    }

    /// Whether a newer deployment may still overtake it: only before it has moved any traffic.
    pub fn can_be_superseded(self) -> bool {
        matches!(self, Status::Pending | Status::Starting | Status::Deploying)
    }

    /// Whether one write may change this status into that. Writing the same again changes nothing and is allowed.
    pub fn can_become(self, next: Status) -> bool {
        let advances = match self {
            // What was stopped starts by the same steps as what is new.
            Status::Pending | Status::Stopped => next == Status::Starting,
            Status::Starting => next == Status::Deploying,
            Status::Deploying => next == Status::Network,
            Status::Network => next == Status::Finalizing,
            Status::Finalizing => next == Status::Ready,
            Status::Ready => next == Status::Stopped,
            Status::Failed | Status::Cancelled | Status::Superseded => false,
        };
        let gives_up = match next {
            Status::Failed | Status::Cancelled => !self.is_final(),
            Status::Superseded => self.can_be_superseded(),
            Status::Pending
            | Status::Starting
            | Status::Deploying
            | Status::Network
            | Status::Finalizing
            | Status::Ready
            | Status::Stopped => false,
        };
        self == next || advances || gives_up
    }

    /// The step that is under way in this status.
    pub fn step(self) -> Option<StepKind> {
        StepKind::ALL.iter().copied().find(|step| step.status() == self)
    }
}

choice! {
    /// Whether a deployment should have instances at all.
    "a desired state" DesiredState {
        Running = "running",
        Stopped = "stopped",
    }
}

choice! {
    /// The steps a user sees.
    "a step" StepKind {
        Starting = "starting",
        Deploying = "deploying",
        Network = "network",
        Finalizing = "finalizing",
    }
}

impl StepKind {
    /// The status of a deployment in this step.
    pub fn status(self) -> Status {
        match self {
            StepKind::Starting => Status::Starting,
            StepKind::Deploying => Status::Deploying,
            StepKind::Network => Status::Network,
            StepKind::Finalizing => Status::Finalizing,
        }
    }
}

/// What may change about a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub status: Status,
    pub desired: DesiredState,
    /// Why it failed, if it did.
    pub reason: Option<Message>,
    pub updated_at: Millis,
}

/// One step of the workflow, as its user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub kind: StepKind,
    pub started_at: Millis,
    pub ended_at: Option<Millis>,
    /// Why it waits: `paused: not enough traffic`.
    pub note: Option<Message>,
    pub error: Option<Message>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_ready_has_no_short_cut() {
        let way = [
            Status::Pending,
            Status::Starting,
            Status::Deploying,
            Status::Network,
            Status::Finalizing,
            Status::Ready,
        ];
        for (index, from) in way.into_iter().enumerate() {
            for (other, to) in way.into_iter().enumerate() {
                assert_eq!(from.can_become(to), other == index || other == index + 1, "{from} → {to}");
            }
        }
    }

    #[test]
    fn nothing_is_superseded_once_it_has_traffic() {
        let open: Vec<&str> = Status::ALL
            .iter()
            .filter(|status| **status != Status::Superseded && status.can_become(Status::Superseded))
            .map(|status| status.as_str())
            .collect();
        assert_eq!(open, ["pending", "starting", "deploying"]);
    }

    #[test]
    fn what_has_failed_stays_failed() {
        for ended in [Status::Failed, Status::Cancelled, Status::Superseded] {
            assert!(Status::ALL.iter().all(|next| *next == ended || !ended.can_become(*next)), "{ended}");
        }
        assert!(Status::Stopped.can_become(Status::Starting));
        assert!(!Status::Ready.can_become(Status::Failed));
    }

    #[test]
    fn every_step_has_its_status() {
        for step in StepKind::ALL {
            assert_eq!(step.as_str(), step.status().as_str());
            assert_eq!(step.status().step(), Some(*step));
        }
        assert_eq!(Status::Ready.step(), None);
    }
}
