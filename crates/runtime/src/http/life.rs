//! How long a connection lives: when it is asked to go, and when it is no longer waited for.

use std::time::Duration;

use tokio::time::Instant;

use super::HttpConfig;
use crate::random::Random;

/// The deadlines of one connection. Nothing happens here: it only says what is due.
pub(super) struct Life {
    stage: Stage,
    deadline: Option<Instant>,
    too_old: Option<Instant>,
}

/// What to do now that a deadline has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing: there is a later deadline, or none.
    Nothing,
    /// Ask the client to go.
    Close,
    /// Wait no longer for what is still under way.
    Drop,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No request is known to have come. Without one the connection is closed: the protocols' own timeouts
    /// begin only when the client has said which of them it speaks.
    New,
    /// It has been used, and goes on until it is too old.
    Used,
    /// It was asked to go.
    Closing,
}

impl Life {
    pub(super) fn new(begun: Instant, config: &HttpConfig, random: &Random) -> Self {
        let too_old = config.age.map(|age| begun + around(age, random));
        let first = begun + config.header_timeout;
        Self { stage: Stage::New, deadline: earlier(Some(first), too_old), too_old }
    }

    /// When to ask what is due.
    pub(super) async fn deadline(&self) {
        match self.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    /// The deadline has come; `is_used` is whether there has ever been a request.
    pub(super) fn due(&mut self, is_used: bool) -> Due {
        match self.stage {
            Stage::New if is_used => {
                self.stage = Stage::Used;
                self.deadline = self.too_old;
                Due::Nothing
            }
            Stage::New | Stage::Used => Due::Close,
            Stage::Closing => Due::Drop,
        }
    }

    /// The client was asked to go and is waited for until `end`, or less if it was asked before: a stop does
    /// not lengthen the grace of a connection that is already closing.
    pub(super) fn close(&mut self, end: Instant) {
        let known = if self.stage == Stage::Closing { self.deadline } else { None };
        self.stage = Stage::Closing;
        self.deadline = earlier(known, Some(end));
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// The age give or take a tenth: clients that came together do not come back together.
fn around(age: Duration, random: &Random) -> Duration {
    let tenth = age / 10;
    random.duration(age.saturating_sub(tenth)..age.saturating_add(tenth + Duration::from_nanos(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const SECOND: Duration = Duration::from_secs(1);

    fn config() -> HttpConfig {
        HttpConfig { header_timeout: 5 * SECOND, age: Some(100 * SECOND), ..HttpConfig::default() }
    }

    #[test]
    fn ages_lie_within_a_tenth_and_apart() {
        let random = Random::seeded(1);
        let ages: Vec<_> = (0..1000).map(|_| around(100 * SECOND, &random)).collect();
        let (youngest, oldest) = (*ages.iter().min().unwrap(), *ages.iter().max().unwrap());
        assert!((90 * SECOND..91 * SECOND).contains(&youngest), "{youngest:?}");
        assert!((109 * SECOND..=110 * SECOND).contains(&oldest), "{oldest:?}");
        assert_eq!(around(Duration::ZERO, &random), Duration::ZERO);
    }

    #[test]
    fn a_used_connection_lives_to_its_age_and_then_for_its_grace() {
        let begun = Clock::system().instant();
        let mut life = Life::new(begun, &config(), &Random::seeded(1));
        assert_eq!(life.deadline, Some(begun + 5 * SECOND));
        assert_eq!(life.due(true), Due::Nothing);
        assert!(life.deadline >= Some(begun + 90 * SECOND) && life.deadline <= Some(begun + 110 * SECOND));
        assert_eq!(life.due(true), Due::Close);
        life.close(begun + 130 * SECOND);
        assert_eq!(life.deadline, Some(begun + 130 * SECOND));
        assert_eq!(life.due(true), Due::Drop);
    }

    #[test]
    fn a_connection_without_a_request_is_closed_early() {
        let begun = Clock::system().instant();
        let mut life = Life::new(begun, &config(), &Random::seeded(1));
        assert_eq!(life.due(false), Due::Close);
    }

    #[test]
    fn without_an_age_a_used_connection_has_no_deadline() {
        let begun = Clock::system().instant();
        let mut life = Life::new(begun, &HttpConfig { age: None, ..config() }, &Random::seeded(1));
        assert_eq!(life.due(true), Due::Nothing);
        assert_eq!(life.deadline, None);
    }

    #[test]
    fn a_stop_shortens_a_grace_and_never_lengthens_it() {
        let begun = Clock::system().instant();
        let mut life = Life::new(begun, &config(), &Random::seeded(1));
        life.close(begun + 20 * SECOND);
        life.close(begun + 30 * SECOND);
        assert_eq!(life.deadline, Some(begun + 20 * SECOND));
        life.close(begun + 10 * SECOND);
        assert_eq!(life.deadline, Some(begun + 10 * SECOND));
    }
}
