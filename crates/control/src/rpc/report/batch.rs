//! A batch of reports of all kinds, taken in one write.

use model::{
    cluster::{Epoch, Sequence},
    event::Event,
    name::Placement,
};
use store::{ApplyReport, ApplyTurn, Names, Report, SentinelStatus, Taken, TrafficReport, Write};

use crate::event::Draft;

/// A list of everything that an agent has.
pub(super) struct Inventory {
    pub(super) placement: Placement,
    pub(super) epoch: Epoch,
    pub(super) sequence: Sequence,
    pub(super) names: Names,
}

/// One report, as the store takes it.
pub(super) enum Job {
    Deployment(Report),
    Sentinel(SentinelStatus),
    /// With the event that it may be.
    Apply(ApplyReport, Draft),
    Inventory(Inventory),
    Traffic(TrafficReport),
}

impl Job {
    /// Whether it is about requests, and not about what runs.
    pub(super) fn is_traffic(&self) -> bool {
        matches!(self, Self::Traffic(_))
    }

    pub(super) fn placement(&self) -> &Placement {
        match self {
            Self::Deployment(report) => &report.placement,
            Self::Sentinel(status) => &status.placement,
            Self::Apply(report, _) => &report.placement,
            Self::Inventory(inventory) => &inventory.placement,
            Self::Traffic(report) => &report.placement,
        }
    }
}

/// Takes them kind by kind, and says of each what became of it, in the order they were given in.
///
/// Inventories come last. Whichever order they were sent in, their numbers decide: what was reported after an
/// inventory stays, and what was reported before it is in the store when it looks. What turned by them is told in the
/// same write.
pub(super) async fn take(write: &mut Write, jobs: &[Job], draft: &Draft) -> store::Result<Vec<Taken>> {
    let at = draft.at();
    let mut taken = vec![Taken::Unknown; jobs.len()];

    let (nths, reports) = pick(jobs, |job| match job {
        Job::Deployment(report) => Some(report.clone()),
        _ => None,
    });
    if !reports.is_empty() {
        place(&mut taken, nths, write.take_reports(&reports, at).await?);
    }

    let (nths, statuses) = pick(jobs, |job| match job {
        Job::Sentinel(status) => Some(status.clone()),
        _ => None,
    });
    if !statuses.is_empty() {
        place(&mut taken, nths, write.take_sentinel_reports(&statuses).await?);
    }

    let (nths, applies) = pick(jobs, |job| match job {
        Job::Apply(report, draft) => Some((report.clone(), *draft)),
        _ => None,
    });
    if !applies.is_empty() {
        place(&mut taken, nths, take_applies(write, applies).await?);
    }

    let (nths, traffic) = pick(jobs, |job| match job {
        Job::Traffic(report) => Some(report.clone()),
        _ => None,
    });
    if !traffic.is_empty() {
        place(&mut taken, nths, write.take_traffic(&traffic, at).await?);
    }

    for (nth, job) in jobs.iter().enumerate() {
        if let Job::Inventory(inventory) = job {
            taken[nth] = take_inventory(write, inventory).await?;
        }
    }
    let turned = draft.turned(&write.take_turns());
    if !turned.is_empty() {
        write.put_events(&turned).await?;
    }
    Ok(taken)
}

/// What cannot be applied, and what can again, is also an event; that it still cannot is none.
async fn take_applies(write: &mut Write, applies: Vec<(ApplyReport, Draft)>) -> store::Result<Vec<Taken>> {
    let (reports, drafts): (Vec<_>, Vec<_>) = applies.into_iter().unzip();
    let taken = write.take_apply_errors(&reports).await?;
    let told = reports.iter().zip(drafts).zip(&taken);
    let events: Vec<Event> = told
        .filter_map(|((report, draft), taken)| match (taken.turn?, &report.error) {
            (ApplyTurn::Failed, Some(error)) => Some(draft.apply_failed(report, error)),
            (ApplyTurn::Recovered, None) => Some(draft.apply_recovered(report)),
            (ApplyTurn::Failed, None) | (ApplyTurn::Recovered, Some(_)) => {
                unreachable!("it failed by an error, and recovered by none")
            }
        })
        .collect();
    if !events.is_empty() {
        write.put_events(&events).await?;
    }
    Ok(taken.into_iter().map(|taken| taken.taken).collect())
}

async fn take_inventory(write: &mut Write, inventory: &Inventory) -> store::Result<Taken> {
    let Inventory { placement, epoch, sequence, names } = inventory;
    Ok(match write.take_inventory(placement, *epoch, *sequence, names).await? {
        store::Inventory::WrongEpoch => Taken::WrongEpoch,
        store::Inventory::Gone { deployments, sentinels }
            if deployments.is_empty() && sentinels.is_empty() =>
        {
            Taken::Same
        }
        store::Inventory::Gone { .. } => Taken::Changed,
    })
}

/// The jobs of one kind, and where they stand in the batch.
fn pick<T>(jobs: &[Job], kind: impl Fn(&Job) -> Option<T>) -> (Vec<usize>, Vec<T>) {
    jobs.iter().enumerate().filter_map(|(nth, job)| Some((nth, kind(job)?))).unzip()
}

fn place(taken: &mut [Taken], nths: Vec<usize>, found: Vec<Taken>) {
    nths.into_iter().zip(found).for_each(|(nth, found)| taken[nth] = found);
}
