//! Which workflows there are, as far as this replica knows, and when each is to be looked at. Pure.

use std::collections::BTreeMap;

use model::{
    id::{EnvironmentId, WorkflowId},
    time::Millis,
};
use store::OpenWorkflow;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Book(BTreeMap<WorkflowId, Entry>);

#[derive(Debug)]
struct Entry {
    environment: Option<EnvironmentId>,
    due: Millis,
    /// It is being gone on with.
    busy: bool,
    /// Something happened while it was.
    stirred: bool,
}

impl Book {
    /// Takes over what the store says: what is new is known from now on, what is not there any more is over.
    pub(super) fn listed(&mut self, open: &[OpenWorkflow], now: Millis) {
        let before = std::mem::take(&mut self.0);
        for OpenWorkflow { workflow, held_for } in open {
            // One that somebody holds is theirs until that runs out.
            let free = now.after(*held_for);
            let known = before.get(&workflow.id);
            let entry = Entry {
                environment: environment_of(&workflow.state),
                // What we do not know is looked at once, whatever it waits for: only then do we hear the news of it, and
                // whoever heard it before may have ended.
                due: known.map_or(free, |known| known.due.min(workflow.wake_at.max(free))),
                busy: known.is_some_and(|known| known.busy),
                stirred: known.is_some_and(|known| known.stirred),
            };
            self.0.insert(workflow.id, entry);
        }
        for (id, entry) in before.into_iter().filter(|(_, entry)| entry.busy) {
            self.0.entry(id).or_insert(entry);
        }
    }

    /// News for one.
    pub(super) fn heard(&mut self, id: WorkflowId, now: Millis) {
        if let Some(entry) = self.0.get_mut(&id) {
            entry.stirred |= entry.busy;
            entry.due = entry.due.min(now);
        }
    }

    /// Something happened in an environment.
    pub(super) fn stirred(&mut self, environment: EnvironmentId, now: Millis) {
        let of: Vec<WorkflowId> = self
            .0
            .iter()
            .filter(|(_, entry)| entry.environment == Some(environment))
            .map(|(id, _)| *id)
            .collect();
        of.into_iter().for_each(|id| self.heard(id, now));
    }

    /// The one that has waited longest, to be gone on with.
    pub(super) fn take_due(&mut self, now: Millis) -> Option<WorkflowId> {
        let waiting = self.0.iter_mut().filter(|(_, entry)| !entry.busy && entry.due <= now);
        let (id, entry) = waiting.min_by_key(|(_, entry)| entry.due)?;
        entry.busy = true;
        entry.stirred = false;
        Some(*id)
    }

    /// When the next one is due; nothing, if nobody has a hand free.
    pub(super) fn next_due(&self, is_free: bool) -> Option<Millis> {
        let waiting = self.0.values().filter(|entry| !entry.busy && is_free);
        waiting.map(|entry| entry.due).min()
    }

    /// It is let go until then; if something happened meanwhile, it is due at once.
    pub(super) fn rests(&mut self, id: WorkflowId, until: Millis) {
        if let Some(entry) = self.0.get_mut(&id) {
            entry.busy = false;
            entry.due = if entry.stirred { Millis(0) } else { until };
        }
    }

    pub(super) fn over(&mut self, id: WorkflowId) {
        self.0.remove(&id);
    }
}

/// The environment that a state names, if it is about one.
pub(super) fn environment_of(state: &str) -> Option<EnvironmentId> {
    let state: serde_json::Value = serde_json::from_str(state).ok()?;
    state["environment"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::workflow::WorkflowKind;
    use std::time::Duration;
    use store::Workflow;

    fn open(number: u128, wake_at: i64, held_ms: u64) -> OpenWorkflow {
        let environment = EnvironmentId::sample(number);
        let workflow = Workflow {
            id: WorkflowId::sample(number),
            kind: WorkflowKind::Deploy,
            subject: String::new(),
            step: String::new(),
            state: format!(r#"{{"environment":"{environment}"}}"#),
            wake_at: Millis(wake_at),
            created_at: Millis(0),
        };
        OpenWorkflow { workflow, held_for: Duration::from_millis(held_ms) }
    }

    #[test]
    fn what_is_due_is_taken_once_and_what_is_held_is_left() {
        let mut book = Book::default();
        book.listed(&[open(1, 0, 0), open(2, 0, 500), open(3, 200, 0)], Millis(100));
        assert_eq!(book.take_due(Millis(100)), Some(WorkflowId::sample(1)));
        assert_eq!(book.take_due(Millis(100)), Some(WorkflowId::sample(3)));
        assert_eq!(book.take_due(Millis(100)), None);
        assert_eq!(book.next_due(true), Some(Millis(600)));
        assert_eq!(book.next_due(false), None);
        assert_eq!(book.take_due(Millis(600)), Some(WorkflowId::sample(2)));
    }

    #[test]
    fn what_sleeps_when_a_replica_starts_is_looked_at_once_so_that_its_news_are_heard() {
        let mut book = Book::default();
        book.listed(&[open(1, 5000, 0)], Millis(100));
        assert_eq!(book.take_due(Millis(100)), Some(WorkflowId::sample(1)));
        book.rests(WorkflowId::sample(1), Millis(5000));
        book.listed(&[open(1, 5000, 0)], Millis(200));
        assert_eq!(book.take_due(Millis(200)), None, "once");
        book.heard(WorkflowId::sample(1), Millis(300));
        assert_eq!(book.take_due(Millis(300)), Some(WorkflowId::sample(1)));
    }

    #[test]
    fn what_happens_during_a_turn_is_looked_at_after_it() {
        let mut book = Book::default();
        book.listed(&[open(1, 0, 0)], Millis(0));
        let id = book.take_due(Millis(0)).unwrap();
        book.stirred(EnvironmentId::sample(1), Millis(1));
        book.listed(&[], Millis(2));
        book.rests(id, Millis(1000));
        assert_eq!(book.take_due(Millis(3)), Some(id));
        book.rests(id, Millis(1000));
        assert_eq!(book.take_due(Millis(4)), None);
        book.stirred(EnvironmentId::sample(2), Millis(5));
        assert_eq!(book.take_due(Millis(5)), None);
        book.over(id);
        assert_eq!(book.next_due(true), None);
    }
}
