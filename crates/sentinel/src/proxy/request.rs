//! What is sent to an instance, made of what the client sent.

use std::{net::IpAddr, sync::Arc};

use http::{
    HeaderValue, Method, Request, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING, UPGRADE},
    request::Parts,
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::Body as _;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use model::{deployment::Protocol, route::normalised};

use super::{Origin, Place, Worker, patience::Patience, record::Record, upload::Upload};
use crate::{
    blame::{Blame, Client, Upstream, Us},
    guard::Line,
    headers::{self, X_DEPLOYMENT_ID, forward, strip_hop_by_hop, strip_ours, trace},
    pool::Connect,
    routes::{Chosen, Unroutable, Wanted},
};

/// A request that is ready to be sent.
pub(super) struct Prepared {
    pub request: Request<Upload>,
    pub again: Again,
    pub chosen: Chosen,
    pub upgrade: Option<Upgrade>,
}

/// The same request once more, if there can be one.
pub(super) enum Again {
    Never,
    /// If the instance itself says that it did nothing about the first.
    Refused(Parts),
    /// Whatever became of the first.
    Always(Parts),
}

/// What is needed when the connection becomes something else than HTTP.
pub(super) struct Upgrade {
    pub client: OnUpgrade,
    pub line: Arc<Line>,
    /// The connection counts for as long as it lasts, whatever is spoken on it.
    pub place: Arc<Place>,
}

