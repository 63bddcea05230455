//! An environment's settings as they are stored: one JSON object, fields of its own.

use model::{
    deployment::{Command, Shutdown},
    environment::{CanarySteps, Hostnames, Regions, Settings, Strategy, StrategyKind},
    name::Port,
    size::{
        Autoscaling, CpuMillis, MemoryMib, Percent, Replicas, Resources, Scaling, Seconds, StorageMib,
        Threshold,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    Value,
    deployments::{StoredHealthcheck, decode_health, shape_of_health},
    json,
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredSettings {
    command: Vec<String>,
    port: u16,
    protocol: String,
    cpu: u32,
    memory: u32,
    storage: Option<u32>,
    scaling: StoredScaling,
    regions: Vec<String>,
    health: Option<StoredHealthcheck>,
    shutdown_signal: String,
    shutdown_grace: u32,
    strategy: StoredStrategy,
    hostnames: Vec<String>,
    secrets: String,
}

/// Without a threshold for the cpu it is a fixed number, and `max` is that.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredScaling {
    min: u32,
    max: u32,
    cpu: Option<u32>,
    memory: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredStrategy {
    kind: String,
    keep: Option<u32>,
    steps: Vec<u32>,
    pause: Option<u32>,
}

pub(super) fn encode(settings: &Settings) -> Value {
    let Settings { resources, shutdown, .. } = settings;
    json::encode(&StoredSettings {
        command: settings.command.words().to_vec(),
        port: settings.port.get(),
        protocol: settings.protocol.to_string(),
        cpu: resources.cpu.get(),
        memory: resources.memory.get(),
        storage: resources.storage.map(StorageMib::get),
        scaling: shape_of_scaling(&settings.scaling),
        regions: settings.regions.iter().map(ToString::to_string).collect(),
        health: settings.health.as_ref().map(shape_of_health),
        shutdown_signal: shutdown.signal.to_string(),
        shutdown_grace: shutdown.grace.get(),
        strategy: shape_of_strategy(&settings.strategy),
        hostnames: settings.hostnames.iter().map(ToString::to_string).collect(),
        secrets: settings.secrets.to_string(),
    })
}

pub(super) fn decode(stored: StoredSettings) -> Result<Settings, String> {
    Ok(Settings {
        command: Command::new(stored.command).map_err(said)?,
        port: Port::new(stored.port.into()).map_err(said)?,
        protocol: stored.protocol.parse().map_err(said)?,
        resources: Resources {
            cpu: CpuMillis::new(stored.cpu.into()).map_err(said)?,
            memory: MemoryMib::new(stored.memory.into()).map_err(said)?,
            storage: stored.storage.map(|mib| StorageMib::new(mib.into())).transpose().map_err(said)?,
        },
        scaling: decode_scaling(&stored.scaling)?,
        regions: Regions::new(parse_all(&stored.regions)?).map_err(said)?,
        health: stored.health.as_ref().map(decode_health).transpose()?,
        shutdown: Shutdown {
            signal: stored.shutdown_signal.parse().map_err(said)?,
            grace: Seconds::new(stored.shutdown_grace.into()).map_err(said)?,
        },
        strategy: decode_strategy(stored.strategy)?,
        hostnames: Hostnames::new(parse_all(&stored.hostnames)?).map_err(said)?,
        secrets: stored.secrets.parse().map_err(said)?,
    })
}

fn shape_of_scaling(scaling: &Scaling) -> StoredScaling {
    let (cpu, memory) = match scaling {
        Scaling::Fixed(_) => (None, None),
        Scaling::Auto(auto) => (Some(auto.cpu().get()), auto.memory().map(Threshold::get)),
    };
    StoredScaling { min: scaling.min().get(), max: scaling.max().get(), cpu, memory }
}

fn decode_scaling(stored: &StoredScaling) -> Result<Scaling, String> {
    let replicas = |number: u32| Replicas::new(number.into()).map_err(said);
    let threshold = |percent: u32| Threshold::new(percent.into()).map_err(said);
    let Some(cpu) = stored.cpu else { return replicas(stored.max).map(Scaling::Fixed) };
    let (min, max) = (replicas(stored.min)?, replicas(stored.max)?);
    let memory = stored.memory.map(threshold).transpose()?;
    Autoscaling::new(min, max, Some(threshold(cpu)?), memory).map(Scaling::Auto).map_err(said)
}

fn shape_of_strategy(strategy: &Strategy) -> StoredStrategy {
    let (keep, steps, pause) = match strategy {
        Strategy::Immediate => (None, vec![], None),
        Strategy::BlueGreen { keep } => (Some(keep.get()), vec![], None),
        Strategy::Canary { steps, pause } => {
            (None, steps.as_slice().iter().map(|share| share.get()).collect(), Some(pause.get()))
        }
    };
    StoredStrategy { kind: strategy.kind().to_string(), keep, steps, pause }
}

fn decode_strategy(stored: StoredStrategy) -> Result<Strategy, String> {
    let seconds = |number: Option<u32>| Seconds::new(number.unwrap_or_default().into()).map_err(said);
    Ok(match stored.kind.parse().map_err(said)? {
        StrategyKind::Immediate => Strategy::Immediate,
        StrategyKind::BlueGreen => Strategy::BlueGreen { keep: seconds(stored.keep)? },
        StrategyKind::Canary => {
            let steps: Result<_, _> =
                stored.steps.into_iter().map(|share| Percent::new(share.into())).collect();
            let steps = CanarySteps::new(steps.map_err(said)?).map_err(said)?;
            Strategy::Canary { steps, pause: seconds(stored.pause)? }
        }
    })
}

fn parse_all<T: std::str::FromStr<Err: std::fmt::Display>>(texts: &[String]) -> Result<Vec<T>, String> {
    texts.iter().map(|text| text.parse().map_err(said)).collect()
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
