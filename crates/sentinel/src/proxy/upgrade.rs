//! When both ends agree to speak something else: from then on bytes are copied, and nobody looks at them.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONNECTION, UPGRADE},
};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::{Answered, Worker, answer::Answer, record::Record, request::Upgrade};
use crate::{
    balance::Flight,
    headers::{X_REQUEST_ID, strip_hop_by_hop, strip_ours},
    pool::Connect,
};

impl<C: Connect> Worker<C> {
    /// Hands the instance's agreement on, and then every byte.
    pub(super) fn switch(
        self: &Arc<Self>,
        mut response: Response<Incoming>,
        upgrade: Upgrade,
        mut record: Record,
        flight: Flight,
    ) -> Answered<C> {
        let protocol = response.headers().get(UPGRADE).cloned();
        let instance = hyper::upgrade::on(&mut response);
        let Upgrade { client, line } = upgrade;
        line.open();
        let (mut parts, _body) = response.into_parts();
        strip_hop_by_hop(&mut parts.headers);
        strip_ours(&mut parts.headers);
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(X_REQUEST_ID, record.id.clone());
        if let Some(protocol) = protocol {
            parts.headers.insert(UPGRADE, protocol);
        }
        self.tasks.spawn_one_of_many("upgraded", async move {
            let (client, instance) = match futures_util::try_join!(client, instance) {
                Ok(both) => both,
                Err(error) => {
                    tracing::debug!(%error, "an upgrade came to nothing");
                    return;
                }
            };
            let (mut client, mut instance) = (TokioIo::new(client), TokioIo::new(instance));
            match tokio::io::copy_bidirectional(&mut client, &mut instance).await {
                Ok((_up, down)) => record.response_bytes = down,
                Err(error) => tracing::debug!(%error, "an upgraded connection broke"),
            }
            record.is_complete = true;
            drop((record, flight));
        });
        parts.status = StatusCode::SWITCHING_PROTOCOLS;
        Response::from_parts(parts, Answer::own(Bytes::new(), None))
    }
}
