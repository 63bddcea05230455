//! What workflows have to know again, as it is written beside them: shapes of our own, never a noun itself.

use std::collections::BTreeMap;

use model::{
    environment::{CanarySteps, Strategy, StrategyKind},
    id::{AppId, ChangeId, DeploymentId, EnvironmentId, ProjectId},
    name::{Hostname, Placement},
    project::Usage,
    size::{Autoscaling, Percent, Replicas, Resources, Scaling, Seconds, Threshold},
    time::Millis,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A deployment on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deploy {
    #[serde(with = "text")]
    pub(crate) environment: EnvironmentId,
    #[serde(with = "text")]
    pub(crate) change: ChangeId,
    /// Where it is to run, and how often there.
    pub(crate) places: Vec<Place>,
    #[serde(with = "strategy")]
    pub(crate) strategy: Strategy,
    #[serde(with = "texts")]
    pub(crate) hostnames: Vec<Hostname>,
    /// What is wrong, and since when: `place reason`.
    #[serde(default)]
    pub(crate) since: BTreeMap<String, i64>,
    /// What the user was told of already, so that it is told once.
    #[serde(default)]
    pub(crate) told: Vec<String>,
    /// Places whose first sentinel came with it, and is waited for.
    #[serde(default)]
    pub(crate) awaited: Vec<String>,
    #[serde(default)]
    pub(crate) canary: Option<Canary>,
    /// What it is going to use, for those who count before it has a row: cpu, memory, storage.
    #[serde(default)]
    pub(crate) expects: [u64; 3],
}

/// One place, with as many instances as there are to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    #[serde(with = "text")]
    pub(crate) placement: Placement,
    #[serde(with = "scaling")]
    pub(crate) scaling: Scaling,
}

/// How far a canary has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Canary {
    #[serde(with = "text")]
    pub(crate) baseline: DeploymentId,
    /// Which of the strategy's steps it has.
    pub(crate) step: usize,
    /// Since when.
    pub(crate) since: i64,
    #[serde(default)]
    pub(crate) paused: bool,
}

/// Somebody's choice of what is live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Switch {
    #[serde(with = "text")]
    pub(crate) environment: EnvironmentId,
    #[serde(with = "text")]
    pub(crate) change: ChangeId,
    #[serde(with = "text")]
    pub(crate) target: DeploymentId,
    /// Nothing newer takes live by itself from now on.
    pub(crate) pins: bool,
    /// Since when the target is waited for.
    pub(crate) since: i64,
}

/// A deployment that was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retire {
    #[serde(with = "text")]
    pub(crate) environment: EnvironmentId,
    #[serde(with = "text")]
    pub(crate) change: ChangeId,
    /// What it was replaced by.
    #[serde(with = "text")]
    pub(crate) by: DeploymentId,
    /// The end of its grace.
    pub(crate) not_before: i64,
}

/// A rollout through the fleet; what it has come to is in its own row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rollout {
    #[serde(with = "text")]
    pub(crate) change: ChangeId,
    /// That of the sentinel that is under way, whose news are waited for.
    #[serde(with = "text_some")]
    pub(crate) environment: Option<EnvironmentId>,
    /// Since when that one has its time.
    pub(crate) since: i64,
}

/// What is to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delete {
    #[serde(with = "text")]
    pub(crate) change: ChangeId,
    pub(crate) what: Doomed,
    /// Environments whose things were told to go, and when.
    #[serde(default)]
    pub(crate) emptied: BTreeMap<String, i64>,
}

