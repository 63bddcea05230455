//! What is known of a request while it is under way. However it ends, it is counted and logged once: when this is
//! dropped.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderValue, Method, Version};
use model::traffic;
use runtime::clock::Timestamp;

use super::{Permits, Shared, upload::Fate};
use crate::{
    balance::Outcome,
    blame::{Blame, Client, Upstream},
    log::{Entry, micros},
    moment::Moment,
    routes::Chosen,
};

/// One request.
pub struct Record {
    pub shared: Arc<Shared>,
    pub begun: Moment,
    pub at: Timestamp,
    pub id: HeaderValue,
    pub method: Method,
    pub version: Version,
    pub host: String,
    pub path: String,
    pub client: IpAddr,
    pub user_agent: String,
    pub chosen: Option<Chosen>,
    pub instance: Option<String>,
    /// What the instance took to begin its answer.
    pub instance_us: u64,
    pub attempts: u32,
    pub status: Option<u16>,
    pub blame: Option<Blame>,
    pub upload: Option<Arc<Fate>>,
    pub response_bytes: u64,
    /// Whether the answer was handed over to its end.
    pub is_complete: bool,
    pub permits: Option<Permits>,
}

impl Record {
    /// Whose fault the answer is: of what an instance answered, 5xx is its own.
    fn counted(&self, status: u16) -> traffic::Blame {
        match self.blame {
            Some(blame) => blame.counted(),
            None if status >= 500 => traffic::Blame::Upstream,
            None => traffic::Blame::None,
        }
    }

    /// How an answer counts for its instance.
    pub fn outcome(status: u16) -> Outcome {
        if status >= 500 { Outcome::Bad } else { Outcome::Good }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.is_complete && self.blame.is_none() {
            // Nobody waited for the end of it.
            let fault = self.upload.as_ref().and_then(|fate| fate.fault());
            self.blame = Some(Blame::Client(fault.unwrap_or(Client::Closed)));
        }
        let status = match (self.status, self.blame) {
            (Some(status), _) => status,
            (None, Some(blame)) => blame.status().as_u16(),
            (None, None) => Blame::Upstream(Upstream::BadAnswer).status().as_u16(),
        };
        let took = self.shared.watch.now().since(self.begun);
        let blame = self.counted(status);
        self.shared.metrics.in_flight.dec();
        self.shared.metrics.answered(blame, status, took);
        if let Some(tally) = self.chosen.as_ref().and_then(Chosen::tally) {
            tally.count(blame, status, took);
        }
        self.shared.log.write(Entry {
            request_id: String::from_utf8_lossy(self.id.as_bytes()).into_owned(),
            at: self.at,
            method: self.method.to_string(),
            host: std::mem::take(&mut self.host),
            path: std::mem::take(&mut self.path),
            protocol: if self.version == Version::HTTP_2 { "h2" } else { "http/1.1" },
            status,
            code: self.blame.map(Blame::code),
            blame,
            deployment: self.chosen.as_ref().map(|chosen| chosen.deployment.id),
            instance: self.instance.take(),
            attempts: self.attempts,
            total_us: micros(took),
            instance_us: self.instance_us,
            request_bytes: self.upload.as_ref().map_or(0, |fate| fate.bytes()),
            response_bytes: self.response_bytes,
            client: self.client.to_string(),
            user_agent: std::mem::take(&mut self.user_agent),
            hostname: self.chosen.as_ref().and_then(|chosen| chosen.hostname().cloned()),
        });
    }
}
