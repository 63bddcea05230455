//! Where one request ends and the next begins, decided once and strictly.

use super::{
    chunks::{Chunks, Progress},
    head::{Body, Head, HeadLimits, check},
};
use crate::blame::Client;

/// Follows the bytes of a connection from request to request. It holds none of them.
#[derive(Debug)]
pub struct Framing {
    state: State,
    limits: HeadLimits,
    /// How much of an unfinished head was searched for its end.
    searched: usize,
}

#[derive(Debug)]
enum State {
    Head,
    Body(Rest, bool),
    /// Whether the connection becomes something else is not known yet.
    Undecided,
    /// It is no HTTP any more, or none that is looked at here.
    Open,
}

#[derive(Debug)]
enum Rest {
    Length(u64),
    Chunked(Chunks),
}

const END: &[u8] = b"\r\n\r\n";

impl Framing {
    pub fn new(limits: HeadLimits) -> Framing {
        Framing { state: State::Head, limits, searched: 0 }
    }

    pub fn is_at_head(&self) -> bool {
        matches!(self.state, State::Head)
    }

    pub fn is_undecided(&self) -> bool {
        matches!(self.state, State::Undecided)
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Nothing is looked at from here on.
    pub fn open(&mut self) {
        self.state = State::Open;
    }

    /// The upgrade was declined: another request follows.
    pub fn decline(&mut self) {
        self.state = State::Head;
    }

    /// Looks at what came. Says how many of the bytes may go on; the rest must be shown again with what follows them.
    /// A refusal says how many came before what is refused.
    pub fn look(&mut self, bytes: &[u8]) -> Result<usize, (usize, Client)> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let passed = match &mut self.state {
                State::Open => return Ok(bytes.len()),
                State::Undecided => return Ok(at),
                State::Head => match self.head(rest).map_err(|client| (at, client))? {
                    Some(length) => length,
                    None => return Ok(at),
                },
                State::Body(body, upgrades) => {
                    let (passed, is_over) = body.look(rest).map_err(|client| (at, client))?;
                    if is_over {
                        self.state = if *upgrades { State::Undecided } else { State::Head };
                    }
                    passed
                }
            };
            at += passed;
            if at == bytes.len() {
                return Ok(at);
            }
        }
    }

    /// The length of the head that begins here, once it is whole.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Client> {
        // An empty line before a request is left over from the one before (RFC 9112, 2.2).
        let blank = bytes.chunks_exact(2).take_while(|pair| *pair == b"\r\n").count() * 2;
        if blank > 2 {
            return Err(Client::Malformed("there are empty lines where a request should be"));
        }
        let text = &bytes[blank..];
        let from = self.searched.saturating_sub(END.len()).min(text.len());
        let found = text[from..].windows(END.len()).position(|window| window == END);
        let Some(end) = found.map(|end| from + end + END.len()) else {
            self.searched = text.len();
            if has_bare_end(&text[from..], from > 0) {
                return Err(Client::Malformed("a line ends without CR and LF"));
            }
            if text.len() > self.limits.bytes_max {
                return Err(too_large(text, &self.limits));
            }
            return Ok(None);
        };
        self.searched = 0;
        if end > self.limits.bytes_max {
            return Err(too_large(text, &self.limits));
        }
        let Head { body, upgrades } = check(&text[..end], &self.limits)?;
        self.state = match body {
            Body::None if upgrades => State::Undecided,
            Body::None => State::Head,
            Body::Length(length) => State::Body(Rest::Length(length), upgrades),
            Body::Chunked => State::Body(Rest::Chunked(Chunks::new(&self.limits)), upgrades),
        };
        Ok(Some(blank + end))
    }
}

/// A line feed that no carriage return precedes. Where the search goes on, the first byte's neighbour is not seen.
fn has_bare_end(text: &[u8], goes_on: bool) -> bool {
    let first = !goes_on && text.first() == Some(&b'\n');
    first || text.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r')
}

/// Without the end of its first line it is the target that is too long.
fn too_large(text: &[u8], limits: &HeadLimits) -> Client {
    let line = text.iter().take(limits.uri_max + 64).position(|byte| *byte == b'\n');
    if line.is_none() { Client::UriTooLong } else { Client::HeadTooLarge }
}

impl Rest {
    /// How many bytes belong to the body, and whether it is over with them.
    fn look(&mut self, bytes: &[u8]) -> Result<(usize, bool), Client> {
        match self {
            Rest::Length(left) => {
                let passed = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= passed as u64;
                Ok((passed, *left == 0))
            }
            Rest::Chunked(chunks) => match chunks.look(bytes)? {
                Progress::More => Ok((bytes.len(), false)),
                Progress::End(passed) => Ok((passed, true)),
            },
        }
    }
}
