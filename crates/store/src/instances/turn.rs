//! What turned between two things known of instances: pure.

use model::instance::{Instance, KnownReason, Reason, Record, Status};

use super::settle::{Known, RowKey};
use crate::Turned;

/// How an instance stands, as far as anybody is told of it.
#[derive(Debug, PartialEq, Eq)]
enum Standing<'a> {
    Runs,
    /// With its reason: another reason is other news, one restart more is none.
    Fails(Option<&'a Reason>),
    /// On its way up or down, which is not told of.
    Comes,
}

/// Everything that turned, row by row: what is gone first, then what runs or fails and did not before.
pub(super) fn turns(before: &Known, after: &Known) -> Vec<(RowKey, Turned)> {
    let gone = before.records().filter(|record| continued(after, record).is_none());
    let gone = gone.map(|record| (row(record), Turned::Gone(record.instance.k8s_name.clone())));
    let turned = after.records().filter_map(|record| {
        let was = continued(before, record).map(|before| &before.instance);
        Some((row(record), turn(was, &record.instance)?))
    });
    gone.chain(turned).collect()
}

/// The same instance of the same deployment, if it is known there.
fn continued<'a>(known: &'a Known, record: &Record) -> Option<&'a Record> {
    let found = known.get(&record.placement, &record.instance.k8s_name)?;
    (found.id == record.id && found.deployment == record.deployment).then_some(found)
}

fn row(record: &Record) -> RowKey {
    (record.deployment, record.placement.clone())
}

fn turn(before: Option<&Instance>, after: &Instance) -> Option<Turned> {
    let ran = before.is_some_and(|before| before.status == Status::Running);
    let now = standing(after, ran);
    let was = before.map(|before| standing(before, true));
    match now {
        Standing::Comes => None,
        now if was.as_ref() == Some(&now) => None,
        Standing::Runs => Some(Turned::Running(after.clone())),
        Standing::Fails(_) => Some(Turned::Failed(after.clone())),
    }
}

/// One that is not ready yet is on its way; one that was, and no longer is, fails.
fn standing(instance: &Instance, ran: bool) -> Standing<'_> {
    let reason = instance.reason.as_ref();
    match (instance.status, reason) {
        (Status::Running, _) => Standing::Runs,
        (
            Status::Pending,
            None | Some(Reason::Known(KnownReason::ContainerCreating | KnownReason::PodInitializing)),
        ) => Standing::Comes,
        (Status::Pending, Some(Reason::Known(KnownReason::ContainersNotReady))) if !ran => Standing::Comes,
        (Status::Failed, _) | (Status::Pending, Some(_)) => Standing::Fails(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ill(reason: &str) -> Instance {
        Instance { status: Status::Pending, reason: Reason::read(reason), ..Instance::sample(1) }
    }

    /// The names of the turns that a pod takes on its way through these.
    fn told(way: &[Instance]) -> Vec<&'static str> {
        let mut before = None;
        let mut told = Vec::new();
        for now in way {
            told.extend(turn(before, now).map(|turned| match turned {
                Turned::Running(_) => "running",
                Turned::Failed(_) => "failed",
                other => panic!("{other:?}"),
            }));
            before = Some(now);
        }
        told
    }

    #[test]
    fn a_pod_that_comes_up_is_told_of_once() {
        let way =
            [ill("ContainerCreating"), ill("ContainersNotReady"), Instance::sample(1), Instance::sample(1)];
        assert_eq!(told(&way), ["running"]);
    }

    #[test]
    fn each_reason_is_told_of_and_one_restart_more_is_not() {
        let again = |restarts| Instance { restarts, ..ill("CrashLoopBackOff") };
        assert_eq!(told(&[ill("Error"), again(1), again(2), again(3)]), ["failed", "failed"]);
        assert_eq!(
            told(&[Instance::sample(1), ill("ContainersNotReady"), Instance::sample(1)]),
            ["running", "failed", "running"]
        );
    }

    #[test]
    fn a_pod_that_goes_down_does_not_fail() {
        let leaving = Instance { status: Status::Pending, reason: None, ..Instance::sample(1) };
        assert_eq!(told(&[Instance::sample(1), leaving]), ["running"]);
    }
}
