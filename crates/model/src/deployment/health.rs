//! How a workload is asked whether it is well.

use crate::{
    choice::choice,
    invalid::{Invalid, Problems},
    limits,
    name::{check_characters, check_rule, name},
    size::Seconds,
};

/// A request that a well instance answers with success.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Healthcheck {
    pub method: HealthMethod,
    pub path: HealthPath,
    /// At least a second.
    interval: Seconds,
    /// At least a second.
    timeout: Seconds,
    /// Failures in a row, at least one, after which it counts as unwell.
    failure_threshold: u32,
    pub initial_delay: Seconds,
}

choice! {
    /// How the question is put.
    "a health check's method" HealthMethod {
        Get = "GET",
        Post = "POST",
    }
}

name! {
    /// The path that is asked, query included.
    HealthPath, |text| {
        let what = "a health check's path";
        let is_allowed = |c: char| c.is_ascii_graphic() && !"\"'\\`$#".contains(c);
        // A POST becomes words of a command: what a shell or a config would interpret stays out.
        let allowed = "printable ASCII without quotes, '\\', '$' and '#'";
        check_characters(what, text, limits::HEALTH_PATH_BYTES, allowed, is_allowed)?;
        check_rule(what, text.starts_with('/'), "starts with a slash")
    }
}

impl Healthcheck {
    /// A GET of this path every 10 seconds; three failures are too many.
    pub fn get(path: HealthPath) -> Healthcheck {
        Healthcheck {
            method: HealthMethod::Get,
            path,
            interval: Seconds::constant(10),
            timeout: Seconds::constant(5),
            failure_threshold: 3,
            initial_delay: Seconds::constant(0),
        }
    }

    /// The same with another rhythm. Kubernetes refuses zeros, and so do we.
    pub fn with_rhythm(
        self,
        interval: Seconds,
        timeout: Seconds,
        failure_threshold: u32,
    ) -> Result<Healthcheck, Invalid> {
        let mut problems = Problems::new();
        problems.require(interval.get() > 0, "interval", "must be at least a second");
        problems.require(timeout.get() > 0, "timeout", "must be at least a second");
        problems.require(
            (1..=1000).contains(&failure_threshold),
            "failure_threshold",
            "must be from 1 to 1000",
        );
        problems.finish(Healthcheck { interval, timeout, failure_threshold, ..self })
    }

    pub fn interval(&self) -> Seconds {
        self.interval
    }

    pub fn timeout(&self) -> Seconds {
        self.timeout
    }

    pub fn failure_threshold(&self) -> u32 {
        self.failure_threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_rhythm_without_time_is_refused() {
        let check = Healthcheck::get("/health".parse().unwrap());
        let (zero, one) = (Seconds::constant(0), Seconds::constant(1));
        assert!(check.clone().with_rhythm(one, one, 1).is_ok());
        let invalid = check.with_rhythm(zero, zero, 0).unwrap_err();
        assert_eq!(invalid.problems().len(), 3);
    }

    #[test]
    fn a_path_cannot_leave_its_quotes() {
        assert!("/health?full=1&x=%20".parse::<HealthPath>().is_ok());
        for refused in ["health", "/a b", "/a'b", "/$(reboot)", "/`x`", "/a\nb", ""] {
            assert!(refused.parse::<HealthPath>().is_err(), "{refused:?}");
        }
    }

    proptest! {
        #[test]
        fn every_path_reads_back(text in "\\PC*|/[!-~]{0,40}") {
            if let Ok(path) = text.parse::<HealthPath>() {
                prop_assert_eq!(path.to_string().parse(), Ok(path));
            }
        }
    }
}