impl<C: Connect> Worker<C> {
    /// Finds where the request goes, and makes of it what is sent there.
    pub(super) fn prepare(
        &self,
        origin: Origin,
        mut request: Request<Incoming>,
        record: &mut Record,
    ) -> Result<Prepared, Blame> {
        let host = host(&request)?;
        record.host.clone_from(&host);
        let chosen = self.choose(&origin, &request, &host, record.client)?;
        record.chosen = Some(chosen.clone());
        let config = &self.shared.config;
        let body_max = match config.body_max.as_u64() {
            0 => u64::MAX,
            most => most,
        };
        if request.body().size_hint().lower() > body_max {
            return Err(Blame::Client(Client::BodyTooLarge));
        }
        let is_11 = request.version() == Version::HTTP_11;
        let asked = headers::upgrade(request.headers()).filter(|_| is_11);
        let upgrade = match (&asked, chosen.deployment.protocol) {
            (Some(_), Protocol::H2c) => return Err(Blame::Upstream(Upstream::UpgradeUnsupported)),
            (Some(_), Protocol::Http1) => {
                let (line, place) = (Arc::clone(&origin.line), Arc::clone(&origin.place));
                Some(Upgrade { client: hyper::upgrade::on(&mut request), line, place })
            }
            (None, _) => None,
        };
        let (mut parts, body) = request.into_parts();
        self.pass_on(&mut parts, &origin, &host);
        let upload = if body.is_end_stream() {
            Upload::none()
        } else {
            let patience = Patience::new(self.shared.watch.clock().clone(), config.idle_timeout, None);
            let (upload, fate) = Upload::new(body, body_max, patience);
            record.upload = Some(fate);
            upload
        };
        address(&mut parts, chosen.deployment.protocol, &host, &upload)?;
        if let Some(protocol) = asked {
            parts.headers.insert(UPGRADE, protocol);
            parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        // Without extensions, which are the connection's.
        parts.extensions = http::Extensions::new();
        let again = match chosen.deployment.protocol {
            _ if record.upload.is_some() || upgrade.is_some() => Again::Never,
            _ if headers::is_idempotent(&parts.method) => Again::Always(parts.clone()),
            Protocol::H2c => Again::Refused(parts.clone()),
            Protocol::Http1 => Again::Never,
        };
        Ok(Prepared { request: Request::from_parts(parts, upload), again, chosen, upgrade })
    }

    fn choose(
        &self,
        origin: &Origin,
        request: &Request<Incoming>,
        host: &str,
        client: IpAddr,
    ) -> Result<Chosen, Blame> {
        let table = self.shared.tables.current();
        if table.cursor.history.is_none() {
            return Err(Blame::Us(Us::NotReady));
        }
        let not_found = Blame::Client(Client::DeploymentNotFound);
        let named = request.headers().get(X_DEPLOYMENT_ID).filter(|_| origin.client.is_trusted);
        let host = normalised(host);
        let wanted = match named {
            Some(id) => {
                let id = id.to_str().ok().and_then(|id| id.parse().ok());
                Wanted::Deployment(id.ok_or(not_found)?)
            }
            None => Wanted::Host(&host),
        };
        table.choose(wanted, client, || self.random.u64()).map_err(|unroutable| match unroutable {
            Unroutable::NotFound => not_found,
            Unroutable::NothingRuns => Blame::Upstream(Upstream::NoneRunning),
        })
    }

    /// Takes off what is not the instance's, and adds what it should know.
    fn pass_on(&self, parts: &mut Parts, origin: &Origin, host: &str) {
        let headers = &mut parts.headers;
        strip_hop_by_hop(headers);
        strip_ours(headers);
        forward(headers, origin.client, host);
        trace(headers, self.random.bytes());
        // HTTP/2 may split what HTTP/1 has on one line.
        let mut cookies = headers.get_all(COOKIE).iter();
        if let (Some(first), Some(_)) = (cookies.next(), cookies.next()) {
            let mut joined = first.as_bytes().to_vec();
            for more in headers.get_all(COOKIE).iter().skip(1) {
                joined.extend_from_slice(b"; ");
                joined.extend_from_slice(more.as_bytes());
            }
            if let Ok(joined) = HeaderValue::from_bytes(&joined) {
                headers.insert(COOKIE, joined);
            }
        }
    }
}

/// The host that is asked for, as it was written. Two that differ are refused: somebody behind us might take the other.
fn host(request: &Request<Incoming>) -> Result<String, Blame> {
    let mut given = request.headers().get_all(HOST).iter();
    let header = given.next();
    if given.next().is_some() {
        return Err(Blame::Client(Client::Malformed("there is more than one Host")));
    }
    let header = header.map(|host| host.to_str().unwrap_or_default());
    let authority = request.uri().authority().map(Authority::as_str);
    let host = match (authority, header) {
        (Some(authority), Some(header)) if normalised(authority) != normalised(header) => {
            return Err(Blame::Client(Client::Malformed("the target and the Host name different hosts")));
        }
        (Some(host), _) | (None, Some(host)) => host,
        (None, None) => return Err(Blame::Client(Client::HostMissing)),
    };
    if host.is_empty() || host.contains('@') {
        return Err(Blame::Client(Client::Malformed("the Host is none")));
    }
    Ok(host.to_owned())
}

/// Addresses the request as the instance's protocol has it, and says how its body ends.
fn address(parts: &mut Parts, protocol: Protocol, host: &str, upload: &Upload) -> Result<(), Blame> {
    let unwritable = || Blame::Client(Client::Malformed("the Host is none"));
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    match protocol {
        Protocol::Http1 => {
            parts.headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| unwritable())?);
            parts.uri = Uri::from(path);
            parts.version = Version::HTTP_11;
            let is_sized = parts.headers.contains_key(CONTENT_LENGTH);
            if !upload.is_end_stream() && !is_sized {
                // Said aloud: without it, the body of a GET would be left behind.
                parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
        }
        Protocol::H2c => {
            parts.headers.remove(HOST);
            let mut uri = http::uri::Parts::default();
            uri.scheme = Some(Scheme::HTTP);
            uri.authority = Some(host.parse().map_err(|_| unwritable())?);
            let is_asterisk = parts.method == Method::OPTIONS && path.as_str() == "*";
            uri.path_and_query = Some(if is_asterisk { PathAndQuery::from_static("*") } else { path });
            parts.uri = Uri::from_parts(uri).map_err(|_| unwritable())?;
            parts.version = Version::HTTP_2;
        }
    }
    Ok(())
}
