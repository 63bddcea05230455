//! `ctrl.v1.RoutingService`: what sentinels call.

use std::sync::Arc;

use connectrpc::{PreEncoded, RequestContext, Response, ServiceRequest, ServiceResult};
use futures_util::StreamExt as _;
use store::Topic;
use wire::{proto, request::WatchRoutes, traffic::Traffic};

use super::{
    Shared,
    cluster::{Encoded, closing, identity, invalid},
    encode::Form,
    watch::{Asked, Streams},
};

pub(crate) struct Routing {
    shared: Arc<Shared>,
    streams: Arc<Streams>,
}

impl Routing {
    pub(crate) fn new(shared: Arc<Shared>, streams: Arc<Streams>) -> Self {
        Self { shared, streams }
    }
}

#[expect(refining_impl_trait, reason = "what the messages are is no secret of this crate")]
impl proto::RoutingService for Routing {
    async fn watch_routes(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::WatchRoutesRequest>,
    ) -> ServiceResult<Encoded<proto::RouteEvent>> {
        let request = WatchRoutes::try_from(&request.to_owned_message()).map_err(invalid)?;
        let sentinel = identity(&context)?.sentinel_of(&request.caller, request.environment)?;
        let environment = sentinel.environment();
        let topics = vec![
            Topic::Routing(environment, sentinel.placement().clone()),
            Topic::Routes(environment),
            Topic::Environment(environment),
        ];
        let has_bookmarks = request.caller.instance.is_some();
        let (cursor, end) = (request.cursor, sentinel.end());
        let closing = closing(&context, &self.shared);
        let asked = Asked { form: Form::Routes, topics, cursor, has_bookmarks, end, closing };
        let messages = self.streams.open(asked).await?;
        Ok(Response::stream(messages.map(|message| message.map(PreEncoded::from_bytes_unchecked))))
    }

    async fn report_traffic(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, proto::ReportTrafficRequest>,
    ) -> ServiceResult<proto::ReportTrafficResponse> {
        let traffic = Traffic::try_from(request.to_owned_message()).map_err(invalid)?;
        identity(&context)?.sentinel_of(&traffic.caller, traffic.environment)?;
        self.shared.reports.traffic(traffic).await?;
        Response::ok(proto::ReportTrafficResponse::default())
    }
}
