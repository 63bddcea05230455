//! What really runs: one pod of a deployment, as its agent last saw it.

use crate::{
    choice::choice,
    id::{DeploymentId, InstanceId},
    limits,
    name::{Address, LabelValue, Line, Message, Placement, PodName},
    size::{CpuMillis, MemoryMib},
    time::Millis,
};
use std::{fmt, sync::Arc};

/// One pod as it is reported. What an agent could not tell is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The pod's name: what tells it from others in its place.
    pub k8s_name: PodName,
    /// The pod's uid, which its successor of the same name does not have.
    pub uid: Option<Line>,
    /// Where it answers, once it has an address.
    pub address: Option<Address>,
    pub zone: Option<LabelValue>,
    pub cpu: Option<CpuMillis>,
    pub memory: Option<MemoryMib>,
    pub status: Status,
    pub ready: bool,
    pub reason: Option<Reason>,
    pub message: Option<Message>,
    pub restarts: u32,
    pub exit_code: Option<i32>,
}

/// An instance as the store knows it: what was reported, of what, from where, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub id: InstanceId,
    pub deployment: DeploymentId,
    pub placement: Placement,
    pub instance: Instance,
    pub first_seen_at: Millis,
    pub last_seen_at: Millis,
}

impl Instance {
    /// Where requests may be sent, if they may.
    pub fn serves_at(&self) -> Option<&Address> {
        match self.status {
            Status::Running => self.address.as_ref(),
            Status::Pending | Status::Failed => None,
        }
    }
}

choice! {
    /// How far a pod has come.
    "an instance status" Status {
        /// Not running yet, or not ready.
        Pending = "pending",
        /// Running and ready.
        Running = "running",
        Failed = "failed",
    }
}

/// Why an instance is not running: one of the reasons we act upon, or another that we only show.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    Known(KnownReason),
    Other(OtherReason),
}

choice! {
    /// The reasons that Kubernetes gives and that mean something to us.
    "a known reason" KnownReason {
        ContainerCreating = "ContainerCreating",
        ContainersNotReady = "ContainersNotReady",
        CrashLoopBackOff = "CrashLoopBackOff",
        CreateContainerConfigError = "CreateContainerConfigError",
        CreateContainerError = "CreateContainerError",
        ErrImagePull = "ErrImagePull",
        Error = "Error",
        Evicted = "Evicted",
        ImagePullBackOff = "ImagePullBackOff",
        InvalidImageName = "InvalidImageName",
        OomKilled = "OOMKilled",
        PodInitializing = "PodInitializing",
        RunContainerError = "RunContainerError",
        /// A probe fails.
        Unhealthy = "Unhealthy",
        Unschedulable = "Unschedulable",
    }
}

/// A reason that is none of the known ones: a bounded word.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OtherReason(Arc<str>);

impl Reason {
    /// The reason in a report. It cannot be refused, for a report must not fail over it: what no reason has is cut
    /// away, and if nothing is left there is none.
    pub fn read(text: &str) -> Option<Reason> {
        let is_word = |c: &char| c.is_ascii_alphanumeric() || "-_.:,".contains(*c);
        let word: String = text.chars().filter(is_word).take(limits::LABEL_CHARS).collect();
        if word.is_empty() {
            return None;
        }
        Some(match word.parse() {
            Ok(known) => Reason::Known(known),
            Err(_) => Reason::Other(OtherReason(word.into())),
        })
    }

    pub fn as_str(&self) -> &str {
        match self {
            Reason::Known(known) => known.as_str(),
            Reason::Other(other) => &other.0,
        }
    }
}

impl From<KnownReason> for Reason {
    fn from(known: KnownReason) -> Reason {
        Reason::Known(known)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for OtherReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(any(test, feature = "sample"))]
impl Instance {
    /// A running instance, number `number` of its deployment.
    pub fn sample(number: u8) -> Instance {
        Instance {
            k8s_name: format!("dep-sample-{number}").parse().expect("a pod name"),
            uid: None,
            address: Some(format!("10.0.0.{number}:8080").parse().expect("an address")),
            zone: Some("us-east-1a".parse().expect("a label value")),
            cpu: Some(CpuMillis::DEFAULT),
            memory: Some(MemoryMib::DEFAULT),
            status: Status::Running,
            ready: true,
            reason: None,
            message: None,
            restarts: 0,
            exit_code: None,
        }
    }

    /// The same, not running for this reason.
    #[must_use]
    pub fn pending(self, reason: KnownReason) -> Instance {
        Instance { status: Status::Pending, ready: false, reason: Some(reason.into()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_a_running_instance_is_sent_requests() {
        let instance = Instance::sample(7);
        assert_eq!(instance.serves_at(), instance.address.as_ref());
        assert_eq!(instance.clone().pending(KnownReason::CrashLoopBackOff).serves_at(), None);
        assert_eq!(Instance { status: Status::Failed, ..instance }.serves_at(), None);
    }

    #[test]
    fn an_unknown_reason_is_kept_as_a_bounded_word() {
        assert_eq!(Reason::read("OOMKilled"), Some(KnownReason::OomKilled.into()));
        assert_eq!(Reason::read("Out Of\u{1b} Pods!").unwrap().as_str(), "OutOfPods");
        assert_eq!(Reason::read(&"x".repeat(500)).unwrap().as_str(), "x".repeat(63));
        assert_eq!(Reason::read(" "), None);
    }

    proptest! {
        #[test]
        fn every_reason_reads_back(text in "\\PC*|[A-Za-z]{0,80}") {
            if let Some(reason) = Reason::read(&text) {
                prop_assert_eq!(Reason::read(reason.as_str()), Some(reason));
            }
        }
    }
}
