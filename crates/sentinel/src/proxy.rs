//! Carries a request to an instance and its answer back: streamed both ways, in both directions at once.
//!
//! ```text
//!   request ─▶ for us? ─▶ host ─▶ route ─▶ headers ─▶ instance ─▶ answer
//!                                              ▲          │ not reached
//!                                              └──────────┘ another one
//! ```

pub mod answer;
pub mod health;
pub mod patience;
pub mod record;
mod request;
mod send;
pub mod serve;
mod upgrade;
pub mod upload;

use std::{
    convert::Infallible,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_TYPE, EXPECT, RETRY_AFTER, USER_AGENT},
};
use hyper::body::Incoming;
use runtime::{random::Random, ready::Readiness, shutdown::Tasks};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::serve::Place;
use self::{answer::Answer, record::Record};
use crate::{
    balance::Budget,
    blame::{self, Blame, Us},
    config::ProxyConfig,
    guard::{Line, REFUSED_PATH},
    headers::{self, Client, SERVER_TIMING, X_ERROR_SOURCE, X_REQUEST_ID, asks_upgrade},
    limit::{Clients, Held},
    log::Log,
    metrics::RequestMetrics,
    moment::Watch,
    pool::{Connect, Pool},
    routes::Tables,
};

/// What all cores share.
pub struct Shared {
    pub config: ProxyConfig,
    pub tables: Arc<Tables>,
    pub watch: Watch,
    pub budget: Budget,
    pub metrics: RequestMetrics,
    pub readiness: Readiness,
    pub log: Log,
    places: Arc<Semaphore>,
    clients: Arc<Clients>,
    is_draining: AtomicBool,
}

/// What one core has of its own.
pub struct Worker<C> {
    pub shared: Arc<Shared>,
    pub pool: Arc<Pool<C>>,
    pub random: Random,
    /// Connections of clients, and what becomes of them when they are upgraded.
    pub tasks: Tasks,
}

/// One connection of a client.
#[derive(Clone)]
pub struct Origin {
    pub client: Client,
    pub line: Arc<Line>,
    pub place: Arc<Place>,
}

/// What a request holds while it is under way: a place among all, and one among its client's.
#[derive(Debug)]
pub struct Permits {
    _of_all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    /// A client that was looked up for this request is remembered for as long as it takes.
    _client: Option<Held>,
}

type Answered<C> = Response<Answer<C>>;

impl Shared {
    pub fn new(
        config: ProxyConfig,
        tables: Arc<Tables>,
        watch: Watch,
        metrics: RequestMetrics,
        readiness: Readiness,
        log: Log,
    ) -> Shared {
        let places = Arc::new(Semaphore::new(config.requests_max.min(Semaphore::MAX_PERMITS)));
        let clients = Arc::new(Clients::new(config.client_connections_max, config.client_requests_max));
        let (budget, is_draining) = (Budget::new(), AtomicBool::new(false));
        Shared { config, tables, watch, budget, metrics, readiness, log, places, clients, is_draining }
    }

    /// From here on every answer on HTTP/1 asks its client to go elsewhere.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// A place among the connections, or nothing if there are too many: of all, or of this client.
    fn connect(&self, client: &Client) -> Option<Place> {
        let gauge = self.metrics.connections.clone();
        let before = usize::try_from(gauge.inc()).unwrap_or(0);
        let mut place = Place { client: None, gauge };
        if before >= self.config.connections_max {
            return None;
        }
        if !client.is_trusted {
            place.client = Some(self.clients.connect(client.peer.ip().to_canonical())?);
        }
        Some(place)
    }

    /// Places for a request: at once, or soon, or not at all.
    async fn admit(&self, place: &Place, client: IpAddr) -> Result<Permits, Blame> {
        let looked_up = place.client.is_none().then(|| self.clients.hold(client));
        let client = match (&place.client, &looked_up) {
            (Some(connected), _) => connected.client(),
            (None, looked_up) => looked_up.as_ref().expect("it was looked up"),
        };
        let all = || Arc::clone(&self.places);
        if let Some(own) = client.try_request()
            && let Ok(of_all) = all().try_acquire_owned()
        {
            return Ok(Permits { _of_all: of_all, _own: own, _client: looked_up });
        }
        let mut blame = Blame::Client(blame::Client::TooMany);
        let both = async {
            let own = client.request().await;
            blame = Blame::Us(Us::Overloaded);
            let of_all = all().acquire_owned().await.expect("the semaphore is never closed");
            (of_all, own)
        };
        let admitted = tokio::select! {
            biased;
            both = both => Some(both),
            () = self.watch.clock().sleep(self.config.queue) => None,
        };
        match admitted {
            Some((of_all, own)) => Ok(Permits { _of_all: of_all, _own: own, _client: looked_up }),
            None => Err(blame),
        }
    }
}

