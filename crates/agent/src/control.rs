//! The control plane, as the loop sees it.

use futures_util::future::BoxFuture;
use wire::{
    client::{CallError, Control as Client},
    heartbeat::{Answer, Heartbeat},
    report::{ApplyReport, DeploymentReport, Inventory, SentinelReport},
};

/// Everything that is told to the control plane.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    Deployment(DeploymentReport),
    Sentinel(SentinelReport),
    Inventory(Inventory),
    Apply(ApplyReport),
}

/// Where reports go.
pub trait Control: Send + Sync + 'static {
    fn report<'a>(&'a self, report: &'a Report) -> BoxFuture<'a, Result<(), CallError>>;
    fn heartbeat<'a>(&'a self, heartbeat: &'a Heartbeat) -> BoxFuture<'a, Result<Answer, CallError>>;
}

impl Control for Client {
    fn report<'a>(&'a self, report: &'a Report) -> BoxFuture<'a, Result<(), CallError>> {
        match report {
            Report::Deployment(report) => Box::pin(self.report_deployment(report)),
            Report::Sentinel(report) => Box::pin(self.report_sentinel(report)),
            Report::Inventory(report) => Box::pin(self.report_inventory(report)),
            Report::Apply(report) => Box::pin(self.report_apply_error(report)),
        }
    }

    fn heartbeat<'a>(&'a self, heartbeat: &'a Heartbeat) -> BoxFuture<'a, Result<Answer, CallError>> {
        Box::pin(Client::heartbeat(self, heartbeat))
    }
}
