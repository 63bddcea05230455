//! When both ends agree to speak something else: from then on bytes are copied, and nobody looks at them.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONNECTION, UPGRADE},
};
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
        let Upgrade { client, line, place } = upgrade;
        line.open();
        let (mut parts, _body) = response.into_parts();
        strip_hop_by_hop(&mut parts.headers);
        strip_ours(&mut parts.headers);
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(X_REQUEST_ID, record.id.clone());
        if let Some(protocol) = protocol {
            parts.headers.insert(UPGRADE, protocol);
        }
        let (clock, idle) = (self.shared.watch.clock().clone(), self.shared.config.idle_timeout);
        self.tasks.spawn_one_of_many("upgraded", async move {
            let (client, instance) = match futures_util::try_join!(client, instance) {
                Ok(both) => both,
                Err(error) => {
                    tracing::debug!(%error, "an upgrade came to nothing");
                    return;
                }
            };
            let is_heard = Arc::new(AtomicBool::new(false));
            let heard = |io| Heard { io: TokioIo::new(io), is_heard: Arc::clone(&is_heard) };
            let (mut client, mut instance) = (heard(client), heard(instance));
            let quiet = async {
                loop {
                    clock.sleep(idle).await;
                    if !is_heard.swap(false, Ordering::Relaxed) {
                        return;
                    }
                }
            };
            tokio::select! {
                biased;
                carried = tokio::io::copy_bidirectional(&mut client, &mut instance) => match carried {
                    Ok((_up, down)) => record.response_bytes = down,
                    Err(error) => tracing::debug!(%error, "an upgraded connection broke"),
                },
                () = quiet => tracing::debug!("nothing came on an upgraded connection for too long"),
            }
            record.is_complete = true;
            drop((record, flight, place));
        });
        parts.status = StatusCode::SWITCHING_PROTOCOLS;
        Response::from_parts(parts, Answer::own(Bytes::new(), None))
    }
}

/// One side of an upgraded connection, which notes when something comes from it.
struct Heard {
    io: TokioIo<Upgraded>,
    is_heard: Arc<AtomicBool>,
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        self.is_heard.store(true, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Heard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
