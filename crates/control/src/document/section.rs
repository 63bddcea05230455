//! Every setting of an environment, once: what it is called, what it can hold, how it is read and how it is shown.

use model::{
    deployment::{Command, HealthMethod, HealthPath, Protocol},
    environment::{Hostnames, SecretDelivery, Settings, StrategyKind},
    invalid::{Invalid, Problems},
    limits,
    name::{Hostname, Port, RegionChoice, Signal},
    size::{CpuMillis, MemoryMib, Percent, Replicas, Resources, Seconds, StorageMib, Threshold},
};
use serde_json::{Value, json};

use super::{
    field::{Field, Shape, Text, parses},
    parts,
};

/// One setting.
pub struct Section {
    pub field: Field,
    /// The keys with which a value can be judged without knowing what it changes.
    pub(super) whole: &'static [&'static str],
    /// Whether a change of it needs another deployment to take effect.
    pub deploys: bool,
    /// The setting as it is shown, whole: what is not set is `null`.
    pub show: fn(&Settings) -> Value,
    /// Changes the setting. What the value, which has the right shape, leaves out stays as it is; `null` in it removes.
    pub take: fn(&mut Settings, &Value) -> Result<(), Invalid>,
}

const fn text(check: fn(&str) -> Result<(), String>, example: &'static str) -> Text {
    Text { check, example }
}

const fn seconds(name: &'static str, min: u32, about: &'static str) -> Field {
    Field { name, about, shape: Shape::Number { min, max: Seconds::MAX.get() } }
}

const RESOURCES: &[Field] = &[
    Field {
        name: "cpu",
        about: "Thousandths of a core.",
        shape: Shape::Number { min: CpuMillis::MIN.get(), max: CpuMillis::MAX.get() },
    },
    Field {
        name: "memory",
        about: "MiB of memory.",
        shape: Shape::Number { min: MemoryMib::MIN.get(), max: MemoryMib::MAX.get() },
    },
    Field {
        name: "storage",
        about: "MiB of scratch storage, lost when the instance ends. Without it there is none.",
        shape: Shape::Number { min: StorageMib::MIN.get(), max: StorageMib::MAX.get() },
    },
];

const SCALING: &[Field] = &[
    Field {
        name: "min",
        about: "The fewest instances in a region. With autoscaling at least 1.",
        shape: Shape::Number { min: Replicas::MIN.get(), max: Replicas::MAX.get() },
    },
    Field {
        name: "max",
        about: "The most instances in a region. The same as `min` is a fixed number.",
        shape: Shape::Number { min: Replicas::MIN.get(), max: Replicas::MAX.get() },
    },
    Field {
        name: "cpu",
        about: "Percent of its cpu that an instance may use on average before another is added. 80 where `min` and `max` differ and nothing is said.",
        shape: Shape::Number { min: Threshold::MIN.get(), max: Threshold::MAX.get() },
    },
    Field {
        name: "memory",
        about: "Percent of its memory that an instance may use on average before another is added.",
        shape: Shape::Number { min: Threshold::MIN.get(), max: Threshold::MAX.get() },
    },
];

const HEALTH: &[Field] = &[
    Field {
        name: "path",
        about: "The path that a well instance answers with success. Needed.",
        shape: Shape::Text(text(parses::<HealthPath>, "/health")),
    },
    Field {
        name: "method",
        about: "How it is asked.",
        shape: Shape::Choice(|| HealthMethod::ALL.iter().map(|method| method.as_str()).collect()),
    },
    seconds("interval", 1, "Seconds between two questions. 10 if nothing is said."),
    seconds("timeout", 1, "Seconds that an answer may take. 5 if nothing is said."),
    Field {
        name: "failure_threshold",
        about: "Failures in a row after which an instance counts as unwell. 3 if nothing is said.",
        shape: Shape::Number { min: 1, max: 1000 },
    },
    seconds("initial_delay", 0, "Seconds before the first question."),
];

const SHUTDOWN: &[Field] = &[
    Field {
        name: "signal",
        about: "The signal that asks an instance to stop.",
        shape: Shape::Choice(|| Signal::ALL.iter().map(|signal| signal.as_str()).collect()),
    },
    seconds("grace", 0, "Seconds that it may take to stop."),
];

const STRATEGY: &[Field] = &[
    Field {
        name: "kind",
        about: "How a new deployment takes over: all at once (`immediate`), all at once while the old one is kept warm (`blue_green`), or by growing shares that are judged (`canary`).",
        shape: Shape::Choice(|| StrategyKind::ALL.iter().map(|kind| kind.as_str()).collect()),
    },
    Field {
        name: "steps",
        about: "Of a canary: the shares in percent, growing, the last of them 100. 5, 25, 50 and 100 if nothing is said.",
        shape: Shape::Numbers {
            min: Percent::MIN.get(),
            max: Percent::MAX.get(),
            count: limits::CANARY_STEPS,
        },
    },
    seconds("pause", 0, "Of a canary: seconds that each step lasts. 120 if nothing is said."),
    seconds("keep", 0, "Of blue_green: seconds that the old deployment is kept. 1800 if nothing is said."),
];