/// The root of what is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Doomed {
    Environment(#[serde(with = "text")] EnvironmentId),
    App(#[serde(with = "text")] AppId),
    Project(#[serde(with = "text")] ProjectId),
}

impl Deploy {
    /// The beginning of a way.
    pub(crate) fn new(
        environment: EnvironmentId,
        change: ChangeId,
        places: Vec<Place>,
        resources: &Resources,
    ) -> Deploy {
        let sum = |sum: Usage, place: &Place| sum.and(Usage::of(resources, &place.scaling));
        let Usage { cpu_millis, memory_mib, storage_mib, .. } = places.iter().fold(Usage::default(), sum);
        Deploy {
            environment,
            change,
            places,
            strategy: Strategy::Immediate,
            hostnames: vec![],
            since: BTreeMap::new(),
            told: vec![],
            awaited: vec![],
            canary: None,
            expects: [cpu_millis, memory_mib, storage_mib],
        }
    }

    /// What it needs when as much of it runs as may.
    pub(crate) fn usage(&self) -> Usage {
        let [cpu_millis, memory_mib, storage_mib] = self.expects;
        Usage { cpu_millis, memory_mib, storage_mib, ..Usage::default() }
    }
}

/// A state as the text of its column.
pub(crate) fn encode(state: &impl Serialize) -> String {
    serde_json::to_string(state).expect("our states have string keys and no failing parts")
}

/// A state as it was written; what cannot be read was written by another version, and is an error to be looked at.
pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, store::Error> {
    serde_json::from_str(text)
        .map_err(|error| store::Error::Broken(format!("the state of a workflow: {error}")))
}

/// How long after `since` it is.
pub(crate) fn passed(since: i64, now: Millis) -> std::time::Duration {
    now.since(Millis(since))
}

/// Nouns by their text.
mod text {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<T: Display, S: Serializer>(noun: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(noun)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A noun by its text, or none.
mod text_some {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
    pub(super) fn serialize<T: Display, S: Serializer>(
        noun: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        noun.as_ref().map(ToString::to_string).serialize(serializer)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// Lists of nouns by their texts.
mod texts {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<T: Display, S: Serializer>(
        nouns: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(nouns.iter().map(ToString::to_string))
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

mod scaling {
    use serde::{Deserializer, Serializer, de::Error};

    use super::{Autoscaling, Deserialize, Replicas, Scaling, Serialize, Threshold};

    #[derive(Serialize, Deserialize)]
    struct Shape {
        min: u32,
        max: u32,
        cpu: Option<u32>,
        memory: Option<u32>,
    }

    pub(super) fn serialize<S: Serializer>(scaling: &Scaling, serializer: S) -> Result<S::Ok, S::Error> {
        let (cpu, memory) = match scaling {
            Scaling::Fixed(_) => (None, None),
            Scaling::Auto(auto) => (Some(auto.cpu().get()), auto.memory().map(Threshold::get)),
        };
        Shape { min: scaling.min().get(), max: scaling.max().get(), cpu, memory }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Scaling, D::Error> {
        let Shape { min, max, cpu, memory } = Shape::deserialize(deserializer)?;
        let replicas = |number: u32| Replicas::new(number.into()).map_err(D::Error::custom);
        let threshold = |percent: u32| Threshold::new(percent.into()).map_err(D::Error::custom);
        let Some(cpu) = cpu else { return replicas(max).map(Scaling::Fixed) };
        let memory = memory.map(threshold).transpose()?;
        let auto = Autoscaling::new(replicas(min)?, replicas(max)?, Some(threshold(cpu)?), memory);
        auto.map(Scaling::Auto).map_err(D::Error::custom)
    }
}

mod strategy {
    use serde::{Deserializer, Serializer, de::Error};

    use super::{CanarySteps, Deserialize, Percent, Seconds, Serialize, Strategy, StrategyKind};

    #[derive(Serialize, Deserialize)]
    struct Shape {
        kind: String,
        seconds: u32,
        steps: Vec<u32>,
    }

    pub(super) fn serialize<S: Serializer>(strategy: &Strategy, serializer: S) -> Result<S::Ok, S::Error> {
        let (seconds, steps) = match strategy {
            Strategy::Immediate => (0, vec![]),
            Strategy::BlueGreen { keep } => (keep.get(), vec![]),
            Strategy::Canary { steps, pause } => {
                (pause.get(), steps.as_slice().iter().map(|share| share.get()).collect())
            }
        };
        Shape { kind: strategy.kind().to_string(), seconds, steps }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Strategy, D::Error> {
        let Shape { kind, seconds, steps } = Shape::deserialize(deserializer)?;
        let seconds = Seconds::new(seconds.into()).map_err(D::Error::custom)?;
        Ok(match kind.parse().map_err(D::Error::custom)? {
            StrategyKind::Immediate => Strategy::Immediate,
            StrategyKind::BlueGreen => Strategy::BlueGreen { keep: seconds },
            StrategyKind::Canary => {
                let steps = steps.into_iter().map(|share| Percent::new(share.into()));
                let steps = steps.collect::<Result<_, _>>().map_err(D::Error::custom)?;
                let steps = CanarySteps::new(steps).map_err(D::Error::custom)?;
                Strategy::Canary { steps, pause: seconds }
            }
        })
    }
}
