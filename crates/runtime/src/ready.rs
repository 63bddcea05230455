//! Who is still getting ready, said explicitly: silence, and a component that died, are never taken for ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use tokio::sync::watch;

/// The readiness of one process, shared by all its components.
#[derive(Clone, Default)]
pub struct Readiness(Arc<watch::Sender<Process>>);

/// One part that must be ready before the process is; it speaks for itself until it retires.
///
/// Dropped in any other way it counts as failed.
#[must_use = "a component that is dropped counts as failed"]
pub struct Component {
    name: &'static str,
    process: Arc<watch::Sender<Process>>,
    is_retired: bool,
}

/// What a component last said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Starting,
    Ready,
    /// It does its job, but not as it should.
    Degraded(String),
    Failed(String),
}

/// The answer to one health question, with the checks it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub is_ok: bool,
    pub checks: Vec<Check>,
}

/// A named check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub state: State,
}

#[derive(Default)]
struct Process {
    components: BTreeMap<&'static str, Said>,
    is_draining: bool,
}

struct Said {
    state: State,
    was_ready: bool,
    is_held: bool,
}

impl Readiness {
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces a component, which is `Starting` until it says otherwise. A failed one that was dropped may
    /// be announced again by its successor.
    ///
    /// # Panics
    /// If a component of this name is still held: two could contradict each other.
    pub fn component(&self, name: &'static str) -> Component {
        let mut is_taken = false;
        self.0.send_modify(|process| {
            let before = process.components.get(name);
            is_taken = before.is_some_and(|said| said.is_held);
            if !is_taken {
                // A successor does not undo that the process has started once.
                let was_ready = before.is_some_and(|said| said.was_ready);
                process.components.insert(name, Said { state: State::Starting, was_ready, is_held: true });
            }
        });
        assert!(!is_taken, "there is already a component {name:?}");
        Component { name, process: Arc::clone(&self.0), is_retired: false }
    }

    /// From now on the process is not ready, whatever its components say.
    pub fn draining(&self) {
        self.0.send_modify(|process| process.is_draining = true);
    }

    /// Live depends on nobody else: whoever can answer is alive.
    pub fn live(&self) -> Report {
        Report { is_ok: true, checks: vec![Check { name: "process", state: State::Ready }] }
    }

    /// Whether the process can do its job: every component is ready or degraded, and it is not draining.
    ///
    /// A process of which nothing has been said is not ready.
    pub fn ready(&self) -> Report {
        self.0.borrow().ready()
    }

    /// Whether every component has been ready once, even if it is not now.
    pub fn startup(&self) -> Report {
        let process = self.0.borrow();
        let is_ok = !process.components.is_empty() && process.components.values().all(|said| said.was_ready);
        Report { is_ok, checks: process.checks() }
    }

    /// Resolves as soon as the process is ready.
    pub async fn became_ready(&self) {
        let mut process = self.0.subscribe();
        process.wait_for(|process| process.ready().is_ok).await.expect("we hold the sender");
    }
}

impl Component {
    pub fn ready(&self) {
        self.say(State::Ready);
    }

    pub fn degraded(&self, reason: impl Into<String>) {
        self.say(State::Degraded(reason.into()));
    }

    pub fn failed(&self, reason: impl Into<String>) {
        self.say(State::Failed(reason.into()));
    }

    /// Its work is done and nobody needs it any more: it no longer counts.
    pub fn retire(mut self) {
        self.is_retired = true;
        self.process.send_modify(|process| {
            process.components.remove(self.name);
        });
    }

    fn say(&self, state: State) {
        self.process.send_if_modified(|process| {
            let said = process.components.get_mut(self.name).expect("it stays until it is retired");
            let is_new = said.state != state;
            if is_new {
                tracing::info!(
                    component = self.name,
                    state = state.as_str(),
                    reason = state.reason(),
                    "health"
                );
            }
            said.was_ready |= state.is_usable();
            said.state = state;
            is_new
        });
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        // Its name may by now be another's.
        if self.is_retired {
            return;
        }
        self.process.send_modify(|process| {
            let said = process.components.get_mut(self.name).expect("it stays until it is retired");
            said.is_held = false;
            if !matches!(said.state, State::Failed(_)) {
                said.state = State::Failed("gone without having retired".into());
                tracing::warn!(component = self.name, "gone without having retired");
            }
        });
    }
}

