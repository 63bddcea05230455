//! The life of one pod: prepared, started, asked for its health, started again when it ends, and ended when it shall be.

use std::{path::PathBuf, sync::Arc, time::Duration};

use model::name::Signal;
use runtime::clock::{Clock, Timestamp};
use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};

use super::{
    Around, environment,
    environment::expand,
    hook::Hook,
    launch::{Launch, LaunchError, Process},
    log::{self, LogPlace},
    ports::Ports,
    probe::{Change, Probes},
    restart::Backoff,
    status::{self, Container, End, State},
    stop::Stop,
    volumes::{self, Mounted},
};
use crate::cluster::local::node::{Secrets, Tell, Told};

/// One pod, and all that it needs.
pub struct Life {
    pub around: Arc<Around>,
    pub pod: Value,
    pub secrets: Secrets,
    pub tell: Tell,
    pub stop: Stop,
    /// What it was given, for as long as it lives.
    pub given: Given,
    pub place: Place,
    pub began: Began,
}

/// How far it has come.
pub struct Began {
    since: Timestamp,
    changed: Timestamp,
    container: Container,
    backoff: Backoff,
}

/// Ports that are given back at the end, however it comes.
pub struct Given {
    pub ports: Ports,
    pub numbers: Vec<u16>,
}

/// Where a pod lives.
pub struct Place {
    pub directory: PathBuf,
}

/// Everything that can be known before a container is started.
struct Prepared {
    launch: Launch,
    probes: Probes,
    hook: Hook,
    mounted: Mounted,
}

/// Why it is not started: for whom to mend, and in which words.
struct Unprepared {
    reason: &'static str,
    message: String,
}

/// How often what is missing is looked for, and whether Secrets have changed.
const LOOK: Duration = Duration::from_secs(1);

/// How often, and how soon after each other, a port that seems taken is looked at.
const LOOKS: u32 = 25;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Where a pod finds what would be at the root of its own file system.
const ROOT: &str = "KRANE_LOCAL_ROOT";

