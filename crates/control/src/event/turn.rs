//! What turned by reports, as events.

use model::{
    event::{Event, EventKind, Field},
    instance::Instance,
    size::Replicas,
};
use store::{Turn, Turned};

use super::Draft;

/// How many instances of a deployment in one place are told of by name, of each kind of turn. A deployment of a thousand
/// that goes is no thousand events.
const NAMED: usize = 20;

impl Draft {
    /// The events of what turned, in its order. The last of many has the number of those that are not told of.
    ///
    /// Each belongs to the change that brought about what is wanted, if that is known.
    pub fn turned(&self, turns: &[Turn]) -> Vec<Event> {
        let mut groups: Vec<Vec<&Turn>> = Vec::new();
        for turn in turns {
            let is_like = |group: &&mut Vec<&Turn>| group.first().is_some_and(|first| is_like(first, turn));
            match groups.iter_mut().find(is_like) {
                Some(group) => group.push(turn),
                None => groups.push(vec![turn]),
            }
        }
        let told = groups.iter().flat_map(|group| {
            let unnamed = group.len().saturating_sub(NAMED);
            let last = group.len().min(NAMED) - 1;
            let named = group.iter().take(NAMED).enumerate();
            named.map(move |(nth, turn)| (*turn, if nth == last { unnamed } else { 0 }))
        });
        told.enumerate()
            .map(|(nth, (turn, unnamed))| {
                let draft = turn.change.map_or(self.nth(nth), |change| self.nth(nth).of_change(change));
                let event = draft.turn(turn);
                if unnamed == 0 { event } else { event.with(Field::Count, &unnamed.to_string()) }
            })
            .collect()
    }

    fn turn(&self, turn: &Turn) -> Event {
        let event = Event::new(self.id, kind(&turn.turned), turn.subject.clone(), self.change, self.at);
        match &turn.turned {
            Turned::Running(instance) => running(event, instance),
            Turned::Failed(instance) => failed(event, instance),
            Turned::Gone(name) => event.with(Field::Instance, name.as_str()),
            Turned::Healthy { available, wanted } | Turned::Unhealthy { available, wanted } => {
                let number = |replicas: &Replicas| replicas.get().to_string();
                event.with(Field::Available, &number(available)).with(Field::Wanted, &number(wanted))
            }
        }
    }
}

/// Of one kind, and of one deployment or sentinel in one place.
fn is_like(one: &Turn, other: &Turn) -> bool {
    kind(&one.turned) == kind(&other.turned) && one.subject == other.subject
}

fn kind(turned: &Turned) -> EventKind {
    match turned {
        Turned::Running(_) => EventKind::InstanceRunning,
        Turned::Failed(_) => EventKind::InstanceFailed,
        Turned::Gone(_) => EventKind::InstanceGone,
        Turned::Healthy { .. } => EventKind::SentinelHealthy,
        Turned::Unhealthy { .. } => EventKind::SentinelUnhealthy,
    }
}

fn running(event: Event, instance: &Instance) -> Event {
    let event = event.with(Field::Instance, instance.k8s_name.as_str());
    match &instance.address {
        Some(address) => event.with(Field::Address, &address.to_string()),
        None => event,
    }
}

fn failed(event: Event, instance: &Instance) -> Event {
    let mut event = event.with(Field::Instance, instance.k8s_name.as_str());
    if let Some(reason) = &instance.reason {
        event = event.with(Field::Reason, reason.as_str());
    }
    if let Some(message) = &instance.message {
        event = event.with(Field::Message, message.as_str());
    }
    event = event.with(Field::Restarts, &instance.restarts.to_string());
    match instance.exit_code {
        Some(code) => event.with(Field::ExitCode, &code.to_string()),
        None => event,
    }
}
