//! What a pod that is played does, and when.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

const BEHAVIOUR: &str = "testing.krane/behaviour";
const DELAY: &str = "testing.krane/delay";
const STOP_DELAY: &str = "testing.krane/stop-delay";
/// What images begin with that name a behaviour: `fake.local/crash-loop:1`.
const IMAGES: &str = "fake.local/";
/// Where the wait between two restarts stops doubling, as in a real cluster.
const BACKOFF_MAX: Duration = Duration::from_mins(5);

/// What a pod does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Behaviour {
    Run,
    CrashLoop,
    OutOfMemory,
    ImagePullError,
    ConfigError,
    SlowStart,
    NeverReady,
    Evict,
    Fail,
    Succeed,
}

impl Behaviour {
    pub const ALL: [Behaviour; 10] = [
        Behaviour::Run,
        Behaviour::CrashLoop,
        Behaviour::OutOfMemory,
        Behaviour::ImagePullError,
        Behaviour::ConfigError,
        Behaviour::SlowStart,
        Behaviour::NeverReady,
        Behaviour::Evict,
        Behaviour::Fail,
        Behaviour::Succeed,
    ];

    /// What images and annotations call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Behaviour::Run => "run",
            Behaviour::CrashLoop => "crash-loop",
            Behaviour::OutOfMemory => "out-of-memory",
            Behaviour::ImagePullError => "image-pull-error",
            Behaviour::ConfigError => "config-error",
            Behaviour::SlowStart => "slow-start",
            Behaviour::NeverReady => "never-ready",
            Behaviour::Evict => "evict",
            Behaviour::Fail => "fail",
            Behaviour::Succeed => "succeed",
        }
    }

    fn read(name: &str) -> Option<Behaviour> {
        Behaviour::ALL.into_iter().find(|behaviour| behaviour.as_str() == name)
    }
}

/// What a pod asks of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Knob {
    /// Or what is wrong with what it asks.
    pub behaviour: Result<Behaviour, String>,
    delay: Option<Duration>,
}

impl Knob {
    pub fn of(pod: &Value) -> Knob {
        let annotations = &pod["metadata"]["annotations"];
        let name = annotations[BEHAVIOUR].as_str().unwrap_or_else(|| named_by_image(pod));
        let behaviour = Behaviour::read(name).ok_or_else(|| format!("no behaviour {name:?}"));
        match annotations[DELAY].as_str().map(|text| (text, duration(text))) {
            None => Knob { behaviour, delay: None },
            Some((_, Some(delay))) => Knob { behaviour, delay: Some(delay) },
            Some((text, None)) => {
                Knob { behaviour: Err(format!("{DELAY}: {text:?} is no duration")), delay: None }
            }
        }
    }

    /// The same, unless it was told to do something else.
    pub fn ordered(self, order: Option<Behaviour>) -> Knob {
        match order {
            Some(behaviour) => Knob { behaviour: Ok(behaviour), ..self },
            None => self,
        }
    }
}

/// The behaviour that the first such image names.
fn named_by_image(pod: &Value) -> &str {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let images = containers.filter_map(|container| container["image"].as_str()?.strip_prefix(IMAGES));
    let name = images.map(|rest| rest.split([':', '@']).next().unwrap_or(rest)).next();
    name.unwrap_or(Behaviour::Run.as_str())
}

/// How long a deleted pod takes to go; none is for ever. What cannot be read is at once.
pub(super) fn stop_delay(pod: &Value) -> Option<Duration> {
    match pod["metadata"]["annotations"][STOP_DELAY].as_str() {
        Some("never") => None,
        text => Some(text.and_then(duration).unwrap_or_default()),
    }
}

/// As Go writes it, with one unit: `300ms`, `5s`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number * 60)),
        _ => None,
    }
}

/// How far a pod has come.
#[derive(Debug, Default)]
pub(super) struct Memory {
    since: Option<(Knob, Instant)>,
    pub restarts: u32,
    crash: Option<Crash>,
}

#[derive(Debug, Clone, Copy)]
struct Crash {
    ended: Instant,
    wait: Duration,
}

impl Memory {
    pub fn behaviour(&self) -> Result<Behaviour, &str> {
        let (knob, _) = self.since.as_ref().expect("it is looked at before it is shown");
        knob.behaviour.as_ref().copied().map_err(String::as_str)
    }

    /// How long the next restart is waited for.
    pub fn wait(&self) -> Duration {
        self.crash.map_or(Duration::ZERO, |crash| crash.wait)
    }

    /// Brings the memory up to the moment, and says how long until it changes by itself.
    pub fn look(&mut self, asked: &Knob, now: Instant) -> Option<Duration> {
        if self.since.as_ref().is_none_or(|(knob, _)| knob != asked) {
            self.since = Some((asked.clone(), now));
            self.crash = None;
        }
        let (_, since) = self.since.as_ref().expect("it was set above");
        let left = |delay: Duration| {
            let left = (*since + asked.delay.unwrap_or(delay)).saturating_duration_since(now);
            Some(left).filter(|left| !left.is_zero())
        };
        match asked.behaviour.as_ref().ok()? {
            Behaviour::CrashLoop | Behaviour::OutOfMemory => {
                Some(self.crash(asked.delay.unwrap_or(Duration::from_secs(1)), now))
            }
            Behaviour::SlowStart => left(Duration::from_secs(5)),
            Behaviour::ImagePullError | Behaviour::Evict | Behaviour::Fail | Behaviour::Succeed => {
                left(Duration::from_secs(1))
            }
            Behaviour::Run | Behaviour::ConfigError | Behaviour::NeverReady => None,
        }
    }

    /// Whether nothing of it runs any more, now that its delay is over or not.
    pub fn is_over(&self, is_due: bool) -> bool {
        is_due && matches!(self.behaviour(), Ok(Behaviour::Evict | Behaviour::Fail | Behaviour::Succeed))
    }

    /// Counts the restarts that are due. The first end is at once; each wait is twice the one before.
    fn crash(&mut self, first: Duration, now: Instant) -> Duration {
        let mut crash = self.crash.unwrap_or_else(|| {
            self.restarts += 1;
            Crash { ended: now, wait: first.max(Duration::from_millis(1)) }
        });
        while now >= crash.ended + crash.wait {
            crash = Crash { ended: crash.ended + crash.wait, wait: (crash.wait * 2).min(BACKOFF_MAX) };
            self.restarts += 1;
        }
        self.crash = Some(crash);
        crash.ended + crash.wait - now
    }
}
