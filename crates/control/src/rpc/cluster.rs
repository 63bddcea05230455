//! `ctrl.v1.ClusterService`: what agents call.
//!
//! Every handler does the same three things: it reads the request, asks the caller's identity for the agent
//! that the request claims to be from, and only then has a place to act upon.

use std::{fmt::Display, sync::Arc};

use buffa::Message;
use connectrpc::{
    ConnectError, PreEncoded, RequestContext, Response, ServiceRequest, ServiceResult, ServiceStream,
};
use futures_util::StreamExt as _;
use model::{
    id::{DeploymentId, NetworkPolicyId, SentinelId},
    invalid::Invalid,
    kind::Kind,
    name::Placement,
    watch::Key,
};
use runtime::http::Closing;
use store::Topic;
use tokio_util::sync::CancellationToken;
use wire::{
    heartbeat::Heartbeat,
    proto,
    report::{ApplyReport, DeploymentReport, Inventory, SentinelReport},
    request::{self, Caller},
};

use super::{
    Shared,
    encode::Form,
    watch::{Asked, Streams, Syncing},
};
use crate::auth::{Agent, Identity};

/// A stream of messages that are encoded already.
pub(super) type Encoded<M> = ServiceStream<PreEncoded<M>>;

pub(crate) struct Cluster {
    shared: Arc<Shared>,
    streams: Arc<Streams>,
}

impl Cluster {
    pub(crate) fn new(shared: Arc<Shared>, streams: Arc<Streams>) -> Self {
        Self { shared, streams }
    }

    async fn watch<M: Message>(
        &self,
        context: &RequestContext,
        request: Result<request::Watch, Invalid>,
        form: Form,
        topics: impl FnOnce(&Placement) -> Vec<Topic>,
    ) -> ServiceResult<Encoded<M>> {
        let request::Watch { caller, cursor } = request.map_err(invalid)?;
        let agent = agent(context, &caller)?;
        let asked = Asked {
            form,
            topics: topics(agent.placement()),
            cursor,
            has_bookmarks: !agent.is_foreign(),
            end: agent.end(),
            closing: closing(context, &self.shared),
        };
        Ok(Response::stream(
            self.streams.open(asked).await?.map(|message| message.map(PreEncoded::from_bytes_unchecked)),
        ))
    }

    /// One object out of the image. A tombstone is the state `delete`.
    fn get<M: Message, I: Display>(
        &self,
        context: &RequestContext,
        request: Result<request::Get<I>, Invalid>,
        form: Form,
        topic: impl FnOnce(Placement) -> Topic,
    ) -> ServiceResult<PreEncoded<M>> {
        let request::Get { caller, id } = request.map_err(invalid)?;
        let placement = agent(context, &caller)?.placement().clone();
        let item = self.shared.tail.get(&topic(placement), &Key::new(id.to_string())).ok_or_else(|| {
            // Never `not_found`: there are agents that delete what is not found.
            ConnectError::failed_precondition(format!("nothing is known of {id} in {}", caller.placement))
        })?;
        let message = self.streams.encoder.message(form, &item, false)?;
        Response::ok(PreEncoded::from_bytes_unchecked(message))
    }
}

#[expect(refining_impl_trait, reason = "what the messages are is no secret of this crate")]
impl proto::ClusterService for Cluster {
    async fn watch_deployments(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::WatchDeploymentsRequest>,
    ) -> ServiceResult<Encoded<proto::DeploymentState>> {
        let request = (&request.to_owned_message()).try_into();
        self.watch(&context, request, Form::Deployments, |place| vec![topic(Kind::Deployment, place)]).await
    }

    async fn watch_sentinels(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::WatchSentinelsRequest>,
    ) -> ServiceResult<Encoded<proto::SentinelState>> {
        let request = (&request.to_owned_message()).try_into();
        self.watch(&context, request, Form::Sentinels, |place| vec![topic(Kind::Sentinel, place)]).await
    }

    async fn watch_cilium_network_policies(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::WatchCiliumNetworkPoliciesRequest>,
    ) -> ServiceResult<Encoded<proto::CiliumNetworkPolicyState>> {
        let request = (&request.to_owned_message()).try_into();
        let topics = |place: &Placement| vec![topic(Kind::NetworkPolicy, place)];
        self.watch(&context, request, Form::NetworkPolicies, topics).await
    }

    async fn watch_deployment_changes(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::WatchDeploymentChangesRequest>,
    ) -> ServiceResult<Encoded<proto::DeploymentChangeEvent>> {
        let request = (&request.to_owned_message()).try_into();
        self.watch(&context, request, Form::Changes, topics).await
    }