impl State {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded(_) => "degraded",
            Self::Failed(_) => "failed",
        }
    }

    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Starting | Self::Ready => None,
            Self::Degraded(reason) | Self::Failed(reason) => Some(reason),
        }
    }

    fn is_usable(&self) -> bool {
        match self {
            Self::Ready | Self::Degraded(_) => true,
            Self::Starting | Self::Failed(_) => false,
        }
    }
}

impl Process {
    fn ready(&self) -> Report {
        let mut checks = self.checks();
        if self.is_draining {
            checks.push(Check { name: "draining", state: State::Failed("the process is stopping".into()) });
        }
        let is_ok = !checks.is_empty() && checks.iter().all(|check| check.state.is_usable());
        Report { is_ok, checks }
    }

    fn checks(&self) -> Vec<Check> {
        self.components.iter().map(|(name, said)| Check { name, state: said.state.clone() }).collect()
    }
}

/// `{"status":"ok","checks":[…]}`
impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Report", 2)?;
        fields.serialize_field("status", if self.is_ok { "ok" } else { "failing" })?;
        fields.serialize_field("checks", &self.checks)?;
        fields.end()
    }
}

/// `{"name":"store","state":"degraded","reason":"slow"}`
impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Check", 3)?;
        fields.serialize_field("name", self.name)?;
        fields.serialize_field("state", self.state.as_str())?;
        fields.serialize_field("reason", &self.state.reason())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_which_nothing_was_said_is_alive_and_not_ready() {
        let readiness = Readiness::new();
        assert!(readiness.live().is_ok);
        assert!(!readiness.ready().is_ok);
        assert!(!readiness.startup().is_ok);
    }

    #[test]
    fn a_process_is_ready_when_its_last_component_is() {
        let readiness = Readiness::new();
        let (store, streams) = (readiness.component("store"), readiness.component("streams"));
        store.ready();
        assert!(!readiness.ready().is_ok);
        streams.degraded("slow");
        assert!(readiness.ready().is_ok && readiness.startup().is_ok);
        store.failed("gone");
        assert!(!readiness.ready().is_ok);
        assert!(readiness.startup().is_ok, "it has been ready once");
    }

    #[test]
    fn a_component_dropped_without_retiring_has_failed() {
        let readiness = Readiness::new();
        let store = readiness.component("store");
        store.ready();
        drop(store);
        assert!(!readiness.ready().is_ok);

        // Its successor starts over, but the process has not un-started.
        let successor = readiness.component("store");
        assert!(!readiness.ready().is_ok && readiness.startup().is_ok);
        successor.ready();
        assert!(readiness.ready().is_ok);
    }

    #[test]
    fn a_component_keeps_the_reason_it_failed_for() {
        let readiness = Readiness::new();
        let store = readiness.component("store");
        store.failed("the disk is full");
        drop(store);
        assert_eq!(readiness.ready().checks[0].state.reason(), Some("the disk is full"));
    }

    #[test]
    fn a_retired_component_no_longer_counts() {
        let readiness = Readiness::new();
        let (migration, store) = (readiness.component("migration"), readiness.component("store"));
        store.ready();
        migration.retire();
        assert!(readiness.ready().is_ok);
        assert_eq!(readiness.ready().checks.len(), 1);
    }

    #[test]
    fn a_draining_process_is_not_ready_and_says_so() {
        let readiness = Readiness::new();
        let store = readiness.component("store");
        store.ready();
        readiness.draining();
        let report = readiness.ready();
        assert!(!report.is_ok);
        assert_eq!(report.checks.last().unwrap().name, "draining");
        assert!(readiness.startup().is_ok && readiness.live().is_ok);
    }

    #[test]
    #[should_panic(expected = "there is already a component \"store\"")]
    fn two_components_of_one_name_are_refused() {
        let readiness = Readiness::new();
        let _first = readiness.component("store");
        let _second = readiness.component("store");
    }

    #[test]
    fn a_report_is_shown_as_named_checks() {
        let readiness = Readiness::new();
        let (a, b) = (readiness.component("a"), readiness.component("b"));
        a.ready();
        b.degraded("slow");
        let shown = serde_json::to_string(&readiness.ready()).unwrap();
        let a = r#"{"name":"a","state":"ready","reason":null}"#;
        let b = r#"{"name":"b","state":"degraded","reason":"slow"}"#;
        assert_eq!(shown, format!(r#"{{"status":"ok","checks":[{a},{b}]}}"#));
    }

    #[tokio::test]
    async fn waiting_for_ready_ends_when_it_is_said() {
        let readiness = Readiness::new();
        let store = readiness.component("store");
        tokio::join!(readiness.became_ready(), async { store.ready() });
    }
}
