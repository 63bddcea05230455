//! One instance after the other, until one answers or it would be wrong to go on.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use model::deployment::Protocol;
use tokio::time::Instant;

use super::{
    Answered, Worker,
    answer::{Answer, Lease},
    patience::Patience,
    record::Record,
    refuse,
    request::{Again, Prepared},
    timing,
    upload::Upload,
};
use crate::{
    balance::{Flight, Instance, Outcome},
    blame::{Blame, Upstream},
    headers::{SERVER_TIMING, X_REQUEST_ID, strip_hop_by_hop, strip_ours},
    pool::{Connect, ConnectError},
};

/// An attempt that came to nothing.
struct Failure {
    upstream: Upstream,
    /// The request, if nothing of it was sent.
    unsent: Option<Request<Upload>>,
    /// What may be said of one of which something was.
    sent: Sent,
}

/// What an instance made of what it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// Nothing, as it says itself.
    Refused,
    /// Nobody knows.
    Unknown,
    /// Nobody knows, and there is no time to ask another.
    TimeOver,
}

/// An answer that has begun.
struct Begun<C: Connect> {
    response: Response<Incoming>,
    lease: Lease<C>,
}

impl<C: Connect> Worker<C> {
    pub(super) async fn send(self: &Arc<Self>, prepared: Prepared, mut record: Record) -> Answered<C> {
        let Prepared { request, again, chosen, upgrade } = prepared;
        let shared = &self.shared;
        let config = &shared.config;
        let until = (!config.request_timeout.is_zero())
            .then(|| shared.watch.clock().instant() + config.request_timeout);
        let instances = &chosen.deployment.instances;
        let protocol = chosen.deployment.protocol;
        let mut failed: Vec<Arc<Instance>> = Vec::new();
        let mut next = Some(request);
        let mut blame = Blame::Upstream(Upstream::NoneRunning);
        while let Some(request) = next.take() {
            let now = shared.watch.now();
            let Some(instance) = instances.choose(&failed, config.balance, now, &self.random) else { break };
            record.attempts += 1;
            record.instance = Some(instance.name.to_string());
            let flight = instances.begin(instance, now);
            match self.attempt(request, &again, instance, protocol, until).await {
                Ok(begun) => {
                    let status = begun.response.status();
                    self.told(&chosen, instance, Record::outcome(status.as_u16()));
                    let upgrade = upgrade.filter(|_| status == StatusCode::SWITCHING_PROTOCOLS);
                    return self.answer(begun, record, flight, upgrade, until);
                }
                Err(failure) => {
                    let fault = record.upload.as_ref().and_then(|fate| fate.fault());
                    if let Some(client) = fault {
                        return refuse(record, Blame::Client(client));
                    }
                    self.told(&chosen, instance, Outcome::Bad);
                    blame = Blame::Upstream(failure.upstream);
                    failed.push(Arc::clone(instance));
                    next = self.next(failure, &again, failed.len());
                }
            }
        }
        refuse(record, blame)
    }

    /// The request for the next attempt, if there may be one.
    fn next(&self, failure: Failure, again: &Again, failed: usize) -> Option<Request<Upload>> {
        let shared = &self.shared;
        if failed > shared.config.retries_max as usize {
            return None;
        }
        let request = failure.unsent.or_else(|| again.after(failure.sent))?;
        if !shared.budget.may_retry(shared.watch.now()) {
            shared.metrics.retries_refused.inc();
            return None;
        }
        shared.metrics.retries.inc();
        Some(request)
    }

    fn told(&self, chosen: &crate::routes::Chosen, instance: &Instance, outcome: Outcome) {
        if chosen.deployment.instances.told(instance, outcome, self.shared.watch.now()) {
            tracing::warn!(instance = %instance.name, "the instance fails again and again, and is left alone for a while");
            self.shared.metrics.ejections.inc();
        }
    }

