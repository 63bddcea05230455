//! The settings of a local cluster, with what they are when nobody says otherwise.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use runtime::config::{ByteSize, Problems, Validate};
use serde::{Deserialize, Serialize};

/// How pods run as processes of this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalConfig {
    /// Where each pod has its directory; made if it is not there, and one cluster's alone.
    pub directory: PathBuf,
    /// The commands that stand for images, by the image's name with or without its tag.
    pub images: BTreeMap<String, Vec<String>>,
    /// The zone that pods are in; empty is none.
    pub zone: String,
    /// The first and the last port that a pod or a Service may be given. The kernel should not give them to others: on
    /// Linux its own begin at 32768.
    pub port_first: u16,
    pub port_last: u16,
    /// How large one file of a pod's output grows, and how many there are of one pod.
    pub log_size: ByteSize,
    pub log_files: u32,
    /// How long a container that keeps ending waits for its next start: at first, doubling, up to.
    #[serde(with = "runtime::config::duration")]
    pub restart_first: Duration,
    #[serde(with = "runtime::config::duration")]
    pub restart_max: Duration,
    /// How long pods may take to end when the whole cluster does.
    #[serde(with = "runtime::config::duration")]
    pub drain: Duration,
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            directory: PathBuf::from(".krane/local"),
            images: BTreeMap::new(),
            zone: "local-a".to_owned(),
            port_first: 20_000,
            port_last: 29_999,
            log_size: ByteSize::mib(4),
            log_files: 3,
            restart_first: Duration::from_secs(10),
            restart_max: Duration::from_mins(5),
            drain: Duration::from_secs(2),
        }
    }
}

impl Validate for LocalConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.port_first == 0 || self.port_first > self.port_last {
            problems.add("port_last", "must not be below port_first, which is 1 or more");
        }
        if self.log_size < ByteSize::kib(4) {
            problems.add("log_size", "must be 4KiB or more");
        }
        if !(1..=100).contains(&self.log_files) {
            problems.add("log_files", "must be from 1 to 100");
        }
        if self.restart_first.is_zero() || self.restart_first > self.restart_max {
            problems
                .add("restart_max", "must not be shorter than restart_first, which is longer than nothing");
        }
        if !self.zone.is_empty()
            && let Err(error) = self.zone.parse::<model::name::LabelValue>()
        {
            problems.add("zone", error.to_string());
        }
        for (image, words) in &self.images {
            if words.first().is_none_or(String::is_empty) {
                problems.add("images", format!("{image:?} needs a command, like [\"./server\", \"--fast\"]"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn problems(config: &LocalConfig) -> String {
        let mut problems = Problems::default();
        config.validate(&mut problems);
        problems.iter().map(|(key, reason)| [key, ": ", reason, "\n"].concat()).collect()
    }

    #[test]
    fn the_defaults_are_valid_and_everything_wrong_is_told() {
        assert_eq!(problems(&LocalConfig::default()), "");
        let wrong = LocalConfig {
            images: [("a".to_owned(), vec![])].into(),
            zone: "no zone".to_owned(),
            port_first: 2,
            port_last: 1,
            log_size: ByteSize::bytes(1),
            log_files: 0,
            restart_first: Duration::ZERO,
            ..LocalConfig::default()
        };
        expect![[r#"
            port_last: must not be below port_first, which is 1 or more
            log_size: must be 4KiB or more
            log_files: must be from 1 to 100
            restart_max: must not be shorter than restart_first, which is longer than nothing
            zone: a label value cannot have ' ' at position 2; it is made of letters, digits, '-', '_' and '.'
            images: "a" needs a command, like ["./server", "--fast"]
        "#]]
        .assert_eq(&problems(&wrong));
    }
}
