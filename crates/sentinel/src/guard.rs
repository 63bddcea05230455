//! Lets through only requests that everybody on the way reads alike.
//!
//! ```text
//!   client ─▶ bytes ─▶ Framing: head · body · head · … ─▶ the HTTP/1 parser
//!                         │ refused
//!                         └─▶ one request in place of the rest, which is answered with why, and the end
//! ```
//!
//! The parser below is lenient, as parsers of servers are: of two lengths it takes one, a line may end in LF alone. In a
//! proxy that is how one request is made two. So the bytes are read twice, first here, strictly. A head is handed on when
//! it is whole and beyond doubt. What is refused never reaches the parser; it gets a request of our own instead, so that
//! refusals are answered, counted and logged like everything else, in their turn behind what came before them.

mod chunks;
mod framing;
mod head;
#[cfg(test)]
mod tests;

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use runtime::clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub use self::{framing::Framing, head::HeadLimits};
use crate::{
    blame::{Blame, Client},
    proxy::patience::Patience,
};

/// The path of the request that stands for one that was refused. Nothing below `/_unkey/internal/` is carried.
pub const REFUSED_PATH: &str = "/_unkey/internal/refused";

const REFUSED: &[u8] = b"GET /_unkey/internal/refused HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// What a client may send before it is known whether its connection becomes something else than HTTP.
const EARLY_BYTES: usize = 64 * 1024;

/// A connection of HTTP/1 whose requests are looked at before they are read.
pub struct Guarded<I> {
    io: I,
    framing: Framing,
    /// Came, and may not be handed on yet.
    held: Vec<u8>,
    /// May be handed on.
    ready: Vec<u8>,
    handed: usize,
    end: End,
    /// Whether no request has come yet.
    is_first: bool,
    line: Arc<Line>,
    pace: Pace,
}

/// How slow a client may be.
pub struct Pace {
    /// To send the rest of a head of which something came.
    head: Patience,
    /// To take what it is sent.
    write: Patience,
}

/// Whether anything that comes is still looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// The last request is our own.
    Answered,
    /// What came is not even HTTP, and nobody waits for an answer in it.
    Silent,
    /// It came in the middle of a body.
    Broken(Client),
}

/// What the two ends of a connection's way through the sentinel tell each other.
#[derive(Debug, Default)]
pub struct Line {
    refusal: OnceLock<Client>,
    decision: AtomicU8,
    decided: AtomicWaker,
}

const UNDECIDED: u8 = 0;
const OPENED: u8 = 1;
const DECLINED: u8 = 2;

impl Line {
    /// Why the client is refused.
    pub fn refusal(&self) -> Option<Client> {
        self.refusal.get().copied()
    }

    /// From here on the connection is no HTTP: nothing on it is looked at.
    pub fn open(&self) {
        self.decide(OPENED);
    }

    /// The request that wanted to upgrade was answered without: another may follow.
    pub fn decline(&self) {
        self.decide(DECLINED);
    }

    fn decide(&self, decision: u8) {
        self.decision.store(decision, Ordering::Release);
        self.decided.wake();
    }
}

impl Pace {
    pub fn new(clock: &Clock, head: Duration, write: Duration) -> Pace {
        Pace {
            head: Patience::new(clock.clone(), head, None),
            write: Patience::new(clock.clone(), write, None),
        }
    }

    /// What a client that takes nothing for too long gets is the end.
    fn written<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        match written {
            Poll::Pending if self.write.is_over(cx) => {
                let text = "the client does not take what it is sent";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
            }
            Poll::Pending => Poll::Pending,
            Poll::Ready(written) => {
                self.write.again();
                Poll::Ready(written)
            }
        }
    }
}

impl<I> Guarded<I> {
    /// A connection of which `begun` was read already.
    pub fn new(io: I, begun: Vec<u8>, limits: HeadLimits, line: Arc<Line>, pace: Pace) -> Guarded<I> {
        let mut guarded = Guarded {
            io,
            framing: Framing::new(limits),
            held: begun,
            ready: Vec::new(),
            handed: 0,
            end: End::NotYet,
            is_first: true,
            line,
            pace,
        };
        guarded.look_at_held();
        guarded
    }

