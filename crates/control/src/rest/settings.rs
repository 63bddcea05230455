//! An environment's settings as JSON: the fields of the declarative document without app, environment and image.

mod patch;
#[cfg(test)]
mod tests;
pub(in crate::rest) mod write;

use model::{
    deployment::{Command, HealthMethod, Healthcheck, Protocol, Shutdown},
    environment::{CanarySteps, Hostnames, Regions, SecretDelivery, Settings, Strategy, StrategyKind},
    invalid::{Field, Invalid, Problems},
    limits,
    name::{Port, Signal},
    size::{
        Autoscaling, CpuMillis, MemoryMib, Percent, Replicas, Resources, Scaling, Seconds, StorageMib,
        Threshold,
    },
};
use serde_json::Value;

pub use self::{
    patch::{merge, patched},
    write::write,
};
use super::schema::{HOSTNAME, Kind, Property, REGION, Reader, Shape, choice_of, optional, required};

const SECONDS: Kind = Kind::Integer { min: 0, max: limits::SECONDS_MAX as i64 };
const REPLICAS: Kind = Kind::Integer { min: 0, max: limits::REPLICAS_MAX as i64 };
const PERCENT: Kind = Kind::Integer { min: 1, max: 100 };
const WORD: Kind = Kind::Text { min: 0, max: limits::COMMAND_BYTES };

/// All of them. What is left out, or `null`, is what it is by default.
pub static SETTINGS: Shape = Shape {
    name: "Settings",
    about: "What a deployment of the environment gets when its request does not say otherwise.",
    properties: PROPERTIES,
};

/// The fields themselves, for shapes that have others beside them.
pub const PROPERTIES: &[Property] = &[
    optional(
        "command",
        Kind::List { of: &WORD, max: limits::COMMAND_WORDS },
        "What runs instead of what the image says.",
    ),
    optional("port", Kind::Integer { min: 1, max: 65535 }, "Where the app listens; 8080 by default."),
    optional("protocol", choice_of!(Protocol), "What is spoken to the app."),
    optional("resources", Kind::Object(&RESOURCES), "What one instance gets."),
    optional("scaling", Kind::Object(&SCALING), "How many instances run in each region."),
    optional(
        "regions",
        Kind::List { of: &REGION, max: limits::REGIONS },
        "Where it runs: `aws/us-east-1`, or with a shard `aws/us-east-1:b`.",
    ),
    optional(
        "health",
        Kind::Object(&HEALTH),
        "How an instance is asked whether it is well; without it, it is not asked.",
    ),
    optional("shutdown", Kind::Object(&SHUTDOWN), "How an instance is ended."),
    optional("strategy", Kind::Object(&STRATEGY), "How traffic moves from one deployment to the next."),
    optional(
        "hostnames",
        Kind::List { of: &HOSTNAME, max: limits::HOSTNAMES },
        "Hostnames of your own, beside those that are made.",
    ),
    optional("secrets", choice_of!(SecretDelivery), "Who opens the variables of an instance."),
];

pub static RESOURCES: Shape = Shape {
    name: "Resources",
    about: "What one instance gets.",
    properties: &[
        optional(
            "cpu",
            Kind::Integer { min: limits::CPU_MILLIS_MIN as i64, max: limits::CPU_MILLIS_MAX as i64 },
            "In thousandths of a core.",
        ),
        optional(
            "memory",
            Kind::Integer { min: limits::MEMORY_MIB_MIN as i64, max: limits::MEMORY_MIB_MAX as i64 },
            "In MiB.",
        ),
        optional(
            "storage",
            Kind::Integer { min: limits::STORAGE_MIB_MIN as i64, max: limits::STORAGE_MIB_MAX as i64 },
            "Scratch space in MiB, which ends with the instance.",
        ),
    ],
};

pub static SCALING: Shape = Shape {
    name: "Scaling",
    about: "How many instances run in each region. With `cpu` or `memory`, or with `min` below `max`, an autoscaler decides.",
    properties: &[
        optional("min", REPLICAS, "The fewest; with an autoscaler at least 1. The same as `max` by default."),
        optional("max", REPLICAS, "The most. The same as `min` by default, and 1 without both."),
        optional(
            "cpu",
            PERCENT,
            "Above this share of its cpu, in percent, another instance is added; 80 by default.",
        ),
        optional("memory", PERCENT, "The same for memory; without it, memory does not count."),
    ],
};

