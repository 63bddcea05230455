//! The head of a request, read as strictly as RFC 9112 allows, and a little more.

use model::route::normalised;

use crate::blame::Client;

/// How large a head may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Of the whole head, and of the trailers.
    pub bytes_max: usize,
    pub headers_max: usize,
    pub uri_max: usize,
}

/// What follows from a head.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    pub body: Body,
    /// It asks for something else than HTTP on this connection.
    pub upgrades: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    None,
    Length(u64),
    Chunked,
}

/// Digits of a length: what is longer was never meant.
const LENGTH_DIGITS: usize = 18;

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits { bytes_max: 64 * 1024, headers_max: 100, uri_max: 16 * 1024 }
    }
}

/// What of the headers decides how a request is read.
#[derive(Default)]
struct Seen<'a> {
    host: Option<&'a [u8]>,
    length: Option<u64>,
    is_chunked: bool,
    has_upgrade: bool,
    wants_upgrade: bool,
}

/// Reads a whole head, its empty line included.
pub fn check(head: &[u8], limits: &HeadLimits) -> Result<Head, Client> {
    let mut lines = lines(head)?;
    let first = lines.next().unwrap_or_default();
    let (method, target, is_11) = request_line(first, limits)?;
    let mut seen = Seen::default();
    let mut count = 0;
    for line in lines {
        count += 1;
        if count > limits.headers_max {
            return Err(Client::HeadTooLarge);
        }
        seen.take(line, is_11)?;
    }
    check_host(&seen, target, is_11)?;
    check_target(method, target)?;
    if seen.is_chunked && seen.length.is_some() {
        return Err(Client::Malformed("there are both a Content-Length and a Transfer-Encoding"));
    }
    let body = match (seen.is_chunked, seen.length) {
        (true, _) => Body::Chunked,
        (false, Some(length)) if length > 0 => Body::Length(length),
        (false, _) => Body::None,
    };
    Ok(Head { body, upgrades: is_11 && seen.has_upgrade && seen.wants_upgrade })
}

/// The lines of a head, without their ends; all of them end alike.
fn lines(head: &[u8]) -> Result<impl Iterator<Item = &[u8]>, Client> {
    let text = head.strip_suffix(b"\r\n\r\n").unwrap_or(head);
    let is_bare = |pair: &[u8]| (pair[1] == b'\n') != (pair[0] == b'\r');
    let ends_bare = text.first() == Some(&b'\n') || text.last() == Some(&b'\r');
    if ends_bare || text.windows(2).any(is_bare) {
        return Err(Client::Malformed("a line ends without CR and LF"));
    }
    let line = |line: &'_ [u8]| line.len() - usize::from(line.ends_with(b"\r"));
    Ok(text.split(|byte| *byte == b'\n').map(move |whole| &whole[..line(whole)]))
}

/// Method, target, and whether it is HTTP/1.1.
fn request_line<'a>(line: &'a [u8], limits: &HeadLimits) -> Result<(&'a [u8], &'a [u8], bool), Client> {
    const WRONG: Client = Client::Malformed("the first line is no request");
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target, version) = (parts.next(), parts.next(), parts.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next()) else {
        return Err(WRONG);
    };
    if target.len() > limits.uri_max {
        return Err(Client::UriTooLong);
    }
    let is_11 = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ => return Err(Client::Malformed("this version of HTTP is not spoken")),
    };
    let is_method = !method.is_empty() && method.iter().copied().all(is_token);
    let is_target =
        !target.is_empty() && target.iter().all(|byte| (0x21..=0x7e).contains(byte) && *byte != b'#');
    if is_method && is_target { Ok((method, target, is_11)) } else { Err(WRONG) }
}