    async fn sync_desired_state(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::SyncDesiredStateRequest>,
    ) -> ServiceResult<Encoded<proto::DeploymentChangeEvent>> {
        let request = request::Sync::try_from(&request.to_owned_message()).map_err(invalid)?;
        let agent = agent(&context, &request.caller)?;
        let syncing = Syncing {
            placement: agent.placement().clone(),
            has_bookmarks: !agent.is_foreign(),
            history: request.history,
            holds: request.holds.into_iter().collect(),
            end: agent.end(),
        };
        let messages = self.streams.sync(syncing);
        Ok(Response::stream(messages.map(|message| message.map(PreEncoded::from_bytes_unchecked))))
    }

    async fn get_desired_deployment_state(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::GetDesiredDeploymentStateRequest>,
    ) -> ServiceResult<PreEncoded<proto::DeploymentState>> {
        let request = request::Get::<DeploymentId>::try_from(&request.to_owned_message());
        self.get(&context, request, Form::Deployments, Topic::Deployments)
    }

    async fn get_desired_sentinel_state(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::GetDesiredSentinelStateRequest>,
    ) -> ServiceResult<PreEncoded<proto::SentinelState>> {
        let request = request::Get::<SentinelId>::try_from(&request.to_owned_message());
        self.get(&context, request, Form::Sentinels, Topic::Sentinels)
    }

    async fn get_desired_cilium_network_policy_state(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::GetDesiredCiliumNetworkPolicyStateRequest>,
    ) -> ServiceResult<PreEncoded<proto::CiliumNetworkPolicyState>> {
        let request = request::Get::<NetworkPolicyId>::try_from(&request.to_owned_message());
        self.get(&context, request, Form::NetworkPolicies, Topic::NetworkPolicies)
    }

    async fn report_deployment_status(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::ReportDeploymentStatusRequest>,
    ) -> ServiceResult<proto::ReportDeploymentStatusResponse> {
        let report = DeploymentReport::try_from(request.to_owned_message()).map_err(invalid)?;
        agent(&context, &report.heading.caller)?;
        self.shared.reports.deployment(report).await?;
        Response::ok(proto::ReportDeploymentStatusResponse::default())
    }

    async fn report_sentinel_status(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::ReportSentinelStatusRequest>,
    ) -> ServiceResult<proto::ReportSentinelStatusResponse> {
        let report = SentinelReport::try_from(request.to_owned_message()).map_err(invalid)?;
        agent(&context, &report.heading.caller)?;
        self.shared.reports.sentinel(report).await?;
        Response::ok(proto::ReportSentinelStatusResponse::default())
    }

    async fn report_inventory(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::ReportInventoryRequest>,
    ) -> ServiceResult<proto::ReportInventoryResponse> {
        let inventory = Inventory::try_from(request.to_owned_message()).map_err(invalid)?;
        agent(&context, &inventory.heading.caller)?;
        self.shared.reports.inventory(inventory).await?;
        Response::ok(proto::ReportInventoryResponse::default())
    }

    async fn report_apply_error(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::ReportApplyErrorRequest>,
    ) -> ServiceResult<proto::ReportApplyErrorResponse> {
        let report = ApplyReport::try_from(request.to_owned_message()).map_err(invalid)?;
        agent(&context, &report.heading.caller)?;
        self.shared.reports.apply_error(report).await?;
        Response::ok(proto::ReportApplyErrorResponse::default())
    }

    async fn heartbeat(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::HeartbeatRequest>,
    ) -> ServiceResult<proto::HeartbeatResponse> {
        let heartbeat = Heartbeat::try_from(request.to_owned_message()).map_err(invalid)?;
        agent(&context, &heartbeat.caller)?;
        let answer = self.shared.hearts.beat(heartbeat).await?;
        Response::ok(proto::HeartbeatResponse::from(&answer))
    }
}

/// The topic that has a kind's objects of a place.
pub(super) fn topic(kind: Kind, placement: &Placement) -> Topic {
    let placement = placement.clone();
    match kind {
        Kind::Deployment => Topic::Deployments(placement),
        Kind::Sentinel => Topic::Sentinels(placement),
        Kind::NetworkPolicy => Topic::NetworkPolicies(placement),
    }
}

/// The topics of all kinds.
pub(super) fn topics(placement: &Placement) -> Vec<Topic> {
    Kind::ALL.iter().map(|kind| topic(*kind, placement)).collect()
}

/// Who sent a request. The layer in front lets none through that does not say so.
pub(super) fn identity(context: &RequestContext) -> Result<&Identity, ConnectError> {
    let identity = context.extensions().get::<Identity>();
    identity.ok_or_else(|| ConnectError::unauthenticated("the request was let in without an identity"))
}

/// Cancelled when the connection of a request is to end.
pub(super) fn closing(context: &RequestContext, shared: &Shared) -> CancellationToken {
    context.extensions().get().map_or_else(|| shared.tasks.token(), Closing::token)
}

pub(super) fn invalid(invalid: Invalid) -> ConnectError {
    ConnectError::invalid_argument(invalid.to_string())
}

fn agent(context: &RequestContext, caller: &Caller) -> Result<Agent, ConnectError> {
    identity(context)?.agent_at(caller)
}