impl<C: Connect> Worker<C> {
    /// The answer to one request.
    pub async fn handle(
        self: Arc<Self>,
        origin: Origin,
        request: Request<Incoming>,
    ) -> Result<Answered<C>, Infallible> {
        let is_1 = request.version() <= Version::HTTP_11;
        let asks_upgrade = request.version() == Version::HTTP_11 && asks_upgrade(request.headers());
        let line = Arc::clone(&origin.line);
        let path = request.uri().path();
        let mut response = if path == REFUSED_PATH
            && let Some(client) = line.refusal()
        {
            refuse(self.record(&origin, &request), Blame::Client(client))
        } else if health::is_internal(path) {
            health::answer(&request, &self.shared.readiness)
        } else {
            self.carry(origin, request).await
        };
        if asks_upgrade && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            line.decline();
        }
        let is_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if is_1 && !is_switched && self.shared.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response)
    }

    async fn carry(self: &Arc<Self>, origin: Origin, mut request: Request<Incoming>) -> Answered<C> {
        let made = || request_id(&self.random);
        let id = headers::request_id(request.headers_mut(), made);
        let mut record = self.record(&origin, &request);
        record.id = id;
        if let Err(blame) = acceptable(&request) {
            return refuse(record, blame);
        }
        self.shared.budget.requested(record.begun);
        match self.shared.admit(&origin.place, record.client).await {
            Ok(permits) => record.permits = Some(permits),
            Err(blame) => return refuse(record, blame),
        }
        match self.prepare(origin, request, &mut record) {
            Ok(prepared) => self.send(prepared, record).await,
            Err(blame) => refuse(record, blame),
        }
    }

    fn record(&self, origin: &Origin, request: &Request<Incoming>) -> Record {
        self.shared.metrics.in_flight.inc();
        let (uri, shared) = (request.uri(), &self.shared);
        let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        Record {
            begun: shared.watch.now(),
            at: shared.watch.clock().now(),
            id: request_id(&self.random),
            method: request.method().clone(),
            version: request.version(),
            host: String::new(),
            path: shared.log.redacted(uri.path(), uri.query()),
            client: origin.client.address(request.headers(), &shared.config.trusted),
            user_agent: agent.unwrap_or_default().to_owned(),
            chosen: None,
            instance: None,
            instance_us: 0,
            attempts: 0,
            status: None,
            blame: None,
            upload: None,
            response_bytes: 0,
            is_complete: false,
            permits: None,
            shared: Arc::clone(shared),
        }
    }
}

/// Answers with a problem.
fn refuse<C: Connect>(mut record: Record, blame: Blame) -> Answered<C> {
    let problem = blame.problem(record.id.to_str().unwrap_or_default());
    record.blame = Some(blame);
    record.status = Some(blame.status().as_u16());
    let (id, version) = (record.id.clone(), record.version);
    let timing = timing(&record);
    let mut response = Response::new(Answer::own(Bytes::from(problem), Some(record)));
    *response.status_mut() = blame.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(X_ERROR_SOURCE, HeaderValue::from_static("sentinel"));
    headers.insert(X_REQUEST_ID, id);
    headers.insert(SERVER_TIMING, timing);
    if let Some(seconds) = blame.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if blame.closes() && version <= Version::HTTP_11 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// What is carried at all.
fn acceptable(request: &Request<Incoming>) -> Result<(), Blame> {
    if request.method() == Method::CONNECT {
        return Err(Blame::Client(blame::Client::MethodNotAllowed));
    }
    let mut expected = request.headers().get_all(EXPECT).iter();
    if expected.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Blame::Client(blame::Client::ExpectationUnknown));
    }
    Ok(())
}

/// What the sentinel took, and what the instance.
fn timing(record: &Record) -> HeaderValue {
    let total = crate::moment::micros(record.shared.watch.now().since(record.begun));
    let ours = total.saturating_sub(record.instance_us);
    let text = match record.instance_us {
        0 => format!("sentinel;dur={}", millis(ours)),
        theirs => format!("sentinel;dur={}, instance;dur={}", millis(ours), millis(theirs)),
    };
    HeaderValue::from_str(&text).expect("digits and words")
}

fn millis(micros: u64) -> String {
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

/// 128 random bits in hexadecimal digits.
fn request_id(random: &Random) -> HeaderValue {
    let number = u128::from_be_bytes(random.bytes::<16>());
    HeaderValue::from_str(&format!("{number:032x}")).expect("hexadecimal digits")
}
