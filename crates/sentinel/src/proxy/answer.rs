//! An answer's body on its way to the client, and what is done when it ends.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{patience::Patience, record::Record};
use crate::{
    balance::Flight,
    blame::{Blame, Upstream},
    headers::strip_trailers,
    pool::{Connect, Http1, Http2, Pool},
};

/// What is answered: a body of our own, or the instance's.
pub struct Answer<C: Connect>(Kind<C>);

enum Kind<C: Connect> {
    /// The record is only held: it ends with the answer.
    Own {
        body: Option<Bytes>,
        _record: Option<Record>,
    },
    Instance(Stream<C>),
}

struct Stream<C: Connect> {
    body: Incoming,
    record: Record,
    flight: Option<Flight>,
    lease: Option<Lease<C>>,
    patience: Patience,
}

/// The connection that an answer comes on.
pub enum Lease<C: Connect> {
    Http1 { sender: Http1, address: SocketAddr, pool: Arc<Pool<C>> },
    Http2(Http2),
}

/// The instance's answer broke off.
#[derive(Debug, thiserror::Error)]
#[error("the instance did not send its answer to the end")]
pub struct Broken;

impl<C: Connect> Lease<C> {
    fn give_back(self) {
        match self {
            Lease::Http1 { sender, address, pool } => pool.put(address, sender),
            Lease::Http2(place) => drop(place),
        }
    }
}

impl<C: Connect> Answer<C> {
    /// A body of our own; the record ends when it is sent.
    pub fn own(body: Bytes, record: Option<Record>) -> Answer<C> {
        let record = record.map(|mut record| {
            record.response_bytes = body.len() as u64;
            record.is_complete = true;
            record
        });
        Answer(Kind::Own { body: Some(body).filter(|body| !body.is_empty()), _record: record })
    }

    pub fn instance(
        body: Incoming,
        record: Record,
        flight: Flight,
        lease: Lease<C>,
        patience: Patience,
    ) -> Answer<C> {
        let mut stream = Stream { body, record, flight: Some(flight), lease: Some(lease), patience };
        if stream.body.is_end_stream() {
            stream.finish();
        }
        Answer(Kind::Instance(stream))
    }
}

impl<C: Connect> Stream<C> {
    fn finish(&mut self) {
        self.record.is_complete = true;
        self.flight = None;
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }

    fn fail(&mut self, upstream: Upstream) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.record.blame = Some(Blame::Upstream(upstream));
        self.flight = None;
        self.lease = None;
        Poll::Ready(Some(Err(Broken)))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending if self.patience.is_over(cx) => self.fail(Upstream::TimedOut),
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                self.finish();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => self.fail(Upstream::BadAnswer),
            Poll::Ready(Some(Ok(mut frame))) => {
                self.patience.again();
                if let Some(data) = frame.data_ref() {
                    self.record.response_bytes += data.len() as u64;
                }
                if let Some(trailers) = frame.trailers_mut() {
                    strip_trailers(trailers);
                }
                if self.body.is_end_stream() {
                    self.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }
}

impl<C: Connect> Body for Answer<C> {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut self.get_mut().0 {
            Kind::Own { body, .. } => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Kind::Instance(stream) => stream.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Own { body, .. } => body.is_none(),
            Kind::Instance(stream) => stream.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Own { body, .. } => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
            Kind::Instance(stream) => stream.body.size_hint(),
        }
    }
}
