//! Calls to a control plane: its replicas, a connection to one of them, and the next after a failure.
//!
//! ```text
//! noun ─▶ Control ─▶ a replica at random ─▶ answer
//!                        │ failed
//!                        └────▶ the next   (a call: until its time is over; a stream: when its follower asks again)
//! ```
//!
//! Every call here may be repeated: a report has a sequence, a sum only grows, and of two terms that were begun the
//! later counts. So a call whose answer was lost is simply made again, elsewhere.

mod connect;
mod error;
mod replicas;

use std::{fmt, sync::Arc, time::Duration};

use connectrpc::ConnectError;
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use http::Uri;
use model::invalid::Invalid;
use runtime::{clock::Clock, random::Random};

use self::replicas::{Clients, Replicas};
pub use self::{
    connect::{Connect, Dial, Io},
    error::{CallError, Code},
};
use crate::{
    auth::Bearer,
    heartbeat::{Answer, Heartbeat},
    proto,
    report::{ApplyReport, DeploymentReport, Inventory, SentinelReport},
    request::{Caller, Sync, Watch, WatchRoutes},
    traffic::Traffic,
};

/// What a call may take, all attempts together.
const DEADLINE: Duration = Duration::from_secs(10);

/// A stream of messages that is being opened.
pub(crate) type Opened<M> = BoxFuture<'static, Result<BoxStream<'static, Result<M, CallError>>, CallError>>;

/// One control plane, as its caller sees it. Clones share their connections.
#[derive(Clone)]
pub struct Control {
    caller: Arc<Caller>,
    replicas: Arc<Replicas>,
    clock: Clock,
}

impl Control {
    /// The control plane whose replicas are at these addresses. Nothing is connected yet.
    pub fn new(
        urls: Vec<Uri>,
        token: &Bearer,
        caller: Caller,
        connector: Arc<dyn Connect>,
        clock: Clock,
        random: Random,
    ) -> Result<Control, Invalid> {
        let replicas = Replicas::new(urls, token, connector, clock.clone(), random)?;
        Ok(Control { caller: Arc::new(caller), replicas: Arc::new(replicas), clock })
    }

    /// Who calls, as every request says it.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Presents another token from now on, in all clones; streams that are open are not touched.
    pub fn present(&self, token: &Bearer) {
        self.replicas.present(token);
    }

    /// Renews the lease of the caller's place, and begins a term when asked to.
    pub async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Answer, CallError> {
        let request = proto::HeartbeatRequest::from(heartbeat);
        let ask = |clients: Clients| {
            let request = request.clone();
            async move { Ok(clients.cluster.heartbeat(request).await?.into_owned()) }
        };
        let answer = self.call(ask).await?;
        Answer::try_from(answer).map_err(|invalid| {
            CallError::new(Code::DataLoss, format!("the answer cannot be read: {invalid}"))
        })
    }

    /// Tries one replica after the other until one answers, each at most once, or the time is over.
    async fn call<T, F>(&self, ask: impl Fn(Clients) -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, ConnectError>>,
    {
        let deadline = self.clock.instant() + DEADLINE;
        let mut last = CallError::new(Code::Unavailable, "no replica was asked");
        for index in self.replicas.order() {
            let chosen = self.replicas.choose(index);
            let remaining = deadline.saturating_duration_since(self.clock.instant());
            let answer = tokio::select! {
                biased;
                answer = ask(chosen.clients.clone()) => answer.map_err(CallError::from),
                () = self.clock.sleep(remaining) => {
                    Err(CallError::new(Code::DeadlineExceeded, format!("there was no answer within {DEADLINE:?}")))
                }
            };
            match answer {
                Ok(answer) => {
                    chosen.answered();
                    return Ok(answer);
                }
                Err(error) => {
                    chosen.note(&error);
                    let is_over = !error.blames_replica() || error.code == Code::DeadlineExceeded;
                    last = error;
                    if is_over {
                        break;
                    }
                }
            }
        }
        Err(last)
    }
}

/// Reports: a noun goes up, and nothing comes back.
macro_rules! reports {
    ($( $(#[$doc:meta])* $name:ident($noun:ty) = $service:ident.$rpc:ident($request:ident); )+) => {
        impl Control {
            $(
                $(#[$doc])*
                pub async fn $name(&self, report: &$noun) -> Result<(), CallError> {
                    let request = proto::$request::from(report);
                    let ask = |clients: Clients| {
                        let request = request.clone();
                        async move { clients.$service.$rpc(request).await.map(|_| ()) }
                    };
                    self.call(ask).await
                }
            )+
        }
    };
}

reports! {
    /// All instances of one deployment, or that there are none.
    report_deployment(DeploymentReport) = cluster.report_deployment_status(ReportDeploymentStatusRequest);
    report_sentinel(SentinelReport) = cluster.report_sentinel_status(ReportSentinelStatusRequest);
    /// The names of all that an agent manages: what else is known of its place is gone.
    report_inventory(Inventory) = cluster.report_inventory(ReportInventoryRequest);
    /// An object that cannot be applied, and later that it could.
    report_apply_error(ApplyReport) = cluster.report_apply_error(ReportApplyErrorRequest);
    /// How requests went since the sender started.
    report_traffic(Traffic) = routing.report_traffic(ReportTrafficRequest);
}

/// Streams: a replica is chosen when the future is first polled, and what ends the stream is held against it.
///
/// A stream can be polled, left and polled again: a message that is half read is kept in it.
macro_rules! streams {
    ($( $name:ident($noun:ty) = $service:ident.$rpc:ident($request:ident) -> $message:ident; )+) => {
        impl Control {
            $(
                pub(crate) fn $name(&self, request: &$noun) -> Opened<proto::$message> {
                    let request = proto::$request::from(request);
                    let replicas = Arc::clone(&self.replicas);
                    async move {
                        let index = *replicas.order().first().expect("there is at least one replica");
                        let chosen = replicas.choose(index);
                        let opened = chosen.clients.$service.$rpc(request).await;
                        let messages = opened.map_err(|error| chosen.failed(error))?;
                        let messages = stream::try_unfold((messages, chosen), async |(mut messages, chosen)| {
                            match messages.message().await {
                                Ok(Some(message)) => {
                                    Ok(Some((message.to_owned_message(), (messages, chosen))))
                                }
                                Ok(None) => Ok(None),
                                Err(error) => Err(chosen.failed(error)),
                            }
                        });
                        Ok(messages.boxed())
                    }
                    .boxed()
                }
            )+
        }
    };
}

streams! {
    watch_deployments(Watch) = cluster.watch_deployments(WatchDeploymentsRequest) -> DeploymentState;
    watch_sentinels(Watch) = cluster.watch_sentinels(WatchSentinelsRequest) -> SentinelState;
    watch_network_policies(Watch) =
        cluster.watch_cilium_network_policies(WatchCiliumNetworkPoliciesRequest) -> CiliumNetworkPolicyState;
    watch_routes(WatchRoutes) = routing.watch_routes(WatchRoutesRequest) -> RouteEvent;
    sync(Sync) = cluster.sync_desired_state(SyncDesiredStateRequest) -> DeploymentChangeEvent;
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<_> = self.replicas.urls().collect();
        f.debug_struct("Control").field("caller", &self.caller).field("urls", &urls).finish_non_exhaustive()
    }
}
