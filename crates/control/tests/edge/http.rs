//! A client of another kind than ours: it knows HTTP and the framing of the four protocols, and nothing else.
//!
//! ```text
//! Connect, unary      POST ─▶ status and body
//! the other three     POST ─▶ ( flags, length, message )* and how it ended: in the last frame, or in trailers
//! ```

use std::{net::SocketAddr, time::Duration};

use bytes::{Buf as _, Bytes, BytesMut};
use connectrpc::client::{ClientTransport, HttpClient, full_body};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;

type Body = <HttpClient as ClientTransport>::ResponseBody;

/// However slow the machine is, an answer that takes longer than this is none.
const PATIENCE: Duration = Duration::from_mins(1);

/// The codes by their numbers in gRPC.
const CODES: [&str; 17] = [
    "ok",
    "canceled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
];

/// What is spoken, and in which of the two codings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    ConnectJson,
    ConnectProto,
    GrpcJson,
    GrpcProto,
    GrpcWebProto,
}

/// One server as its clients see it. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    http: HttpClient,
    address: SocketAddr,
}

/// A call that is under way.
pub struct Call {
    body: Body,
    headers: HeaderMap,
    trailers: Option<HeaderMap>,
    read: BytesMut,
    protocol: Protocol,
    framed: bool,
    is_well: bool,
    is_over: bool,
}

/// How a call ended that did not end well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub code: String,
    pub message: String,
}

impl Client {
    pub fn http1(address: SocketAddr) -> Self {
        Self { http: HttpClient::plaintext(), address }
    }

