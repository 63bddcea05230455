//! Whether a report of a sentinel turns its health.

use model::{deployment::DesiredState, event::Subject, id::ChangeId, sentinel::Health, size::Replicas};

use crate::{Result, Row, Turn, Turned, place};

/// A sentinel before a report: how it was, and whose it is.
pub(crate) struct Before {
    health: Health,
    desired: DesiredState,
    wanted: Replicas,
    subject: Subject,
    change: Option<ChangeId>,
}

/// The columns of a lock's answer that [`Before::read`] reads, behind the one that says whether the row is a tombstone.
pub(crate) const COLUMNS: &str = "health, desired_status, replicas, id, workspace_id, project_id, app_id, environment_id, \
                                  platform, region, shard, change_id";

impl Before {
    pub(crate) fn read(row: &Row) -> Result<Before> {
        let mut cells = row.cells();
        cells.skip(1);
        let (health, desired) = (cells.parse()?, cells.parse()?);
        let wanted = cells.number(Replicas::new)?;
        let sentinel = Some(cells.parse()?);
        let subject = Subject {
            sentinel,
            workspace: Some(cells.parse()?),
            project: Some(cells.parse()?),
            app: Some(cells.parse()?),
            environment: Some(cells.parse()?),
            placement: Some(place::decode(&mut cells)?),
            ..Subject::default()
        };
        Ok(Before { health, desired, wanted, subject, change: cells.parse_some()? })
    }

    /// What is to be told once it is so. One that comes up is not unhealthy before it was healthy; one that was, and of
    /// which nothing is left, is, unless that is what is wanted.
    pub(crate) fn turn(self, health: Health, available: Replicas) -> Option<Turn> {
        let Before { health: before, desired, wanted, subject, change } = self;
        let turned = match (before, health) {
            (Health::Unhealthy | Health::Paused | Health::Unknown, Health::Healthy) => {
                Turned::Healthy { available, wanted }
            }
            (Health::Healthy, Health::Unhealthy | Health::Unknown) if desired == DesiredState::Running => {
                Turned::Unhealthy { available, wanted }
            }
            _ => return None,
        };
        Some(Turn { subject, change, turned })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(desired: DesiredState, before: Health, after: Health) -> Option<bool> {
        let before = Before {
            health: before,
            desired,
            wanted: Replicas::ONE,
            subject: Subject::default(),
            change: None,
        };
        before.turn(after, Replicas::MIN).map(|turn| matches!(turn.turned, Turned::Healthy { .. }))
    }

    #[test]
    fn only_a_turn_of_its_health_is_told() {
        use Health::{Healthy, Paused, Unhealthy, Unknown};
        let running = |before, after| told(DesiredState::Running, before, after);
        for before in [Unknown, Unhealthy, Paused] {
            assert_eq!(running(before, Healthy), Some(true), "{before}");
            assert_eq!(running(before, Unhealthy), None, "{before}");
        }
        for after in [Unhealthy, Unknown] {
            assert_eq!(running(Healthy, after), Some(false), "{after}");
            assert_eq!(told(DesiredState::Stopped, Healthy, after), None, "that is what is wanted");
        }
        assert_eq!(running(Healthy, Healthy), None);
        assert_eq!(running(Healthy, Paused), None, "none are wanted");
    }
}