impl Life {
    pub async fn run(mut self) {
        self.run_until_stopped().await;
        let Life { tell, given, place, .. } = self;
        if let Err(error) = std::fs::remove_dir_all(&place.directory)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(directory = %place.directory.display(), %error, "what a pod left behind stays");
        }
        drop(given);
        tell.tell(Told::Ended);
    }

    async fn run_until_stopped(&mut self) {
        self.told();
        while !self.stop.is_asked() {
            let prepared = match self.prepare() {
                Ok(prepared) => prepared,
                Err(Unprepared { reason, message }) => {
                    self.waits(reason, message);
                    self.pause(LOOK).await;
                    continue;
                }
            };
            if let Some(port) = self.given.taken(&self.around.clock).await {
                let message = format!("port {port} is taken by another process of this machine");
                let rejected = status::rejected("NodePorts", &message, self.began.since);
                self.tell.tell(Told::Status(rejected));
                self.stop.asked().await;
                return;
            }
            let end = self.attend(&prepared).await;
            if !self.stop.is_asked() {
                self.rest(end).await;
            }
        }
    }

    /// Reads all that the pod says of itself, and makes its directories.
    fn prepare(&self) -> Result<Prepared, Unprepared> {
        let unprepared = |reason| move |message| Unprepared { reason, message };
        let (config, create) = (unprepared("CreateContainerConfigError"), unprepared("CreateContainerError"));
        let containers = self.pod["spec"]["containers"].as_array().map_or(&[][..], Vec::as_slice);
        let [container] = containers else {
            return Err(config("a local cluster runs pods of one container".to_owned()));
        };
        let words = self.around.images.words(container).map_err(unprepared("ErrImagePull"))?;
        let probes = Probes::read(container).map_err(&config)?;
        let hook = Hook::read(container).map_err(&config)?;
        let inherited = &self.around.inherited;
        let environment = environment::environment(inherited, &self.pod, container, &self.secrets);
        let mut environment = environment.map_err(&config)?;
        let root = self.place.root();
        volumes::make(&root).map_err(|error| create(format!("{}: {error}", root.display())))?;
        let mounted = volumes::mount(&root, &self.pod, container, &self.secrets).map_err(&config)?;
        environment.insert(ROOT.to_owned(), root.display().to_string());
        let launch = Launch {
            krane: self.around.krane.clone(),
            words: words.iter().map(|word| expand(word, &environment)).collect(),
            environment,
            directory: root,
            log: Some(self.log()),
        };
        Ok(Prepared { launch, probes, hook, mounted })
    }

    fn log(&self) -> LogPlace {
        let config = &self.around.config;
        let path = self.place.directory.join("log");
        LogPlace { path, size_max: config.log_size.as_u64(), files_max: config.log_files }
    }

    /// Starts the container and stays with it until it has ended.
    async fn attend(&mut self, prepared: &Prepared) -> End {
        let started = self.around.clock.now();
        let process = prepared.launch.start().await;
        let mut process = match process {
            Ok(process) => process,
            Err(error) => return self.not_started(&error, started),
        };
        let container = &mut self.began.container;
        container.state = State::Running { since: started };
        self.told();
        let (code, why) = self.watch(prepared, &mut process).await;
        let container = &mut self.began.container;
        (container.is_started, container.is_ready) = (false, false);
        let last = if code == 0 { String::new() } else { log::tail(&self.log().path) };
        let message = [why.unwrap_or_default(), last].into_iter().filter(|text| !text.is_empty());
        let message = message.collect::<Vec<_>>().join("\n");
        let reason = if code == 0 { "Completed" } else { "Error" };
        End { code, reason, message, started, finished: self.around.clock.now() }
    }

    fn not_started(&self, error: &LaunchError, started: Timestamp) -> End {
        if !matches!(error, LaunchError::Refused(_)) {
            tracing::error!(%error, source = ?std::error::Error::source(error), "a pod cannot be started");
        }
        let message = format!("failed to start container: {error}");
        // The code that container runtimes give to what never ran.
        End { code: 128, reason: "StartError", message, started, finished: self.around.clock.now() }
    }

    /// Tells what the probes find, until the container ends; its code, and why it was ended if we did that.
    async fn watch(&mut self, prepared: &Prepared, process: &mut Process) -> (i32, Option<String>) {
        let clock = self.around.clock.clone();
        let (tell, mut changes) = mpsc::channel(8);
        let asking = async {
            prepared.probes.ask(&prepared.launch, &clock, &tell).await;
            std::future::pending::<()>().await;
        };
        tokio::pin!(asking);
        loop {
            let look = async {
                if prepared.mounted.is_empty() {
                    std::future::pending::<()>().await;
                }
                clock.sleep(LOOK).await;
            };
            tokio::select! {
                biased;
                code = process.ended() => return (code, None),
                () = self.stop.asked() => return (self.end(prepared.hook, process, None).await, None),
                Some(change) = changes.recv() => {
                    if let Some(why) = self.changed(change) {
                        let grace = self.grace();
                        return (self.end(prepared.hook, process, Some(grace)).await, Some(why));
                    }
                }
                () = &mut asking => {}
                () = look => {
                    if let Err(reason) = prepared.mounted.fill(&self.pod, &self.secrets) {
                        tracing::debug!(reason, "a pod keeps the Secrets that it has");
                    }
                }
            }
        }
    }

    /// Takes note of what the probes found; says why, if it shall be started anew.
    fn changed(&mut self, change: Change) -> Option<String> {
        let container = &mut self.began.container;
        match change {
            Change::Started => container.is_started = true,
            Change::Ready(is_ready) => container.is_ready = is_ready,
            Change::Dead(why) => return Some(why),
        }
        self.began.changed = self.around.clock.now();
        self.told();
        None
    }

    /// When a container that is started anew must have ended.
    fn grace(&self) -> Instant {
        let seconds = self.pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
        self.around.clock.instant() + Duration::from_secs(seconds)
    }

    /// Ends a container as Kubernetes does: its hook, SIGTERM, and SIGKILL for all that is left when the time is over.
    async fn end(&mut self, hook: Hook, process: &mut Process, limit: Option<Instant>) -> i32 {
        // It goes on as if nothing were, so that no request is on its way when it is told to stop.
        let is_over = tokio::select! {
            biased;
            code = process.ended() => return code,
            () = self.around.clock.sleep(hook.delay) => false,
            is_over = self.stop.over_or_hurried(limit) => is_over,
        };
        if !is_over {
            for signal in hook.signal.into_iter().chain([Signal::Term]) {
                process.signal(signal).await;
            }
            tokio::select! {
                biased;
                code = process.ended() => return code,
                () = self.stop.over(limit) => {}
            }
        }
        process.kill();
        process.ended().await
    }

    /// Waits until it is time to start again.
    async fn rest(&mut self, end: End) {
        let wait = self.began.backoff.after(end.finished.since(end.started));
        let container = &mut self.began.container;
        container.last = Some(end.clone());
        container.state = State::Ended(end);
        self.given.hold();
        self.told();
        if !wait.is_zero() {
            let (metadata, name) = (&self.pod["metadata"], &self.pod["spec"]["containers"][0]["name"]);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (pod, namespace) = (text(&metadata["name"]), text(&metadata["namespace"]));
            let (name, uid, wait_text) =
                (text(name), text(&metadata["uid"]), runtime::config::duration::format(wait));
            self.waits(
                "CrashLoopBackOff",
                format!(
                    "back-off {wait_text} restarting failed container={name} pod={pod}_{namespace}({uid})"
                ),
            );
            self.pause(wait).await;
        }
        self.began.container.restarts += 1;
    }

    async fn pause(&mut self, wait: Duration) {
        let until = self.around.clock.instant() + wait;
        let clock = self.around.clock.clone();
        tokio::select! {
            biased;
            () = self.stop.asked() => {}
            () = clock.sleep(until.saturating_duration_since(clock.instant())) => {}
        }
    }

    fn waits(&mut self, reason: &'static str, message: String) {
        let state = State::Waiting { reason, message };
        if self.began.container.state != state {
            self.began.container.state = state;
            self.told();
        }
    }

    fn told(&self) {
        let Began { since, changed, container, .. } = &self.began;
        self.tell.tell(Told::Status(status::status(&self.pod, container, *since, *changed)));
    }
}

impl Began {
    pub fn now(around: &Around) -> Began {
        let now = around.clock.now();
        let backoff = Backoff::new(around.config.restart_first, around.config.restart_max);
        Began { since: now, changed: now, container: Container::new(), backoff }
    }
}

impl Given {
    /// Lets the pod listen at its ports; one that somebody else has, if there is one.
    ///
    /// A process of ours that is being started has a copy of all that we hold, until it has become another: so what
    /// seems taken is looked at again.
    async fn taken(&self, clock: &Clock) -> Option<u16> {
        let mut taken = None;
        for _ in 0..LOOKS {
            taken = self.numbers.iter().copied().find(|port| !self.ports.release(*port));
            if taken.is_none() {
                break;
            }
            clock.sleep(LOOK_AGAIN).await;
        }
        taken
    }

    fn hold(&self) {
        self.numbers.iter().for_each(|port| self.ports.hold(*port));
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.numbers.iter().for_each(|port| self.ports.give_back(*port));
    }
}

impl Place {
    /// Where the pod works, and finds its volumes.
    fn root(&self) -> PathBuf {
        self.directory.join("root")
    }
}
