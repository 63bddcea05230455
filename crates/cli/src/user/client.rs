//! One small HTTP client: JSON to and from a control plane, and its live events.

use std::{io, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT},
    uri::Scheme,
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use runtime::{
    random::Random,
    shutdown::Tasks,
    tls::{Roots, client_config},
};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
use wire::{auth::Bearer, client::Io};

use super::{
    context::Entry,
    trouble::{Problem, Trouble},
};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take, from the first byte sent to the last received.
const ANSWER: Duration = Duration::from_secs(30);
/// Bytes of an answer, at most.
const ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// A control plane that can be asked.
pub(crate) struct Client {
    url: String,
    base: Uri,
    token: Option<Bearer>,
    tls: Option<TlsConnector>,
    random: Random,
    tasks: Tasks,
}

/// What a request brings.
pub(crate) enum Content {
    Nothing,
    Json(Value),
    Yaml(String),
}

impl Client {
    pub(crate) fn new(entry: &Entry) -> anyhow::Result<Client> {
        let wrong = || anyhow::anyhow!("{:?} is not an address like https://krane.example.com", entry.url);
        let base: Uri = entry.url.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let is_ours = base.scheme().is_some_and(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        anyhow::ensure!(is_ours && base.host().is_some() && base.path() == "/", wrong());
        let roots = entry.roots.clone().map_or(Roots::Mozilla, Roots::File);
        let is_secret = base.scheme() == Some(&Scheme::HTTPS);
        let tls = is_secret.then(|| client_config(&roots)).transpose()?.map(TlsConnector::from);
        let (token, random, tasks) = (entry.bearer()?, Random::system(), Tasks::new());
        Ok(Client { url: entry.url.clone(), base, token, tls, random, tasks })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Trouble> {
        self.ask(Method::GET, path, Content::Nothing).await
    }

    pub(crate) async fn post(&self, path: &str, content: Content) -> Result<Value, Trouble> {
        self.ask(Method::POST, path, content).await
    }

    /// Asks, and reads the whole answer: `null`, if there was nothing to say. A refusal that another version may be the
    /// reason of says which it is.
    pub(crate) async fn ask(&self, method: Method, path: &str, content: Content) -> Result<Value, Trouble> {
        match self.ask_once(method, path, content).await {
            Err(trouble) if trouble.may_be_another_version() => Err(match self.version().await {
                Some(version) => trouble.of_version(version),
                None => trouble,
            }),
            done => done,
        }
    }

    /// Which version the control plane is, if it says so.
    pub(crate) async fn version(&self) -> Option<String> {
        let described = self.ask_once(Method::GET, "/openapi.json", Content::Nothing).await.ok()?;
        described["info"]["version"].as_str().map(str::to_owned)
    }

    async fn ask_once(&self, method: Method, path: &str, content: Content) -> Result<Value, Trouble> {
        let asked = async {
            let response = self.send(method, path, content, &[]).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| self.broken(&*error))?.to_bytes();
            if body.is_empty() {
                return Ok(Value::Null);
            }
            serde_json::from_slice(&body).map_err(|_| self.stranger(status))
        };
        let late = |_| Trouble::Late { url: self.url.clone(), after: ANSWER };
        tokio::time::timeout(ANSWER, asked).await.map_err(late)?
    }

    /// Asks for a stream of events, from behind the one with this id.
    pub(crate) async fn stream(&self, path: &str, last: Option<&str>) -> Result<Incoming, Trouble> {
        let mut headers = vec![(ACCEPT, HeaderValue::from_static("text/event-stream"))];
        if let Some(last) = last.and_then(|last| HeaderValue::try_from(last).ok()) {
            headers.push((http::HeaderName::from_static("last-event-id"), last));
        }
        let sent = self.send(Method::GET, path, Content::Nothing, &headers);
        let late = |_| Trouble::Late { url: self.url.clone(), after: ANSWER };
        let response = tokio::time::timeout(ANSWER, sent).await.map_err(late)??;
        Ok(response.into_body())
    }

    /// Sends a request; an answer that is a problem is an error.
    async fn send(
        &self,
        method: Method,
        path: &str,
        content: Content,
        headers: &[(http::HeaderName, HeaderValue)],
    ) -> Result<Response<Incoming>, Trouble> {
        let request = self.request(method, path, content, headers);
        let stream = match tokio::time::timeout(CONNECT, self.connect()).await {
            Ok(connected) => {
                connected.map_err(|source| Trouble::NoServer { url: self.url.clone(), source })?
            }
            Err(_elapsed) => return Err(Trouble::Late { url: self.url.clone(), after: CONNECT }),
        };
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(&error))?;
        self.tasks.spawn("connection", async move { drop(connection.await) });
        let response = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        content: Content,
        headers: &[(http::HeaderName, HeaderValue)],
    ) -> Request<Full<Bytes>> {
        let (media, body) = match content {
            Content::Nothing => (None, Bytes::new()),
            Content::Json(value) => (Some("application/json"), value.to_string().into()),
            Content::Yaml(text) => (Some("application/yaml"), text.into()),
        };
        let is_post = method == Method::POST;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("paths are written by us, and what is filled in is encoded");
        let fields = request.headers_mut();
        let host = self.base.authority().map_or("", |authority| authority.as_str());
        fields.insert(HOST, HeaderValue::try_from(host).expect("an authority is a header"));
        fields.insert(USER_AGENT, HeaderValue::from_static(concat!("krane/", env!("CARGO_PKG_VERSION"))));
        fields.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(media) = media {
            fields.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        }
        if is_post {
            // A request that is sent again by whatever is in between is still done once.
            let key = format!("{:032x}", u128::from_be_bytes(self.random.bytes()));
            fields.insert("idempotency-key", HeaderValue::try_from(key).expect("hex is a header"));
        }
        if let Some(token) = &self.token {
            let mut value =
                HeaderValue::try_from(format!("Bearer {}", token.reveal())).expect("a token is ASCII");
            value.set_sensitive(true);
            fields.insert(AUTHORIZATION, value);
        }
        for (name, value) in headers {
            fields.insert(name, value.clone());
        }
        request
    }

