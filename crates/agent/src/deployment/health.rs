//! How Kubernetes asks an instance whether it is well.

use k8s_openapi::{
    api::core::v1::{ExecAction, HTTPGetAction, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use model::{
    deployment::{HealthMethod, Healthcheck},
    name::Port,
};

/// The three questions, in the order in which they are asked. Without a health check there is none.
#[derive(Default)]
pub struct Probes {
    /// Whether it has started: until it has, the others are not asked.
    pub startup: Option<Probe>,
    /// Whether it shall be started anew.
    pub liveness: Option<Probe>,
    /// Whether it takes requests.
    pub readiness: Option<Probe>,
}

pub fn probes(health: Option<&Healthcheck>, port: Port) -> Probes {
    let Some(health) = health else { return Probes::default() };
    let probe = Probe {
        period_seconds: Some(number(health.interval().get())),
        failure_threshold: Some(number(health.failure_threshold())),
        ..question(health, port)
    };
    Probes { startup: startup(health, port), liveness: Some(probe.clone()), readiness: Some(probe) }
}

/// An instance that may take its time to start is asked every second from the beginning: it serves as soon as it
/// can, and is given up when its delay, and then what it may fail at any time, is over.
fn startup(health: &Healthcheck, port: Port) -> Option<Probe> {
    let delay = health.initial_delay.get();
    let then = u64::from(health.interval().get()) * u64::from(health.failure_threshold());
    let failures = u64::from(delay) + then;
    (delay > 0).then(|| Probe {
        period_seconds: Some(1),
        failure_threshold: Some(i32::try_from(failures).unwrap_or(i32::MAX)),
        ..question(health, port)
    })
}

fn question(health: &Healthcheck, port: Port) -> Probe {
    let timeout = health.timeout().get();
    let probe = Probe { timeout_seconds: Some(number(timeout)), ..Probe::default() };
    match health.method {
        HealthMethod::Get => Probe {
            http_get: Some(HTTPGetAction {
                path: Some(health.path.to_string()),
                port: IntOrString::Int(port.get().into()),
                scheme: Some("HTTP".to_owned()),
                ..HTTPGetAction::default()
            }),
            ..probe
        },
        // Kubernetes cannot post, so the instance asks itself.
        HealthMethod::Post => {
            let url = format!("http://127.0.0.1:{port}{}", health.path);
            let words = ["wget", "-q", "-O", "/dev/null", "-T", &timeout.to_string(), "--post-data=", &url];
            let command = words.map(str::to_owned).into();
            Probe { exec: Some(ExecAction { command: Some(command) }), ..probe }
        }
    }
}

fn number(size: u32) -> i32 {
    i32::try_from(size).expect("a time of ours is far below 2^31")
}
