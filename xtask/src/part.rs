//! The real things that tests talk to, each started for one run and gone after it.

use std::sync::mpsc::RecvTimeoutError;
use std::thread;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::clients;
use crate::command::{lines_of, show};
use crate::k8s;
use crate::keeper::{Keeper, PAUSE};
use crate::postgres;
use crate::proxies;
use crate::schemathesis;
use crate::stop::Stop;

/// Every part there is. To add one: a variant, and a module with `ensure_installed`, and `keep` if it runs.
/// A run installs in this order: what needs minutes comes last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Part {
    Postgres,
    /// Programs that tests start themselves.
    Clients,
    /// Requests made up from the published document, by a program that tests start themselves.
    Schemathesis,
    Kubernetes,
    /// Every case of HTTP/2, a program that tests start themselves.
    H2spec,
    /// What a sentinel is measured against, programs that a bench starts itself.
    Proxies,
    /// Cilium's own judgement of policies, a program that tests start themselves.
    CiliumOracle,
}

/// A part that is there, and runs until this is dropped.
pub(crate) struct Running {
    /// How tests find it.
    env: Vec<(String, String)>,
    /// None has a part that is only installed.
    _keeper: Option<Keeper>,
}

/// What there is of a part before a run.
enum Installed {
    /// A process of its own has to run.
    ToStart,
    /// Nothing more is needed than to tell tests where it is.
    Whole(Vec<(String, String)>),
}

/// What a part's keeper says once the part answers; it is how the part's own process reaches xtask.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Env(String, String),
    /// For the person who watches.
    Note(String),
    Ready,
}

impl Part {
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Clients => "clients",
            Self::Schemathesis => "schemathesis",
            Self::Kubernetes => "kubernetes",
            Self::H2spec => "h2spec",
            Self::Proxies => "proxies",
            Self::CiliumOracle => "cilium-oracle",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Clients => "clients that others made",
            Self::Schemathesis => "schemathesis",
            Self::Kubernetes => "Kubernetes",
            Self::H2spec => "h2spec",
            Self::Proxies => "other proxies",
            Self::CiliumOracle => "Cilium's verdicts",
        }
    }

    /// Installs the part if it is missing. One that cannot be had is an error: a test that is skipped proves nothing.
    fn install(self, stop: &Stop) -> Result<Installed> {
        stop.check()?;
        match self {
            Self::Postgres => postgres::ensure_installed().map(|()| Installed::ToStart),
            Self::Clients => clients::ensure_installed().map(Installed::Whole),
            Self::Schemathesis => schemathesis::ensure_installed().map(Installed::Whole),
            Self::Kubernetes => k8s::ensure_installed(stop).map(|()| Installed::ToStart),
            Self::H2spec => k8s::ensure_h2spec(stop).map(Installed::Whole),
            Self::Proxies => proxies::ensure_installed(stop).map(Installed::Whole),
            Self::CiliumOracle => k8s::ensure_oracle(stop).map(Installed::Whole),
        }
    }

    /// Waits until the part answers.
    fn start(self, installed: Installed, stop: &Stop) -> Result<Running> {
        if let Installed::Whole(env) = installed {
            return Ok(Running { env, _keeper: None });
        }
        let (keeper, stdout) = Keeper::of_part(self)?;
        let lines = lines_of(stdout);
        let mut env = Vec::new();
        loop {
            stop.check()?;
            let line = match lines.recv_timeout(PAUSE) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => bail!("{} did not start", self.name()),
            };
            match Said::parse(&line).with_context(|| format!("understand {line:?}"))? {
                Said::Env(key, value) => env.push((key, value)),
                Said::Note(text) => show(&text),
                Said::Ready => return Ok(Running { env, _keeper: Some(keeper) }),
            }
        }
    }

    /// In the keeper's process: runs the part until asked to stop.
    pub(crate) fn keep(self, stop: &Stop) -> Result<()> {
        match self {
            Self::Postgres => postgres::keep(stop),
            Self::Kubernetes => k8s::keep(stop),
            Self::Clients | Self::Schemathesis | Self::H2spec | Self::Proxies | Self::CiliumOracle => {
                bail!("there is nothing to keep: tests start them")
            }
        }
    }
}

/// Starts parts, all at once; if one fails, the others are stopped.
pub(crate) fn start_all(parts: &[Part], stop: &Stop) -> Result<Vec<Running>> {
    // One after the other: installers lock the whole machine, and a build takes all of it.
    let installed: Vec<_> = parts.iter().map(|part| part.install(stop)).collect::<Result<_>>()?;
    thread::scope(|scope| {
        let start = |(part, installed): (&Part, _)| {
            let part = *part;
            scope.spawn(move || part.start(installed, stop))
        };
        let starting: Vec<_> = parts.iter().zip(installed).map(start).collect();
        starting.into_iter().map(|one| one.join().expect("starting a part does not panic")).collect()
    })
}

/// What tests need to know of all running parts.
pub(crate) fn env_of(running: &[Running]) -> impl Iterator<Item = &(String, String)> {
    running.iter().flat_map(|running| &running.env)
}

impl Said {
    pub(crate) fn say(&self) {
        match self {
            Self::Env(key, value) => show(&format!("env {key}={value}")),
            Self::Note(text) => show(&format!("note {text}")),
            Self::Ready => show("ready"),
        }
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        if line == "ready" {
            return Some(Self::Ready);
        }
        if let Some(text) = line.strip_prefix("note ") {
            return Some(Self::Note(text.to_owned()));
        }
        let (key, value) = line.strip_prefix("env ")?.split_once('=')?;
        Some(Self::Env(key.to_owned(), value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::Said;

    #[test]
    fn a_keeper_hands_over_values_that_contain_equal_signs() {
        let said = Said::parse("env URL=host=127.0.0.1 port=5");
        assert_eq!(said, Some(Said::Env("URL".into(), "host=127.0.0.1 port=5".into())));
    }

    #[test]
    fn what_a_keeper_may_not_say_is_no_message() {
        assert_eq!(Said::parse("env URL"), None);
        assert_eq!(Said::parse("hello"), None);
    }
}
