//! The settings that have keys of their own: how each is put together from what is there and what is changed.

use std::{fmt::Display, str::FromStr};

use model::{
    deployment::Healthcheck,
    environment::{CanarySteps, Regions, Settings, Strategy, StrategyKind},
    invalid::{Field as Place, Invalid, Problems},
    name::RegionChoice,
    size::{
        self, Autoscaling, CpuMillis, MemoryMib, Percent, Replicas, Resources, Scaling, Seconds, StorageMib,
        Threshold,
    },
};
use serde_json::{Map, Value, json};

/// The texts of a list.
pub(super) fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The nouns that a list's texts stand for.
pub(super) fn parsed<T: FromStr<Err: Display>>(value: &Value) -> Result<Vec<T>, Invalid> {
    let mut problems = Problems::new();
    let mut list = Vec::new();
    for (index, text) in texts(value).iter().enumerate() {
        list.extend(problems.whole().index(index).parse::<T>(text));
    }
    problems.finish(list)
}

/// The noun that a text stands for.
pub(super) fn word<T: FromStr<Err: Display>>(value: &Value) -> Result<T, Invalid> {
    value.as_str().unwrap_or_default().parse().map_err(|error| Invalid::one("", error))
}

/// The noun that a number stands for.
pub(super) fn number<T, E: Display>(value: &Value, new: fn(i64) -> Result<T, E>) -> Result<T, Invalid> {
    new(value.as_i64().unwrap_or(i64::MAX)).map_err(|error| Invalid::one("", error))
}

/// An object's keys: what was there, changed by what is said now. A key that is `null` is not there.
struct Keys(Map<String, Value>);

impl Keys {
    fn merged(base: Value, change: &Value) -> Keys {
        let Value::Object(mut keys) = base else { return Keys::merged(json!({}), change) };
        keys.extend(change.as_object().cloned().unwrap_or_default());
        keys.retain(|_, value| !value.is_null());
        Keys(keys)
    }

    fn number<T>(&self, name: &str, new: fn(i64) -> Result<T, size::Error>) -> Result<Option<T>, Invalid> {
        let value = self.0.get(name).map(|value| number(value, new)).transpose();
        value.map_err(|invalid| under(name, invalid))
    }

    fn word<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Invalid> {
        self.0.get(name).map(word).transpose().map_err(|invalid| under(name, invalid))
    }
}

fn under(name: &str, invalid: Invalid) -> Invalid {
    let mut problems = Problems::new();
    let _: Option<()> = problems.field(name).nest(Err(invalid));
    problems.finish(()).expect_err("there is a problem")
}

/// Whoever names no shard leaves it to us, and it was settled when the region was first deployed to.
pub(super) fn take_regions(settings: &mut Settings, value: &Value) -> Result<(), Invalid> {
    let settled = |choice: RegionChoice| match (&choice.shard, settings.regions.get(&choice.region)) {
        (None, Some(now)) => now.clone(),
        _ => choice,
    };
    let wanted = parsed(value)?.into_iter().map(settled).collect();
    settings.regions = Regions::new(wanted)?;
    Ok(())
}

pub(super) fn take_resources(settings: &mut Settings, change: &Value) -> Result<(), Invalid> {
    let Resources { cpu, memory, storage } = settings.resources;
    let base = json!({ "cpu": cpu.get(), "memory": memory.get(), "storage": storage.map(StorageMib::get) });
    let keys = Keys::merged(base, change);
    settings.resources = Resources {
        cpu: keys.number("cpu", CpuMillis::new)?.unwrap_or(CpuMillis::DEFAULT),
        memory: keys.number("memory", MemoryMib::new)?.unwrap_or(MemoryMib::DEFAULT),
        storage: keys.number("storage", StorageMib::new)?,
    };
    Ok(())
}

pub(super) fn show_scaling(settings: &Settings) -> Value {
    let scaling = &settings.scaling;
    let (cpu, memory) = match scaling {
        Scaling::Fixed(_) => (None, None),
        Scaling::Auto(auto) => (Some(auto.cpu().get()), auto.memory().map(Threshold::get)),
    };
    json!({ "min": scaling.min().get(), "max": scaling.max().get(), "cpu": cpu, "memory": memory })
}

pub(super) fn take_scaling(settings: &mut Settings, change: &Value) -> Result<(), Invalid> {
    let keys = Keys::merged(show_scaling(settings), change);
    let min = keys.number("min", Replicas::new)?.unwrap_or(Replicas::ONE);
    let max = keys.number("max", Replicas::new)?.unwrap_or(min);
    let (cpu, memory) = (keys.number("cpu", Threshold::new)?, keys.number("memory", Threshold::new)?);
    settings.scaling = if min == max && cpu.is_none() && memory.is_none() {
        Scaling::Fixed(min)
    } else {
        Scaling::Auto(Autoscaling::new(min, max, cpu, memory)?)
    };
    Ok(())
}

