//! The replicas of a control plane: one at random, the next after a failure, and a connection to each that was needed.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use connectrpc::{
    ConnectError,
    client::{ClientConfig, Http2Connection, SharedHttp2Connection},
};
use http::{HeaderValue, Uri, header::AUTHORIZATION};
use model::invalid::{Field, Invalid, Problems};
use runtime::{clock::Clock, random::Random};
use tokio::time::Instant;

use super::{
    CallError,
    connect::{Connect, Connector},
};
use crate::{
    auth::Bearer,
    proto::{ClusterServiceClient, RoutingServiceClient},
};

/// A replica that failed is asked last for this long.
const SHUNNED: Duration = Duration::from_secs(10);

/// A connection that does not come about in this time is given up.
const CONNECT: Duration = Duration::from_secs(5);

/// After so much quiet on a connection the other side is asked whether it is there.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// A side that does not answer within this time is gone.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests that wait for one connection at most.
const WAITING_MAX: usize = 256;

/// Replicas of one control plane at most.
const REPLICAS_MAX: usize = 100;

pub(super) type Transport = SharedHttp2Connection;

/// All replicas of one store.
pub(super) struct Replicas {
    all: Vec<Replica>,
    /// What every call and every stream that is opened from now on presents.
    authorization: Mutex<HeaderValue>,
    connector: Connector,
    clock: Clock,
    random: Random,
}

struct Replica {
    uri: Uri,
    line: Mutex<Line>,
}

/// What is known of a replica.
#[derive(Default)]
struct Line {
    /// Shared by all calls and streams to it; it connects when it is first used.
    connection: Option<Transport>,
    /// How many connections there were: a failure speaks of one of them.
    number: u64,
    failed_at: Option<Instant>,
}

/// A replica that was chosen for a call or a stream.
pub(super) struct Chosen {
    pub(super) clients: Clients,
    replicas: Arc<Replicas>,
    index: usize,
    number: u64,
}

/// Both services of one replica.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) cluster: ClusterServiceClient<Transport>,
    pub(super) routing: RoutingServiceClient<Transport>,
}

impl Replicas {
    pub(super) fn new(
        urls: Vec<Uri>,
        token: &Bearer,
        connector: Arc<dyn Connect>,
        clock: Clock,
        random: Random,
    ) -> Result<Replicas, Invalid> {
        let mut problems = Problems::new();
        let count = urls.len();
        problems.require(count > 0, "urls", "at least one is needed");
        problems.require(
            count <= REPLICAS_MAX,
            "urls",
            format_args!("there are {count}, {REPLICAS_MAX} at most"),
        );
        for (index, url) in urls.iter().enumerate() {
            check(problems.field("urls").index(index), url);
        }
        problems.finish(())?;
        let authorization = Mutex::new(authorization(token));
        let all = urls.into_iter().map(|uri| Replica { uri, line: Mutex::default() }).collect();
        Ok(Replicas { all, authorization, connector: Connector(connector), clock, random })
    }

    pub(super) fn present(&self, token: &Bearer) {
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = authorization(token);
    }

    pub(super) fn urls(&self) -> impl Iterator<Item = &Uri> {
        self.all.iter().map(|replica| &replica.uri)
    }

    /// Every replica once, in the order to try them in.
    pub(super) fn order(&self) -> Vec<usize> {
        let count = u64::try_from(self.all.len()).expect("a count fits");
        let first = usize::try_from(self.random.below(count)).expect("an index fits");
        let now = self.clock.instant();
        let is_shunned = |index: usize| {
            self.all[index].line().failed_at.is_some_and(|failed_at| now < failed_at + SHUNNED)
        };
        order(self.all.len(), first, is_shunned)
    }

    pub(super) fn choose(self: &Arc<Replicas>, index: usize) -> Chosen {
        let replica = &self.all[index];
        let mut line = replica.line();
        if line.connection.is_none() {
            line.number += 1;
        }
        let number = line.number;
        let connect = || connect(self.connector.clone(), replica.uri.clone());
        let connection = line.connection.get_or_insert_with(connect).clone();
        let authorization = self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let config = ClientConfig::new(replica.uri.clone()).with_default_header(AUTHORIZATION, authorization);
        let clients = Clients {
            cluster: ClusterServiceClient::new(connection.clone(), config.clone()),
            routing: RoutingServiceClient::new(connection, config),
        };
        Chosen { clients, replicas: Arc::clone(self), index, number }
    }
}

impl Replica {
    fn line(&self) -> MutexGuard<'_, Line> {
        // A panic elsewhere leaves a line that can be looked at and replaced.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chosen {
    /// Notes what came of it: a replica that failed is shunned, and its connection is left to those who still use it.
    pub(super) fn failed(&self, error: ConnectError) -> CallError {
        let error = CallError::from(error);
        self.note(&error);
        error
    }

    pub(super) fn note(&self, error: &CallError) {
        let mut line = self.replicas.all[self.index].line();
        if error.blames_replica() && line.number == self.number {
            line.connection = None;
            line.failed_at = Some(self.replicas.clock.instant());
        }
    }

    pub(super) fn answered(&self) {
        self.replicas.all[self.index].line().failed_at = None;
    }
}

/// It is neither printed nor kept in a table of headers.
fn authorization(token: &Bearer) -> HeaderValue {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
        .expect("a token is letters, digits, '_', '.' and '-'");
    value.set_sensitive(true);
    value
}

/// From the first on in a circle, but those that failed lately come last.
fn order(count: usize, first: usize, is_shunned: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).map(|step| (first + step) % count).collect();
    order.sort_by_key(|index| is_shunned(*index));
    order
}

fn connect(connector: Connector, uri: Uri) -> Transport {
    Http2Connection::builder()
        .establishment_timeout(CONNECT)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .lazy_with_connector(connector, uri)
        .shared(WAITING_MAX)
}

/// Names the place of a bad address, never the address: it may hold a password.
fn check(mut field: Field<'_>, url: &Uri) {
    field.require(matches!(url.scheme_str(), Some("http" | "https")), "it starts with http:// or https://");
    let authority = url.authority().map(http::uri::Authority::as_str);
    field.require(
        authority.is_some_and(|authority| !authority.contains('@')),
        "it has a host, and no user before it",
    );
    field.require(url.query().is_none(), "it has no query");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replica_is_tried_once_and_those_that_failed_come_last() {
        assert_eq!(order(3, 1, |_| false), [1, 2, 0]);
        assert_eq!(order(3, 1, |index| index == 1), [2, 0, 1]);
        assert_eq!(order(3, 0, |_| true), [0, 1, 2]);
        assert_eq!(order(1, 0, |_| true), [0]);
    }
}