    async fn connect(&self) -> io::Result<Box<dyn Io>> {
        let host = self.base.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = self.base.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the host is no name that TLS knows"))?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }

    /// What an answer that is no success means.
    async fn refusal(&self, response: Response<Incoming>) -> Trouble {
        let (parts, body) = response.into_parts();
        let is_problem =
            parts.headers.get(CONTENT_TYPE).is_some_and(|media| media == "application/problem+json");
        let body = Limited::new(body, ANSWER_BYTES).collect().await;
        let value: Option<Value> = body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok());
        match value.filter(|_| is_problem) {
            Some(value) => Trouble::Refused(Box::new(Problem::new(
                &self.url,
                self.token.is_some(),
                parts.status,
                &value,
            ))),
            None => self.stranger(parts.status),
        }
    }

    fn stranger(&self, status: StatusCode) -> Trouble {
        Trouble::Stranger { url: self.url.clone(), status }
    }

    fn broken(&self, error: &dyn std::error::Error) -> Trouble {
        Trouble::Broken { url: self.url.clone(), reason: error.to_string() }
    }
}

/// A text as it stands in a query.
pub(crate) fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A path with a query, without what is not there.
pub(crate) fn path(path: &str, query: &[(&str, Option<&str>)]) -> String {
    let pairs = query.iter().filter_map(|(name, value)| Some(format!("{name}={}", encode((*value)?))));
    let pairs: Vec<String> = pairs.collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_only_what_is_there_and_nothing_that_would_end_it() {
        assert_eq!(path("/v1/x", &[]), "/v1/x");
        assert_eq!(path("/v1/x", &[("a", None), ("b", Some("c&d=ü"))]), "/v1/x?b=c%26d%3D%C3%BC");
    }

    #[test]
    fn an_address_is_http_and_has_no_path() {
        for wrong in ["", "krane.example.com", "ftp://a", "http://", "http://a/v1"] {
            assert!(Client::new(&Entry::new(wrong)).is_err(), "{wrong}");
        }
        for right in ["http://127.0.0.1:8080", "https://krane.example.com/"] {
            assert!(Client::new(&Entry::new(right)).is_ok(), "{right}");
        }
    }
}
