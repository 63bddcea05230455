//! What the control plane is told of one thing, and what is remembered of what it was told.

use std::time::Duration;

use futures_util::FutureExt as _;
use model::watch::Key;
use wire::report::ApplyReport;

use super::{
    Loop, News, Telling, Told, Trouble, What,
    tell::{Heard, Tell, tell},
};
use crate::{cluster::Cluster, control::Report, kind::Kind};

impl<K: Kind, C: Cluster> Loop<K, C> {
    /// Starts the telling of one thing, if it is news.
    pub(super) fn tell(&mut self, about: Tell) -> Option<Telling<K::Observed>> {
        let news = match &about {
            Tell::Status(key) => self.status(key),
            Tell::Apply(key) => self.trouble(key),
        };
        let Some((report, what)) = news else {
            self.tells.succeeded(&about);
            return None;
        };
        let (control, breaker) = (self.around.control.clone(), self.around.breaker.clone());
        let news = News { about, what, epoch: self.epoch };
        Some(async move { (news, tell(control, breaker, report).await) }.boxed())
    }

    fn status(&self, key: &Key) -> Option<(Report, What<K::Observed>)> {
        // The number comes first: what is read after it is never older than what a lower number told.
        let heading = self.around.actor.term.heading(Some(self.follow.reader().cursor()));
        let objects = self.around.actor.cache.of_key(K::KIND, key);
        let observed = self.kind.observe(key, &objects);
        let (known, unsure) = (self.reported.get(key), self.unsure.get(key));
        if unsure.is_none() && known.map(|(_, observed)| observed) == observed.as_ref() {
            return None;
        }
        let desired = self.follow.reader().get(key).and_then(|standing| standing.state().as_ref().ok());
        let name = objects.iter().find_map(|live| self.kind.named_by(live));
        let name = name.or_else(|| desired.map(|desired| self.kind.name(desired).clone()));
        let name = name.or_else(|| known.map(|(name, _)| name).or(unsure).cloned())?;
        let report = self.kind.report(heading, key, &name, observed.as_ref())?;
        Some((report, What::Status(name, observed)))
    }

    fn trouble(&mut self, key: &Key) -> Option<(Report, What<K::Observed>)> {
        let is_failing = self.is_failing(key);
        let Trouble { version, error, told } = self.troubles.get_mut(key)?;
        let (version, error) = (*version, is_failing.then(|| error.clone()));
        match (&error, &*told) {
            (None, Told::Nothing) => {
                self.troubles.remove(key);
                return None;
            }
            (Some(error), Told::That(of, known)) if (version, error) == (*of, known) => return None,
            (None, Told::Perhaps | Told::That(..)) | (Some(_), _) => *told = Told::Perhaps,
        }
        let heading = self.around.actor.term.heading(Some(self.follow.reader().cursor()));
        let report = ApplyReport { heading, kind: K::KIND, id: key.clone(), version, error: error.clone() };
        Some((Report::Apply(report), What::Apply(version, error)))
    }

    pub(super) fn told(&mut self, News { about, what, epoch }: News<K::Observed>, heard: Heard) {
        if epoch != self.epoch {
            // In this term nothing of it was told yet.
            self.tells.put_back(&about, Duration::ZERO);
            return;
        }
        match heard {
            Heard::Yes => {
                self.around.metrics.reports.inc();
                tracing::debug!(kind = %K::KIND, ?about, "told");
                self.remember(&about, what);
                self.tells.succeeded(&about);
            }
            Heard::Never(error) => {
                tracing::error!(kind = %K::KIND, ?about, %error, "a report is refused for good");
                self.around.metrics.reports_refused.inc();
                self.remember(&about, what);
                self.tells.succeeded(&about);
            }
            Heard::OtherTerm => {
                self.around.actor.term.was_refused();
                self.tells.put_back(&about, Duration::from_secs(1));
            }
            Heard::Later(error) => {
                self.around.metrics.reports_failed.inc();
                // It may have been heard all the same, and what was known before it no longer is.
                if let (Tell::Status(key), What::Status(name, _)) = (&about, what) {
                    self.unsure.insert(key.clone(), name);
                }
                let delay = self.tells.failed(&about, None);
                tracing::warn!(kind = %K::KIND, ?about, %error, ?delay, "a report was not taken");
            }
            Heard::NotAsked(pause) => self.tells.put_back(&about, pause),
        }
    }

    fn remember(&mut self, about: &Tell, what: What<K::Observed>) {
        match (about, what) {
            (Tell::Status(key), What::Status(name, observed)) => {
                self.unsure.remove(key);
                if let Some((_, old)) = self.reported.remove(key) {
                    self.census = self.census.without(self.kind.census(&old));
                }
                if let Some(observed) = observed {
                    self.census = self.census.and(self.kind.census(&observed));
                    self.reported.insert(key.clone(), (name, observed));
                }
            }
            (Tell::Apply(key), What::Apply(version, error)) => {
                if error.is_none() && !self.is_failing(key) {
                    self.troubles.remove(key);
                } else if let Some(trouble) = self.troubles.get_mut(key) {
                    trouble.told = error.map_or(Told::Nothing, |error| Told::That(version, error));
                }
            }
            (Tell::Status(_), What::Apply(..)) | (Tell::Apply(_), What::Status(..)) => {
                unreachable!("an answer to another question")
            }
        }
    }
}