pub(super) fn show_health(settings: &Settings) -> Value {
    let Some(health) = &settings.health else { return Value::Null };
    json!({
        "path": health.path.as_str(),
        "method": health.method.as_str(),
        "interval": health.interval().get(),
        "timeout": health.timeout().get(),
        "failure_threshold": health.failure_threshold(),
        "initial_delay": health.initial_delay.get(),
    })
}

pub(super) fn take_health(settings: &mut Settings, change: &Value) -> Result<(), Invalid> {
    if change.is_null() {
        settings.health = None;
        return Ok(());
    }
    let keys = Keys::merged(show_health(settings), change);
    let path = keys.word("path")?.ok_or_else(|| Invalid::one("path", "is required"))?;
    let mut health = Healthcheck::get(path);
    health.method = keys.word("method")?.unwrap_or(health.method);
    health.initial_delay = keys.number("initial_delay", Seconds::new)?.unwrap_or(health.initial_delay);
    let interval = keys.number("interval", Seconds::new)?.unwrap_or(health.interval());
    let timeout = keys.number("timeout", Seconds::new)?.unwrap_or(health.timeout());
    let failures = keys.0.get("failure_threshold").and_then(Value::as_u64);
    let failures =
        failures.map_or(health.failure_threshold(), |found| u32::try_from(found).unwrap_or(u32::MAX));
    settings.health = Some(health.with_rhythm(interval, timeout, failures)?);
    Ok(())
}

pub(super) fn take_shutdown(settings: &mut Settings, change: &Value) -> Result<(), Invalid> {
    let shutdown = settings.shutdown;
    let base = json!({ "signal": shutdown.signal.as_str(), "grace": shutdown.grace.get() });
    let keys = Keys::merged(base, change);
    let default = Settings::default().shutdown;
    settings.shutdown.signal = keys.word("signal")?.unwrap_or(default.signal);
    settings.shutdown.grace = keys.number("grace", Seconds::new)?.unwrap_or(default.grace);
    Ok(())
}

pub(super) fn show_strategy(settings: &Settings) -> Value {
    let (steps, pause, keep) = match &settings.strategy {
        Strategy::Immediate => (None, None, None),
        Strategy::BlueGreen { keep } => (None, None, Some(keep.get())),
        Strategy::Canary { steps, pause } => {
            let shares: Vec<u32> = steps.as_slice().iter().map(|share| share.get()).collect();
            (Some(shares), Some(pause.get()), None)
        }
    };
    json!({ "kind": settings.strategy.kind().as_str(), "steps": steps, "pause": pause, "keep": keep })
}

/// Another kind starts from its own defaults: a canary's steps mean nothing to what comes after it.
pub(super) fn take_strategy(settings: &mut Settings, change: &Value) -> Result<(), Invalid> {
    let now = settings.strategy.kind();
    let kind = match change.get("kind") {
        None => now,
        Some(Value::Null) => Strategy::default().kind(),
        Some(value) => word(value).map_err(|invalid| under("kind", invalid))?,
    };
    let base = if kind == now { show_strategy(settings) } else { json!({}) };
    let keys = Keys::merged(base, change);
    let mut problems = Problems::new();
    for (name, owner) in
        [("steps", StrategyKind::Canary), ("pause", StrategyKind::Canary), ("keep", StrategyKind::BlueGreen)]
    {
        let fits = kind == owner || !keys.0.contains_key(name);
        problems.require(fits, name, format!("is for {owner}, and the strategy is {kind}"));
    }
    let steps = keys.0.get("steps").and_then(|steps| problems.whole().nest(canary_steps(steps)));
    problems.finish(())?;
    settings.strategy = match Strategy::of(kind) {
        Strategy::Immediate => Strategy::Immediate,
        Strategy::BlueGreen { keep } => {
            Strategy::BlueGreen { keep: keys.number("keep", Seconds::new)?.unwrap_or(keep) }
        }
        Strategy::Canary { steps: usual, pause } => Strategy::Canary {
            steps: steps.unwrap_or(usual),
            pause: keys.number("pause", Seconds::new)?.unwrap_or(pause),
        },
    };
    Ok(())
}

fn canary_steps(value: &Value) -> Result<CanarySteps, Invalid> {
    let mut problems = Problems::new();
    let mut place: Place<'_> = problems.field("steps");
    let mut shares = Vec::new();
    for (index, share) in value.as_array().into_iter().flatten().enumerate() {
        shares.extend(place.index(index).nest(number(share, Percent::new)));
    }
    let steps = place.nest(CanarySteps::new(shares));
    problems.complete(steps)
}
