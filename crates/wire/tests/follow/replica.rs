//! A replica on a port of its own, with two routed objects and the answers it is told to give.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use connectrpc::{
    ConnectError, ConnectRpcService, RequestContext, Response, Router, ServiceRequest, ServiceResult,
    ServiceStream,
};
use futures_util::{StreamExt as _, stream};
use http::Uri;
use model::{
    deployment::{Protocol, Status},
    id::{DeploymentId, HistoryId},
    watch::{Position, Version},
};
use runtime::{
    clock::Clock,
    http::{HttpConfig, Server},
    random::Random,
    shutdown::Tasks,
    tls::ServerTls,
};
use tokio::sync::watch;
use wire::{client::Code, proto, route::Routed, watch::Stamp};

pub struct Replica {
    pub uri: Uri,
    routing: Arc<Routing>,
    tasks: Tasks,
}

struct Routing {
    seen: Mutex<Seen>,
    state: watch::Sender<State>,
}

#[derive(Default)]
struct Seen {
    opened: Vec<proto::WatchRoutesRequest>,
    calls: usize,
    authorization: Option<String>,
}

#[derive(Clone, Copy)]
struct State {
    version: u64,
    is_draining: bool,
    answer: Option<Code>,
}

impl Replica {
    pub async fn start(tls: Option<ServerTls>) -> Replica {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let server = Server::bind(address, HttpConfig::default(), tls).await.unwrap();
        let uri = format!("{scheme}://localhost:{}", server.address().port()).parse().unwrap();
        let state = watch::Sender::new(State { version: 10, is_draining: false, answer: None });
        let routing = Arc::new(Routing { seen: Mutex::default(), state });
        let service = ConnectRpcService::new(Router::new().add_service(Arc::clone(&routing)));
        let tasks = Tasks::new();
        let owner = tasks.clone();
        tasks.spawn("replica", async move {
            server.run(service, &owner, &Clock::system(), &Random::seeded(1)).await;
        });
        Replica { uri, routing, tasks }
    }

    /// Ends every stream as a server does that stops.
    pub fn drain(&self) {
        self.routing.state.send_modify(|state| state.is_draining = true);
    }

    pub fn change(&self) {
        self.routing.state.send_modify(|state| state.version += 1);
    }

    pub fn answer(&self, code: Option<Code>) {
        self.routing.state.send_modify(|state| state.answer = code);
    }

    pub fn opened(&self) -> Vec<proto::WatchRoutesRequest> {
        self.routing.seen.lock().unwrap().opened.clone()
    }

    pub fn calls(&self) -> usize {
        self.routing.seen.lock().unwrap().calls
    }

    pub fn authorization(&self) -> Option<String> {
        self.routing.seen.lock().unwrap().authorization.clone()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.tasks.token().cancel();
    }
}

#[expect(refining_impl_trait, reason = "nobody names these types through the trait")]
impl proto::RoutingService for Routing {
    async fn watch_routes(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, proto::WatchRoutesRequest>,
    ) -> ServiceResult<ServiceStream<proto::RouteEvent>> {
        let request = request.to_owned_message();
        let cursor = request.version_last_seen;
        self.seen.lock().unwrap().opened.push(request);
        let beginning = if cursor == 0 { begin() } else { Vec::new() };
        let moved = stream::unfold((self.state.subscribe(), cursor.max(10)), async |(mut state, sent)| {
            let State { version, is_draining, .. } =
                *state.wait_for(|state| state.is_draining || state.version > sent).await.ok()?;
            let message = if is_draining {
                Err(ConnectError::unavailable("draining"))
            } else {
                let mut message = deployment(version);
                message.end = true;
                Ok(message)
            };
            Some((message, (state, version)))
        });
        Response::stream_ok(stream::iter(beginning.into_iter().map(Ok)).chain(moved))
    }

    async fn report_traffic(
        &self,
        context: RequestContext,
        _: ServiceRequest<'_, proto::ReportTrafficRequest>,
    ) -> ServiceResult<proto::ReportTrafficResponse> {
        let mut seen = self.seen.lock().unwrap();
        seen.calls += 1;
        seen.authorization =
            context.header("authorization").and_then(|value| value.to_str().ok()).map(str::to_owned);
        match self.state.borrow().answer {
            Some(code) => Err(ConnectError::new(code, "as told")),
            None => Response::ok(proto::ReportTrafficResponse::default()),
        }
    }
}

/// Everything there is at version 10.
fn begin() -> Vec<proto::RouteEvent> {
    let (version, zero) = (Version::new(10), Version::ZERO);
    let position = Position { history: HistoryId::sample(1), version, floor: zero, since: zero };
    vec![wire::watch::init().into(), deployment(10), wire::watch::init_done(&position).into()]
}

fn deployment(version: u64) -> proto::RouteEvent {
    let routed = Routed::Deployment {
        id: DeploymentId::sample(1),
        status: Status::Ready,
        protocol: Protocol::Http1,
        upstreams: Vec::new(),
    };
    wire::route::state(&routed, &Stamp { version: Version::new(version), gone: false, change: None })
}