    /// Sends the request to one instance: on a connection that is there, and if that turns out to be closing, on a new
    /// one. That is nobody's failure.
    async fn attempt(
        &self,
        mut request: Request<Upload>,
        again: &Again,
        instance: &Instance,
        protocol: Protocol,
        until: Option<Instant>,
    ) -> Result<Begun<C>, Failure> {
        let address = instance.address;
        let mut takes_kept = true;
        loop {
            let (sent, is_stale) = match protocol {
                Protocol::Http1 => self.send_http1(request, again, address, takes_kept, until).await,
                Protocol::H2c => self.send_http2(request, address, takes_kept, until).await,
            };
            let failure = match sent {
                Ok(begun) => return Ok(begun),
                Err(failure) if !is_stale => return Err(failure),
                Err(failure) => failure,
            };
            let Failure { upstream, unsent, sent } = failure;
            // Unsent, the next kept one may do. Otherwise there is one more chance, on a connection of its own.
            takes_kept = unsent.is_some();
            match unsent.or_else(|| again.after(sent)) {
                Some(next) => request = next,
                None => return Err(Failure { upstream, unsent: None, sent }),
            }
        }
    }

    /// Besides what came of it: whether that may be the fault of a connection that was kept for too long.
    async fn send_http1(
        &self,
        request: Request<Upload>,
        again: &Again,
        address: SocketAddr,
        takes_kept: bool,
        until: Option<Instant>,
    ) -> (Result<Begun<C>, Failure>, bool) {
        let is_repeatable = matches!(again, Again::Always(_));
        let kept = takes_kept.then(|| self.pool.take(address, is_repeatable)).flatten();
        let is_kept = kept.is_some();
        let mut sender = match kept {
            Some(sender) => sender,
            None => match self.pool.dial(address).await {
                Ok(sender) => sender,
                Err(error) => return (Err(unreached(&error, request)), false),
            },
        };
        let sent = match self.within(sender.try_send_request(request), until).await {
            Ok(Ok(response)) => {
                let lease = Lease::Http1 { sender, address, pool: Arc::clone(&self.pool) };
                Ok(Begun { response, lease })
            }
            Ok(Err(mut error)) => Err(broken(error.take_message(), error.error())),
            Err(failure) => return (Err(failure), false),
        };
        (sent, is_kept)
    }

    async fn send_http2(
        &self,
        request: Request<Upload>,
        address: SocketAddr,
        takes_kept: bool,
        until: Option<Instant>,
    ) -> (Result<Begun<C>, Failure>, bool) {
        let kept = takes_kept.then(|| self.pool.join(address)).flatten();
        let is_kept = kept.is_some();
        let mut place = match kept {
            Some(place) => place,
            None => match self.pool.dial_http2(address).await {
                Ok(place) => place,
                Err(error) => return (Err(unreached(&error, request)), false),
            },
        };
        let mut error = match self.within(place.sender.try_send_request(request), until).await {
            Ok(Ok(response)) => return (Ok(Begun { response, lease: Lease::Http2(place) }), false),
            Ok(Err(error)) => error,
            Err(failure) => return (Err(failure), false),
        };
        let failure = broken(error.take_message(), error.error());
        // An instance that has said goodbye, or has broken off, takes no more on this connection.
        let is_over = failure.unsent.is_some() || place.sender.is_closed() || is_goodbye(error.error());
        if is_over {
            self.pool.forget(address, &place);
        }
        (Err(failure), is_kept && is_over)
    }

