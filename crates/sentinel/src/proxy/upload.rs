//! A request's body on its way to an instance: streamed, counted, and cut when it is too large or too slow.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::patience::Patience;
use crate::{blame::Client, headers::strip_trailers};

/// A request's body, or none.
pub struct Upload(Option<Stream>);

struct Stream {
    body: Incoming,
    bytes_max: u64,
    fate: Arc<Fate>,
    patience: Patience,
}

/// What became of a body, for those who have handed it on.
#[derive(Debug, Default)]
pub struct Fate {
    bytes: AtomicU64,
    /// Whose fault it is that it ended early.
    fault: AtomicU8,
}

const BROKEN: u8 = 1;
const TOO_LARGE: u8 = 2;
const TOO_SLOW: u8 = 3;

/// The body ended early; whoever waits for the answer knows why.
#[derive(Debug, thiserror::Error)]
#[error("the client did not send its request to the end")]
pub struct Cut;

impl Upload {
    pub fn none() -> Upload {
        Upload(None)
    }

    pub fn new(body: Incoming, bytes_max: u64, patience: Patience) -> (Upload, Arc<Fate>) {
        let fate = Arc::new(Fate::default());
        let stream = Stream { body, bytes_max, fate: Arc::clone(&fate), patience };
        (Upload(Some(stream)), fate)
    }
}

impl Fate {
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn fault(&self) -> Option<Client> {
        match self.fault.load(Ordering::Relaxed) {
            BROKEN => Some(Client::Malformed("the body of the request is cut off or cannot be read")),
            TOO_LARGE => Some(Client::BodyTooLarge),
            TOO_SLOW => Some(Client::TooSlow),
            _ => None,
        }
    }

    fn cut(&self, fault: u8) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        self.fault.store(fault, Ordering::Relaxed);
        Poll::Ready(Some(Err(Cut)))
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let Some(stream) = &mut self.0 else { return Poll::Ready(None) };
        match Pin::new(&mut stream.body).poll_frame(cx) {
            Poll::Pending if stream.patience.is_over(cx) => stream.fate.cut(TOO_SLOW),
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some(Err(_))) => stream.fate.cut(BROKEN),
            Poll::Ready(Some(Ok(mut frame))) => {
                stream.patience.again();
                if let Some(data) = frame.data_ref() {
                    let count = data.len() as u64;
                    let before = stream.fate.bytes.fetch_add(count, Ordering::Relaxed);
                    if before + count > stream.bytes_max {
                        return stream.fate.cut(TOO_LARGE);
                    }
                }
                if let Some(trailers) = frame.trailers_mut() {
                    strip_trailers(trailers);
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|stream| stream.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |stream| stream.body.size_hint())
    }
}