/// Every setting, in the order of the document.
pub static SECTIONS: &[Section] = &[
    Section {
        field: Field {
            name: "command",
            about: "What runs instead of what the image says, one word each. No shell reads it.",
            shape: Shape::Texts { each: text(parses::<String>, "serve"), max: limits::COMMAND_WORDS },
        },
        whole: &[],
        deploys: true,
        show: |settings| json!(settings.command.words()),
        take: |settings, value| Command::new(parts::texts(value)).map(|command| settings.command = command),
    },
    Section {
        field: Field {
            name: "port",
            about: "The port that an instance listens on.",
            shape: Shape::Number { min: 1, max: u16::MAX as u32 },
        },
        whole: &[],
        deploys: true,
        show: |settings| json!(settings.port.get()),
        take: |settings, value| parts::number(value, Port::new).map(|port| settings.port = port),
    },
    Section {
        field: Field {
            name: "protocol",
            about: "What an instance speaks: HTTP/1.1 (`http1`), or HTTP/2 without TLS as gRPC servers do (`h2c`).",
            shape: Shape::Choice(|| Protocol::ALL.iter().map(|protocol| protocol.as_str()).collect()),
        },
        whole: &[],
        deploys: true,
        show: |settings| json!(settings.protocol.as_str()),
        take: |settings, value| parts::word(value).map(|protocol| settings.protocol = protocol),
    },
    Section {
        field: Field { name: "resources", about: "What one instance gets.", shape: Shape::Object(RESOURCES) },
        whole: &[],
        deploys: true,
        show: |settings| {
            let Resources { cpu, memory, storage } = settings.resources;
            json!({ "cpu": cpu.get(), "memory": memory.get(), "storage": storage.map(StorageMib::get) })
        },
        take: parts::take_resources,
    },
    Section {
        field: Field {
            name: "scaling",
            about: "How many instances run in each region.",
            shape: Shape::Object(SCALING),
        },
        whole: &["min", "max"],
        deploys: true,
        show: parts::show_scaling,
        take: parts::take_scaling,
    },
    Section {
        field: Field {
            name: "regions",
            about: "Where it runs: `platform/name`, with `:shard` where it matters which.",
            shape: Shape::Texts { each: text(parses::<RegionChoice>, "aws/us-east-1"), max: limits::REGIONS },
        },
        whole: &[],
        deploys: true,
        show: |settings| settings.regions.iter().map(|region| json!(region.to_string())).collect(),
        take: parts::take_regions,
    },
    Section {
        field: Field {
            name: "health",
            about: "How an instance is asked whether it is well. Without it, one that listens is well.",
            shape: Shape::Object(HEALTH),
        },
        whole: &["path"],
        deploys: true,
        show: parts::show_health,
        take: parts::take_health,
    },
    Section {
        field: Field {
            name: "shutdown",
            about: "How an instance is asked to stop.",
            shape: Shape::Object(SHUTDOWN),
        },
        whole: &[],
        deploys: true,
        show: |settings| json!({ "signal": settings.shutdown.signal.as_str(), "grace": settings.shutdown.grace.get() }),
        take: parts::take_shutdown,
    },
    Section {
        field: Field {
            name: "strategy",
            about: "How traffic moves to a new deployment.",
            shape: Shape::Object(STRATEGY),
        },
        whole: &["kind"],
        deploys: false,
        show: parts::show_strategy,
        take: parts::take_strategy,
    },
    Section {
        field: Field {
            name: "hostnames",
            about: "Names of your own that lead here, besides those that every environment has.",
            shape: Shape::Texts {
                each: text(parses::<Hostname>, "shop.example.com"),
                max: limits::HOSTNAMES,
            },
        },
        whole: &[],
        deploys: true,
        show: |settings| settings.hostnames.iter().map(|hostname| json!(hostname.to_string())).collect(),
        take: |settings, value| {
            Hostnames::new(parts::parsed(value)?).map(|hostnames| settings.hostnames = hostnames)
        },
    },
    Section {
        field: Field {
            name: "secrets",
            about: "Who opens the variables of an instance: the agent when it applies (`kubernetes_secret`), or the instance itself when it starts (`inject`).",
            shape: Shape::Choice(|| SecretDelivery::ALL.iter().map(|way| way.as_str()).collect()),
        },
        whole: &[],
        deploys: true,
        show: |settings| json!(settings.secrets.as_str()),
        take: |settings, value| parts::word(value).map(|secrets| settings.secrets = secrets),
    },
];

impl Section {
    /// Changes the setting as somebody's value says, which was found to have the right shape.
    pub(super) fn change(&self, settings: &mut Settings, value: &Value, problems: &mut Problems) {
        let default = value.is_null().then(|| (self.show)(&Settings::default()));
        let result = (self.take)(settings, default.as_ref().unwrap_or(value));
        problems.field(self.field.name).nest(result);
    }

    /// Notes what is wrong with a value whatever is there now, as far as that can be said.
    pub(super) fn judge(&self, value: &Value, problems: &mut Problems) {
        if self.whole.iter().all(|key| value.get(key).is_some_and(|value| !value.is_null())) {
            self.change(&mut Settings::default(), value, problems);
        }
    }

    /// The keys below this one, if it has any.
    pub fn parts(&self) -> &'static [Field] {
        match &self.field.shape {
            Shape::Object(fields) => fields,
            _ => &[],
        }
    }
}
