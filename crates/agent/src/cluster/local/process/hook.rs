//! What comes before a container is told to stop.

use std::time::Duration;

use model::name::Signal;
use serde_json::Value;

/// A delay in which routing forgets the container, and then a signal of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hook {
    pub delay: Duration,
    pub signal: Option<Signal>,
}

impl Hook {
    /// Reads the hook of a container. Only those that the agent itself makes are known: in a container process 1 is the
    /// command, here it is the machine's.
    pub fn read(container: &Value) -> Result<Hook, String> {
        let hook = &container["lifecycle"]["preStop"];
        if hook.is_null() {
            return Ok(Hook::default());
        }
        let slept = hook["sleep"]["seconds"].as_u64();
        let slept = slept.map(|seconds| Hook { delay: Duration::from_secs(seconds), signal: None });
        let known = slept.or_else(|| Hook::of_script(&hook["exec"]["command"]));
        known.ok_or_else(|| "lifecycle.preStop: a local cluster has no such hook".to_owned())
    }

    fn of_script(command: &Value) -> Option<Hook> {
        let script = command[2].as_str().filter(|_| command[0] == "sh" && command[1] == "-c")?;
        let (seconds, signal) = script.strip_prefix("sleep ")?.strip_suffix(" 1")?.split_once("; kill -")?;
        let delay = Duration::from_secs(seconds.parse().ok()?);
        Some(Hook { delay, signal: Some(format!("SIG{signal}").parse().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{deployment::replica_set::stopping, settings::WorkloadSettings};
    use model::deployment::Shutdown;
    use serde_json::json;

    #[test]
    fn every_hook_that_the_agent_makes_is_read_as_it_was_meant() {
        let signals =
            [Signal::Term, Signal::Int, Signal::Quit, Signal::Kill, Signal::Hup, Signal::Usr1, Signal::Usr2];
        for (signal, seconds) in signals.into_iter().flat_map(|signal| [(signal, 0), (signal, 7)]) {
            let delay = Duration::from_secs(seconds);
            let settings = WorkloadSettings { drain: delay, ..WorkloadSettings::default() };
            let made = stopping(&settings, Shutdown { signal, ..Shutdown::default() });
            let container = json!({ "lifecycle": made });
            let own = Some(signal).filter(|signal| *signal != Signal::Term);
            assert_eq!(Hook::read(&container), Ok(Hook { delay, signal: own }), "{container}");
        }
    }

    #[test]
    fn nothing_else_is_ever_run() {
        for command in [
            json!(["rm", "-rf", "/"]),
            json!(["sh", "-c", "kill -TERM 1"]),
            json!(["sh", "-c", "sleep 1; kill -X 1"]),
        ] {
            let container = json!({ "lifecycle": { "preStop": { "exec": { "command": command } } } });
            assert!(Hook::read(&container).is_err(), "{container}");
        }
    }
}
