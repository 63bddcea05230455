//! How deployments go: names, graces, and what a canary needs.

use std::time::Duration;

use model::{
    canary::Rules,
    environment::Environment,
    name::{Hostname, ImageRef},
    size::Replicas,
};
use runtime::config::{Problems, Validate};
use serde::{Deserialize, Serialize};

use super::not_zero;

/// How deployments go.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct DeployConfig {
    /// What every hostname that we give ends in.
    pub apex: String,
    /// What sentinels run, until a rollout brings them another.
    pub sentinel_image: String,
    /// How many sentinels `production` has in each region, so that it survives the loss of a zone. Any other environment has one.
    pub production_sentinels: u32,
    /// How long a replica that runs a workflow may be silent before another goes on with it.
    #[serde(with = "runtime::config::duration")]
    pub claim: Duration,
    /// How long a deployment may take from its first row to enough instances.
    #[serde(with = "runtime::config::duration")]
    pub total: Duration,
    /// Restarts after which an instance counts as one that crashes for ever.
    pub crash_restarts: u32,
    /// How long an image may not be to be had.
    #[serde(with = "runtime::config::duration")]
    pub image_pull: Duration,
    /// How long there may be no room: a node may be booting.
    #[serde(with = "runtime::config::duration")]
    pub unschedulable: Duration,
    /// After how much of it the user is told.
    #[serde(with = "runtime::config::duration")]
    pub unschedulable_told: Duration,
    /// How long what was replaced at once is kept running: what is on its way to it may finish.
    #[serde(with = "runtime::config::duration")]
    pub replaced: Duration,
    /// How long a deletion waits for agents to say that everything is gone.
    #[serde(with = "runtime::config::duration")]
    pub deletion: Duration,
    /// How long one sentinel of a rollout may take to be healthy with what it was told, before the rollout pauses.
    #[serde(with = "runtime::config::duration")]
    pub rollout: Duration,
    /// After how long a sentinel that runs the image it ran before is believed to run it anew.
    #[serde(with = "runtime::config::duration")]
    pub rollout_settle: Duration,
    /// Requests that each side of a canary needs in a step.
    pub canary_requests_min: u64,
    /// How long a step of a canary is extended while there are fewer.
    #[serde(with = "runtime::config::duration")]
    pub canary_extension: Duration,
}

impl Default for DeployConfig {
    fn default() -> Self {
        Self {
            apex: "localhost".to_owned(),
            sentinel_image: "krane/sentinel:1".to_owned(),
            production_sentinels: 3,
            claim: Duration::from_secs(15),
            total: Duration::from_mins(15),
            crash_restarts: 3,
            image_pull: Duration::from_mins(2),
            unschedulable: Duration::from_mins(10),
            unschedulable_told: Duration::from_mins(1),
            replaced: Duration::from_secs(30),
            deletion: Duration::from_hours(24),
            rollout: Duration::from_mins(5),
            rollout_settle: Duration::from_secs(10),
            canary_requests_min: Rules::default().requests_min,
            canary_extension: Duration::from_mins(10),
        }
    }
}

impl DeployConfig {
    /// What a canary is judged by.
    pub fn rules(&self) -> Rules {
        Rules { requests_min: self.canary_requests_min, ..Rules::default() }
    }

    /// The hostname of a label under the apex.
    pub fn apex(&self) -> Hostname {
        self.apex.parse().expect("validation has read it")
    }

    pub fn sentinel_image(&self) -> ImageRef {
        self.sentinel_image.parse().expect("validation has read it")
    }

    /// How many sentinels an environment has in each region, until somebody says otherwise.
    pub fn sentinels(&self, environment: &Environment) -> Replicas {
        let number = if environment.is_production() { self.production_sentinels } else { 1 };
        Replicas::new(number.into()).expect("validation has read it")
    }
}

impl Validate for DeployConfig {
    fn validate(&self, problems: &mut Problems) {
        if let Err(error) = self.apex.parse::<Hostname>() {
            problems.add("apex", error.to_string());
        }
        if let Err(error) = self.sentinel_image.parse::<ImageRef>() {
            problems.add("sentinel_image", error.to_string());
        }
        if self.production_sentinels == 0 {
            problems.add("production_sentinels", "must be one or more");
        }
        if let Err(error) = Replicas::new(self.production_sentinels.into()) {
            problems.add("production_sentinels", error.to_string());
        }
        let times = [
            ("claim", self.claim),
            ("total", self.total),
            ("deletion", self.deletion),
            ("rollout", self.rollout),
        ];
        for (key, value) in times {
            not_zero(problems, key, value);
        }
        if self.crash_restarts == 0 {
            problems.add("crash_restarts", "must be one or more");
        }
    }
}