impl<'a> Seen<'a> {
    fn take(&mut self, line: &'a [u8], is_11: bool) -> Result<(), Client> {
        if line.first().is_none_or(|byte| b" \t".contains(byte)) {
            return Err(Client::Malformed("a header is continued on another line"));
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let colon = colon.ok_or(Client::Malformed("a header has no colon"))?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().copied().all(is_token) {
            return Err(Client::Malformed("a header's name has characters that no name has"));
        }
        if !line[colon + 1..].iter().copied().all(is_value) {
            return Err(Client::Malformed("a header's value has characters that no value has"));
        }
        match name.len() {
            4 if is(name, b"host") => self.host(value)?,
            7 if is(name, b"upgrade") => self.has_upgrade = true,
            10 if is(name, b"connection") => {
                self.wants_upgrade |=
                    value.split(|byte| *byte == b',').any(|word| is(word.trim_ascii(), b"upgrade"));
            }
            14 if is_alike(name, b"content-length") => self.length(name, value)?,
            17 if is_alike(name, b"transfer-encoding") => self.encoding(name, value, is_11)?,
            _ => {}
        }
        Ok(())
    }

    fn host(&mut self, value: &'a [u8]) -> Result<(), Client> {
        let is_first = self.host.replace(value).is_none();
        is_first.then_some(()).ok_or(Client::Malformed("there is more than one Host"))
    }

    fn length(&mut self, name: &[u8], value: &[u8]) -> Result<(), Client> {
        const WRONG: Client = Client::Malformed("the Content-Length is no number, or there are several");
        let is_number = (1..=LENGTH_DIGITS).contains(&value.len())
            && value.iter().all(u8::is_ascii_digit)
            && !name.contains(&b'_');
        let text = std::str::from_utf8(value).ok().filter(|_| is_number).ok_or(WRONG)?;
        let length = text.parse().map_err(|_| WRONG)?;
        if self.length.replace(length).is_some() { Err(WRONG) } else { Ok(()) }
    }

    fn encoding(&mut self, name: &[u8], value: &[u8], is_11: bool) -> Result<(), Client> {
        let is_good = is_11 && !name.contains(&b'_') && is(value, b"chunked") && !self.is_chunked;
        self.is_chunked = true;
        is_good
            .then_some(())
            .ok_or(Client::Malformed("the Transfer-Encoding is not chunked, once, in HTTP/1.1"))
    }
}

fn check_host(seen: &Seen<'_>, target: &[u8], is_11: bool) -> Result<(), Client> {
    let Some(host) = seen.host else {
        return if is_11 { Err(Client::HostMissing) } else { Ok(()) };
    };
    let is_of_host = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(byte);
    if host.is_empty() || !host.iter().all(is_of_host) {
        return Err(Client::Malformed("the Host is none"));
    }
    let Some(authority) = authority(target) else { return Ok(()) };
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    let is_same = normalised(text(authority)) == normalised(text(host));
    is_same.then_some(()).ok_or(Client::Malformed("the target and the Host name different hosts"))
}

/// The host of a target that names one.
fn authority(target: &[u8]) -> Option<&[u8]> {
    let scheme =
        target.windows(3).position(|window| window == b"://").filter(|_| target.first() != Some(&b'/'))?;
    let rest = &target[scheme + 3..];
    let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// A path, or a whole address, or what `OPTIONS` and `CONNECT` have instead.
fn check_target(method: &[u8], target: &[u8]) -> Result<(), Client> {
    let is_whole = [&b"http://"[..], b"https://"]
        .iter()
        .any(|scheme| target.len() > scheme.len() && target[..scheme.len()].eq_ignore_ascii_case(scheme));
    let names_user = || authority(target).is_some_and(|authority| authority.contains(&b'@'));
    let is_good = match target {
        b"*" => method == b"OPTIONS",
        _ if method == b"CONNECT" => true,
        [b'/', ..] => true,
        _ => is_whole && !names_user(),
    };
    is_good.then_some(()).ok_or(Client::Malformed("the target of the request is none"))
}

/// A byte of a name.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A byte of a value: text, spaces and what is beyond ASCII, but nothing that steers a terminal or a parser.
pub fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

fn is(word: &[u8], wanted: &[u8]) -> bool {
    word.eq_ignore_ascii_case(wanted)
}

/// The same to those who take an underscore for a hyphen, as some servers behind us do.
fn is_alike(name: &[u8], wanted: &[u8]) -> bool {
    name.iter()
        .zip(wanted)
        .all(|(byte, wanted)| byte.eq_ignore_ascii_case(wanted) || (*byte == b'_' && *wanted == b'-'))
}
