//! Settings that are read again while a role runs: every few seconds, and at once on SIGHUP.
//!
//! A file is read, not watched: what is mounted from a `ConfigMap` or a Secret changes by a swap of links far above it,
//! and reading a page of text costs nothing.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use runtime::{
    clock::Clock,
    config::{ConfigErrors, Loaded},
    shutdown::{Hangups, Tasks},
};
use tokio::sync::watch;

use crate::process::say;

/// How a role reads its settings, as often as it is asked to.
pub(crate) type Load<T> = Arc<dyn Fn() -> Result<Loaded<T>, ConfigErrors> + Send + Sync>;

/// Puts settings in force as far as they are live; says why if it cannot.
type Take<T> = Box<dyn FnMut(&T) -> anyhow::Result<()> + Send>;

/// How soon a change is noticed.
const LOOK: Duration = Duration::from_secs(2);

/// The settings of a role, and what becomes of a change.
pub(crate) struct Reload<T> {
    load: Load<T>,
    loaded: Loaded<T>,
    /// The keys, or the tables of keys, that take effect at once. All others need a restart.
    live: &'static [&'static str],
    take: Take<T>,
    /// What was complained about last: it is said once.
    complaint: Option<String>,
    effective: watch::Sender<String>,
}

/// For `--check-config`: says that settings are valid, or all that is wrong with them.
pub(crate) fn check<T>(read: Result<Loaded<T>, ConfigErrors>) -> anyhow::Result<()> {
    read.context("the settings are not usable")?;
    say("the settings are valid\n")
}

impl<T: Send + 'static> Reload<T> {
    pub(crate) fn new(
        load: Load<T>,
        loaded: Loaded<T>,
        live: &'static [&'static str],
        take: impl FnMut(&T) -> anyhow::Result<()> + Send + 'static,
        effective: watch::Sender<String>,
    ) -> Self {
        Self { load, loaded, live, take: Box::new(take), complaint: None, effective }
    }

    /// Looks again and again, until the tasks stop.
    pub(crate) async fn run(mut self, clock: Clock, mut hangups: Hangups, tasks: Tasks) {
        loop {
            let is_asked = tokio::select! {
                biased;
                () = tasks.stopping() => return,
                () = hangups.next() => true,
                () = clock.sleep(LOOK) => false,
            };
            let load = self.load.clone();
            // Only a runtime that is going down refuses: the next turn sees the stop.
            let Ok(read) = tokio::task::spawn_blocking(move || load()).await else { continue };
            self.took(read, is_asked);
        }
    }

    fn took(&mut self, read: Result<Loaded<T>, ConfigErrors>, is_asked: bool) {
        let said = match read {
            Ok(new) => self.change_to(new, is_asked),
            Err(errors) => Some(format!("they are not usable, and those in force stay: {errors}")),
        };
        if said.is_some() && (is_asked || said != self.complaint) {
            tracing::error!(reason = said, "the settings have changed");
        }
        self.complaint = said;
    }

    /// Takes what is live, and names what is not; why nothing was taken, if so.
    fn change_to(&mut self, new: Loaded<T>, is_asked: bool) -> Option<String> {
        if let Err(error) = (self.take)(&new.value) {
            return Some(format!("they cannot be used, and those in force stay: {error:#}"));
        }
        let changed = new.changed_since(&self.loaded);
        let is_live = |key: &String| {
            let is_at =
                |live: &&str| key == live || key.strip_prefix(live).is_some_and(|rest| rest.starts_with('.'));
            self.live.iter().any(is_at)
        };
        let (live, later): (Vec<String>, Vec<String>) = changed.into_iter().partition(is_live);
        if !live.is_empty() {
            tracing::info!(keys = live.join(", "), "settings have changed, and are in force");
        } else if is_asked {
            tracing::info!("settings were read again; nothing that can change while it runs has");
        }
        self.loaded.show(&new, &live);
        self.effective.send_replace(self.loaded.effective().to_owned());
        let later = later.join(", ");
        (!later.is_empty()).then(|| format!("these take effect after a restart: {later}"))
    }
}