pub static HEALTH: Shape = Shape {
    name: "Healthcheck",
    about: "A request that an instance answers with success when it is well.",
    properties: &[
        required(
            "path",
            Kind::Text { min: 1, max: limits::HEALTH_PATH_BYTES },
            "What is asked for: `/health`.",
        ),
        optional("method", choice_of!(HealthMethod), "How; `GET` by default."),
        optional(
            "interval",
            Kind::Integer { min: 1, max: limits::SECONDS_MAX as i64 },
            "Seconds from one to the next; 10 by default.",
        ),
        optional(
            "timeout",
            Kind::Integer { min: 1, max: limits::SECONDS_MAX as i64 },
            "Seconds it may take; 5 by default.",
        ),
        optional(
            "failure_threshold",
            Kind::Integer { min: 1, max: 1000 },
            "So many failures in a row are one too many; 3 by default.",
        ),
        optional("initial_delay", SECONDS, "Seconds before the first; 0 by default."),
    ],
};

pub static SHUTDOWN: Shape = Shape {
    name: "Shutdown",
    about: "How an instance is ended.",
    properties: &[
        optional("signal", Kind::Choice(signals), "What it is sent; `SIGTERM` by default."),
        optional("grace", SECONDS, "Seconds it has until it is killed; 30 by default."),
    ],
};

pub static STRATEGY: Shape = Shape {
    name: "Strategy",
    about: "How traffic moves from one deployment to the next.",
    properties: &[
        required(
            "kind",
            choice_of!(StrategyKind),
            "All at once, all at once with the old one kept warm, or a growing share.",
        ),
        optional("keep", SECONDS, "`blue_green`: seconds the old one is kept; 1800 by default."),
        optional(
            "steps",
            Kind::List { of: &PERCENT, max: limits::CANARY_STEPS },
            "`canary`: growing shares in percent, the last 100; 5, 25, 50, 100 by default.",
        ),
        optional("pause", SECONDS, "`canary`: seconds at each step; 120 by default."),
    ],
};

fn signals() -> Vec<&'static str> {
    Signal::ALL.iter().map(|signal| signal.as_str()).collect()
}

/// The settings that a JSON object means, or every problem with it.
pub fn read(value: &Value) -> Result<Settings, Invalid> {
    let mut problems = Problems::new();
    let settings = read_at(value, &mut problems.whole());
    problems.complete(settings)
}

/// The same, as a part of something larger.
pub fn read_at(value: &Value, at: &mut Field<'_>) -> Option<Settings> {
    let reader = Reader::at(&SETTINGS, value, at)?;
    Some(from_reader(&reader, at))
}

/// The settings among the fields of any shape that has [`PROPERTIES`]. What has a problem is as by default.
pub fn from_reader(reader: &Reader<'_>, at: &mut Field<'_>) -> Settings {
    let default = Settings::default();
    let command = words(reader).and_then(|words| at.field("command").nest(Command::new(words)));
    let regions = reader.list(at, "regions").and_then(|list| at.field("regions").nest(Regions::new(list)));
    let hostnames = reader.list(at, "hostnames");
    let hostnames = hostnames.and_then(|list| at.field("hostnames").nest(Hostnames::new(list)));
    Settings {
        command: command.unwrap_or_default(),
        port: reader.number(at, "port", Port::new).unwrap_or(default.port),
        protocol: reader.parse(at, "protocol").unwrap_or(default.protocol),
        resources: resources(reader.object("resources"), &mut at.field("resources")),
        scaling: scaling(reader.object("scaling"), &mut at.field("scaling")),
        regions: regions.unwrap_or_default(),
        health: reader.object("health").and_then(|health| read_health(&health, &mut at.field("health"))),
        shutdown: shutdown(reader.object("shutdown"), &mut at.field("shutdown")),
        strategy: reader
            .object("strategy")
            .and_then(|strategy| read_strategy(&strategy, &mut at.field("strategy")))
            .unwrap_or_default(),
        hostnames: hostnames.unwrap_or_default(),
        secrets: reader.parse(at, "secrets").unwrap_or(default.secrets),
    }
}

fn words(reader: &Reader<'_>) -> Option<Vec<String>> {
    reader.items("command")?.map(|word| word.as_str().map(str::to_owned)).collect()
}