    /// A connection that is not looked at, of which `begun` was read already.
    pub fn open(io: I, begun: Vec<u8>, pace: Pace) -> Guarded<I> {
        let mut framing = Framing::new(HeadLimits::default());
        framing.open();
        Guarded {
            io,
            framing,
            held: Vec::new(),
            ready: begun,
            handed: 0,
            end: End::NotYet,
            is_first: true,
            line: Arc::default(),
            pace,
        }
    }

    /// Hands out what may be; `false` if there is nothing.
    fn hand(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let rest = &self.ready[self.handed..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        self.handed += count;
        if self.handed == self.ready.len() {
            self.ready = Vec::new();
            self.handed = 0;
        }
        count > 0
    }

    /// Looks at what is held, and makes ready what of it may go on.
    fn look_at_held(&mut self) {
        match self.framing.look(&self.held) {
            Ok(passed) => {
                let rest = self.held.split_off(passed);
                self.ready = std::mem::replace(&mut self.held, rest);
                if passed > 0 {
                    self.is_first = false;
                    self.pace.head.again();
                }
            }
            Err((0, _)) if self.is_first && is_foreign(&self.held) => self.end = End::Silent,
            Err((passed, client)) => {
                self.held.truncate(passed);
                self.ready = std::mem::take(&mut self.held);
                self.refuse(client);
            }
        }
    }

    /// Ends the connection: with an answer if a request was expected, otherwise the body breaks off.
    fn refuse(&mut self, client: Client) {
        // Nobody else sets it.
        let _ = self.line.refusal.set(client);
        if self.framing.is_at_head() {
            self.end = End::Answered;
            self.ready.extend_from_slice(REFUSED);
        } else {
            self.end = End::Broken(client);
        }
    }

    /// Whether the rest of a head has been waited for long enough.
    fn is_too_slow(&mut self, cx: &mut Context<'_>) -> bool {
        if self.framing.is_at_head() && !self.held.is_empty() {
            return self.pace.head.is_over(cx);
        }
        self.pace.head.again();
        false
    }

    /// Whether there is a decision on an upgrade that was waited for.
    fn settle(&mut self, cx: &Context<'_>) {
        self.line.decided.register(cx.waker());
        match self.line.decision.swap(UNDECIDED, Ordering::AcqRel) {
            OPENED => {
                self.framing.open();
                self.ready = std::mem::take(&mut self.held);
            }
            DECLINED => {
                self.framing.decline();
                self.look_at_held();
            }
            _ => {}
        }
    }
}

/// Whether a connection begins with a line that has the shape of a request and names no version of anything: the beginning
/// of an HTTP/2 that is none, or of something else.
fn is_foreign(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    words.next().is_some_and(|third| !third.contains(&b'/')) && words.next().is_none()
}

impl<I: AsyncRead + Unpin> AsyncRead for Guarded<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.hand(buffer) {
                return Poll::Ready(Ok(()));
            }
            if this.framing.is_open() {
                return Pin::new(&mut this.io).poll_read(cx, buffer);
            }
            match this.end {
                End::NotYet => {}
                // The answer to what was refused ends the connection; until then there is nothing to read.
                End::Answered => return Poll::Pending,
                End::Silent => return Poll::Ready(Ok(())),
                End::Broken(client) => {
                    let text = Blame::Client(client).detail();
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
            }
            if this.framing.is_undecided() {
                this.settle(cx);
                if !this.framing.is_undecided() {
                    continue;
                }
                if this.held.len() >= EARLY_BYTES {
                    return Poll::Pending;
                }
            }
            let before = buffer.filled().len();
            if Pin::new(&mut this.io).poll_read(cx, buffer)?.is_pending() {
                if this.is_too_slow(cx) {
                    this.refuse(Client::TooSlow);
                    continue;
                }
                return Poll::Pending;
            }
            if buffer.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            if !this.held.is_empty() {
                this.held.extend_from_slice(&buffer.filled()[before..]);
                buffer.set_filled(before);
                this.look_at_held();
                continue;
            }
            // Most reads end here: a whole head, or a part of a body, that stays where it was read to.
            let fresh = &buffer.filled()[before..];
            match this.framing.look(fresh) {
                Ok(passed) => {
                    this.held.extend_from_slice(&fresh[passed..]);
                    buffer.set_filled(before + passed);
                }
                Err((passed, client)) => {
                    buffer.set_filled(before + passed);
                    this.refuse(client);
                }
            }
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Guarded<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.pace.written(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.io).poll_flush(cx);
        self.pace.written(written, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.io).poll_shutdown(cx);
        self.pace.written(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.pace.written(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