    /// Waits for an answer for as long as it may take.
    async fn within<T>(
        &self,
        sending: impl Future<Output = T>,
        until: Option<Instant>,
    ) -> Result<T, Failure> {
        let (clock, config) = (self.shared.watch.clock(), &self.shared.config);
        let now = clock.instant();
        let begin =
            (!config.response_headers_timeout.is_zero()).then(|| now + config.response_headers_timeout);
        let Some(deadline) = begin.into_iter().chain(until).min() else { return Ok(sending.await) };
        // The timer is registered only if there is no answer at once; against an instance in the network there never is.
        tokio::select! {
            biased;
            sent = sending => Ok(sent),
            () = clock.sleep(deadline.saturating_duration_since(now)) => {
                let is_over = until.is_some_and(|until| deadline >= until);
                let sent = if is_over { Sent::TimeOver } else { Sent::Unknown };
                Err(Failure { upstream: Upstream::TimedOut, unsent: None, sent })
            }
        }
    }

    fn answer(
        self: &Arc<Self>,
        begun: Begun<C>,
        mut record: Record,
        flight: Flight,
        upgrade: Option<super::request::Upgrade>,
        until: Option<Instant>,
    ) -> Answered<C> {
        let Begun { mut response, lease } = begun;
        let now = self.shared.watch.now();
        flight.answered(now);
        record.instance_us = crate::moment::micros(now.since(flight.begun()));
        record.status = Some(response.status().as_u16());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(upgrade) = upgrade else {
                // Nobody asked it to.
                return refuse(record, Blame::Upstream(Upstream::BadAnswer));
            };
            return self.switch(response, upgrade, record, flight);
        }
        let headers = response.headers_mut();
        strip_hop_by_hop(headers);
        strip_ours(headers);
        headers.insert(X_REQUEST_ID, record.id.clone());
        headers.append(SERVER_TIMING, timing(&record));
        if record.method == Method::HEAD && !response.body().is_end_stream() {
            // An instance of HTTP/2 may send a body nevertheless. It is nobody's, and ends with its stream.
            return response.map(|_body| Answer::own(Bytes::new(), Some(record)));
        }
        let patience =
            Patience::new(self.shared.watch.clock().clone(), self.shared.config.idle_timeout, until);
        response.map(|body| Answer::instance(body, record, flight, lease, patience))
    }
}

impl Again {
    /// The request once more, after what became of the first.
    fn after(&self, sent: Sent) -> Option<Request<Upload>> {
        let parts = match (self, sent) {
            (Again::Always(parts), Sent::Refused | Sent::Unknown)
            | (Again::Refused(parts), Sent::Refused) => parts,
            (Again::Always(_), Sent::TimeOver)
            | (Again::Refused(_), Sent::Unknown | Sent::TimeOver)
            | (Again::Never, _) => return None,
        };
        Some(Request::from_parts(parts.clone(), Upload::none()))
    }
}

/// Nothing of the request was sent.
fn unreached(error: &ConnectError, request: Request<Upload>) -> Failure {
    let upstream = match error {
        ConnectError::TimedOut => Upstream::TimedOut,
        ConnectError::Io(_) | ConnectError::Handshake(_) => Upstream::Unreachable,
    };
    tracing::debug!(%error, "an instance was not reached");
    Failure { upstream, unsent: Some(request), sent: Sent::Refused }
}

/// The connection broke before there was an answer, or what came is none.
fn broken(unsent: Option<Request<Upload>>, error: &hyper::Error) -> Failure {
    tracing::debug!(%error, "an instance broke off");
    let sent = if is_refused(error) { Sent::Refused } else { Sent::Unknown };
    Failure { upstream: Upstream::BadAnswer, unsent, sent }
}

/// The instance says itself that it did nothing about the request.
fn is_refused(error: &hyper::Error) -> bool {
    let is_refusal = |error: &h2::Error| error.reason() == Some(h2::Reason::REFUSED_STREAM);
    is_goodbye(error) || http2(error).is_some_and(is_refusal)
}

/// The instance had ended the connection, in order, before the request came.
fn is_goodbye(error: &hyper::Error) -> bool {
    http2(error).is_some_and(|error| {
        error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
    })
}

fn http2(error: &hyper::Error) -> Option<&h2::Error> {
    std::error::Error::source(error)?.downcast_ref()
}