    pub fn http2(address: SocketAddr) -> Self {
        Self { http: HttpClient::plaintext_http2_only(), address }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends the message of a call; what comes back is read by the message.
    pub async fn call(
        &self,
        protocol: Protocol,
        is_stream: bool,
        path: &str,
        token: Option<&str>,
        message: &[u8],
    ) -> Result<Call, Refused> {
        let framed = is_stream || !matches!(protocol, Protocol::ConnectJson | Protocol::ConnectProto);
        let body = if framed { envelope(message) } else { message.to_vec() };
        let headers = [("content-type", protocol.content_type(is_stream)), ("te", "trailers")];
        let token = token.map(|token| format!("Bearer {token}"));
        let authorization = token.as_deref().map(|token| ("authorization", token));
        let headers: Vec<_> = headers.into_iter().chain(authorization).collect();
        let answer = self.send(path, &headers, body).await?;
        Ok(Call::new(answer, protocol, framed))
    }

    /// A call whose frames are the caller's own affair.
    pub async fn call_raw(
        &self,
        protocol: Protocol,
        framed: bool,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Call, Refused> {
        Ok(Call::new(self.send(path, headers, body).await?, protocol, framed))
    }

    /// Any request whatever.
    pub async fn send(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Response<Body>, Refused> {
        let mut request = Request::post(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(full_body(body.into())).expect("a request");
        let answered = tokio::time::timeout(PATIENCE, self.http.send(request)).await;
        let answer = answered.unwrap_or_else(|_| panic!("{path} was not answered within {PATIENCE:?}"));
        answer.map_err(|error| Refused { code: "cut".to_owned(), message: error.to_string() })
    }

    /// The answer to a unary call.
    pub async fn ask(
        &self,
        protocol: Protocol,
        path: &str,
        token: Option<&str>,
        message: &[u8],
    ) -> Result<Bytes, Refused> {
        let mut call = self.call(protocol, false, path, token, message).await?;
        let answer = call.message().await?.ok_or_else(|| Refused {
            code: "empty".to_owned(),
            message: "it ended well without an answer".to_owned(),
        })?;
        if call.framed {
            assert_eq!(call.message().await?, None, "a unary call has one answer");
        }
        Ok(answer)
    }
}

impl Call {
    fn new(answer: Response<Body>, protocol: Protocol, framed: bool) -> Self {
        let (head, body) = answer.into_parts();
        Self {
            body,
            headers: head.headers,
            trailers: None,
            read: BytesMut::new(),
            protocol,
            framed,
            is_well: head.status.is_success(),
            is_over: false,
        }
    }

    /// The next message; nothing, when it has ended well.
    pub async fn message(&mut self) -> Result<Option<Bytes>, Refused> {
        if self.is_over {
            return Ok(None);
        }
        if !self.framed {
            self.is_over = true;
            while self.more().await? {}
            let body = self.read.split().freeze();
            return if self.is_well { Ok(Some(body)) } else { Err(said(&body)) };
        }
        loop {
            if let Some((flags, message)) = take_frame(&mut self.read) {
                match (self.protocol, flags) {
                    (_, 0) => return Ok(Some(message)),
                    (Protocol::ConnectJson | Protocol::ConnectProto, 2) => return self.end(&message),
                    (Protocol::GrpcWebProto, 0x80) => {
                        let trailers = read_trailers(&message);
                        return self.finish(&trailers);
                    }
                    other => panic!("a frame that nobody asked for: {other:?}"),
                }
            }
            if !self.more().await? {
                return self.ended();
            }
        }
    }

    /// The end of a Connect stream.
    fn end(&mut self, message: &[u8]) -> Result<Option<Bytes>, Refused> {
        self.is_over = true;
        let end: serde_json::Value = serde_json::from_slice(message).expect("the end of a stream is JSON");
        match end.get("error") {
            Some(error) => Err(said(error.to_string().as_bytes())),
            None => Ok(None),
        }
    }

    fn ended(&mut self) -> Result<Option<Bytes>, Refused> {
        let trailers = self.trailers.take().unwrap_or_default();
        if trailers.contains_key("grpc-status") {
            return self.finish(&trailers);
        }
        let headers = std::mem::take(&mut self.headers);
        if headers.contains_key("grpc-status") {
            return self.finish(&headers);
        }
        self.is_over = true;
        if self.is_well {
            let message = "it ended without a word".to_owned();
            return Err(Refused { code: "cut".to_owned(), message });
        }
        Err(said(&self.read.split()))
    }

    /// How gRPC ends, in trailers of either kind.
    fn finish(&mut self, trailers: &HeaderMap) -> Result<Option<Bytes>, Refused> {
        self.is_over = true;
        let text = |name| trailers.get(name).map(|value| value.to_str().expect("text").to_owned());
        let status: usize = text("grpc-status").expect("a status").parse().expect("a number");
        if status == 0 {
            return Ok(None);
        }
        Err(Refused { code: CODES[status].to_owned(), message: text("grpc-message").unwrap_or_default() })
    }

    /// Reads on; whether there was more.
    async fn more(&mut self) -> Result<bool, Refused> {
        let cut = |message: String| Refused { code: "cut".to_owned(), message };
        let Ok(frame) = tokio::time::timeout(PATIENCE, self.body.frame()).await else {
            panic!("nothing came for {PATIENCE:?}")
        };
        let Some(frame) = frame else { return Ok(false) };
        match frame.map_err(|error| cut(error.to_string()))?.into_data() {
            Ok(data) => self.read.extend_from_slice(&data),
            Err(frame) => self.trailers = frame.into_trailers().ok(),
        }
        Ok(true)
    }
}

impl Protocol {
    fn content_type(self, is_stream: bool) -> &'static str {
        match (self, is_stream) {
            (Self::ConnectJson, false) => "application/json",
            (Self::ConnectJson, true) => "application/connect+json",
            (Self::ConnectProto, false) => "application/proto",
            (Self::ConnectProto, true) => "application/connect+proto",
            (Self::GrpcJson, _) => "application/grpc+json",
            (Self::GrpcProto, _) => "application/grpc",
            (Self::GrpcWebProto, _) => "application/grpc-web+proto",
        }
    }
}

/// A message as all protocols but unary Connect frame it.
pub fn envelope(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a message of this age").to_be_bytes();
    [&[0], length.as_slice(), message].concat()
}

fn take_frame(read: &mut BytesMut) -> Option<(u8, Bytes)> {
    let head: [u8; 5] = read.get(..5)?.try_into().expect("five bytes");
    let [flags, length @ ..] = head;
    let length = usize::try_from(u32::from_be_bytes(length)).expect("a length");
    if read.len() < 5 + length {
        return None;
    }
    read.advance(5);
    Some((flags, read.split_to(length).freeze()))
}

fn read_trailers(text: &[u8]) -> HeaderMap {
    let text = std::str::from_utf8(text).expect("trailers are text");
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    let pair = |(name, value): (&str, &str)| {
        (name.trim().parse().expect("a name"), value.trim().parse().expect("a value"))
    };
    pairs.map(pair).collect::<HeaderMap<http::HeaderValue>>()
}

/// An error as Connect writes it.
fn said(body: &[u8]) -> Refused {
    let Ok(error) = serde_json::from_slice::<serde_json::Value>(body) else {
        return Refused {
            code: "unreadable".to_owned(),
            message: String::from_utf8_lossy(body).into_owned(),
        };
    };
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    Refused { code: text("code"), message: text("message") }
}
