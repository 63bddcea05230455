//! What the control plane is told of one thing, and what is remembered of what it was told.

use std::time::Duration;

use futures_util::FutureExt as _;
use model::watch::Key;
use wire::report::ApplyReport;

use super::{
    Loop, Telling, What,
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
        Some(async move { (about, tell(control, breaker, report).await, what) }.boxed())
    }

    fn status(&self, key: &Key) -> Option<(Report, What<K::Observed>)> {
        // The number comes first: what is read after it is never older than what a lower number told.
        let heading = self.around.actor.term.heading(Some(self.follow.reader().cursor()));
        let objects = self.around.actor.cache.of_key(K::KIND, key);
        let observed = self.kind.observe(key, &objects);
        let known = self.reported.get(key);
        if known.map(|(_, observed)| observed) == observed.as_ref() {
            return None;
        }
        let desired = self.follow.reader().get(key).and_then(|standing| standing.state().as_ref().ok());
        let name = objects.iter().find_map(|live| self.kind.named_by(live));
        let name = name.or_else(|| desired.map(|desired| self.kind.name(desired).clone()));
        let name = name.or_else(|| known.map(|(name, _)| name.clone()))?;
        let report = self.kind.report(heading, key, &name, observed.as_ref())?;
        Some((report, What::Status(name, observed)))
    }

    fn trouble(&mut self, key: &Key) -> Option<(Report, What<K::Observed>)> {
        let trouble = self.troubles.get(key)?;
        let is_over = !self.is_failing(key);
        let error = (!is_over).then(|| trouble.error.clone());
        if error == trouble.told {
            if is_over {
                self.troubles.remove(key);
            }
            return None;
        }
        let heading = self.around.actor.term.heading(Some(self.follow.reader().cursor()));
        let version = trouble.version;
        let report = ApplyReport { heading, kind: K::KIND, id: key.clone(), version, error: error.clone() };
        Some((Report::Apply(report), What::Apply(error)))
    }

    pub(super) fn told(&mut self, about: &Tell, heard: Heard, what: What<K::Observed>) {
        match heard {
            Heard::Yes => {
                self.around.metrics.reports.inc();
                self.remember(about, what);
                self.tells.succeeded(about);
            }
            Heard::Never(error) => {
                tracing::error!(kind = %K::KIND, ?about, %error, "a report is refused for good");
                self.around.metrics.reports_refused.inc();
                self.remember(about, what);
                self.tells.succeeded(about);
            }
            Heard::OtherTerm => {
                self.around.actor.term.was_refused();
                self.tells.put_back(about, Duration::from_secs(1));
            }
            Heard::Later(error) => {
                self.around.metrics.reports_failed.inc();
                let delay = self.tells.failed(about, None);
                tracing::warn!(kind = %K::KIND, ?about, %error, ?delay, "a report was not taken");
            }
            Heard::NotAsked(pause) => self.tells.put_back(about, pause),
        }
    }

    fn remember(&mut self, about: &Tell, what: What<K::Observed>) {
        match (about, what) {
            (Tell::Status(key), What::Status(name, observed)) => {
                if let Some((_, old)) = self.reported.remove(key) {
                    self.census = self.census.without(self.kind.census(&old));
                }
                if let Some(observed) = observed {
                    self.census = self.census.and(self.kind.census(&observed));
                    self.reported.insert(key.clone(), (name, observed));
                }
            }
            (Tell::Apply(key), What::Apply(Some(error))) => {
                if let Some(trouble) = self.troubles.get_mut(key) {
                    trouble.told = Some(error);
                }
            }
            (Tell::Apply(key), What::Apply(None)) => {
                if !self.is_failing(key) {
                    self.troubles.remove(key);
                }
            }
            (Tell::Status(_), What::Apply(_)) | (Tell::Apply(_), What::Status(..)) => {
                unreachable!("an answer to another question")
            }
        }
    }
}