fn resources(reader: Option<Reader<'_>>, at: &mut Field<'_>) -> Resources {
    let default = Resources::default();
    let Some(reader) = reader else { return default };
    Resources {
        cpu: reader.number(at, "cpu", CpuMillis::new).unwrap_or(default.cpu),
        memory: reader.number(at, "memory", MemoryMib::new).unwrap_or(default.memory),
        storage: reader.number(at, "storage", StorageMib::new),
    }
}

fn scaling(reader: Option<Reader<'_>>, at: &mut Field<'_>) -> Scaling {
    reader.and_then(|reader| read_scaling(&reader, at)).unwrap_or_default()
}

/// The scaling that an object means, which has the form of [`SCALING`].
pub fn read_scaling(reader: &Reader<'_>, at: &mut Field<'_>) -> Option<Scaling> {
    let (min, max) = (reader.number(at, "min", Replicas::new), reader.number(at, "max", Replicas::new));
    let cpu = reader.number(at, "cpu", Threshold::new);
    let memory = reader.number(at, "memory", Threshold::new);
    let (min, max) = match (min, max) {
        (None, None) => (Replicas::ONE, Replicas::ONE),
        (Some(one), None) | (None, Some(one)) => (one, one),
        (Some(min), Some(max)) => (min, max),
    };
    if min == max && cpu.is_none() && memory.is_none() {
        return Some(Scaling::Fixed(max));
    }
    at.nest(Autoscaling::new(min, max, cpu, memory)).map(Scaling::Auto)
}

fn read_health(reader: &Reader<'_>, at: &mut Field<'_>) -> Option<Healthcheck> {
    let mut health = Healthcheck::get(reader.parse(at, "path")?);
    let interval = reader.number(at, "interval", Seconds::new).unwrap_or(health.interval());
    let timeout = reader.number(at, "timeout", Seconds::new).unwrap_or(health.timeout());
    let failures = reader.integer("failure_threshold").and_then(|count| u32::try_from(count).ok());
    let failures = failures.unwrap_or(health.failure_threshold());
    health.method = reader.parse(at, "method").unwrap_or(health.method);
    health.initial_delay = reader.number(at, "initial_delay", Seconds::new).unwrap_or(health.initial_delay);
    at.nest(health.with_rhythm(interval, timeout, failures))
}

fn shutdown(reader: Option<Reader<'_>>, at: &mut Field<'_>) -> Shutdown {
    let default = Shutdown::default();
    let Some(reader) = reader else { return default };
    Shutdown {
        signal: reader.parse(at, "signal").unwrap_or(default.signal),
        grace: reader.number(at, "grace", Seconds::new).unwrap_or(default.grace),
    }
}

/// The strategy that an object means, which has the form of [`STRATEGY`].
pub fn read_strategy(reader: &Reader<'_>, at: &mut Field<'_>) -> Option<Strategy> {
    let kind: StrategyKind = reader.parse(at, "kind")?;
    let own: &[&str] = match kind {
        StrategyKind::Immediate => &[],
        StrategyKind::BlueGreen => &["keep"],
        StrategyKind::Canary => &["steps", "pause"],
    };
    for name in ["keep", "steps", "pause"] {
        let is_own = own.contains(&name) || reader.value(name).is_none();
        at.field(name).require(is_own, format!("does not belong to the strategy {kind}"));
    }
    Some(match Strategy::of(kind) {
        Strategy::Immediate => Strategy::Immediate,
        Strategy::BlueGreen { keep } => {
            Strategy::BlueGreen { keep: reader.number(at, "keep", Seconds::new).unwrap_or(keep) }
        }
        Strategy::Canary { steps, pause } => Strategy::Canary {
            steps: canary_steps(reader, at).unwrap_or(steps),
            pause: reader.number(at, "pause", Seconds::new).unwrap_or(pause),
        },
    })
}

fn canary_steps(reader: &Reader<'_>, at: &mut Field<'_>) -> Option<CanarySteps> {
    let mut field = at.field("steps");
    let shares = reader.items("steps")?.enumerate().map(|(nth, share)| {
        let share = share.as_i64()?;
        field.index(nth).keep(Percent::new(share))
    });
    let shares = shares.collect::<Option<Vec<_>>>()?;
    field.nest(CanarySteps::new(shares))
}
