//! One instance after the other, until one answers or it would be wrong to go on.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use model::deployment::Protocol;
use tokio::time::Instant;

use super::{
    Answered, Worker,
    answer::{Answer, Lease},
    patience::Patience,
    record::Record,
    refuse,
    request::Prepared,
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
    /// Whether one that may be repeated should be: the instance broke off, or is not there.
    may_repeat: bool,
}

/// An answer that has begun.
struct Begun<C: Connect> {
    response: Response<Incoming>,
    lease: Lease<C>,
}

impl<C: Connect> Worker<C> {
    pub(super) async fn send(self: &Arc<Self>, prepared: Prepared, mut record: Record) -> Answered<C> {
        let Prepared { request, copy, chosen, upgrade } = prepared;
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
            match self.attempt(request, copy.is_some(), instance, protocol, until).await {
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
                    next = self.again(failure, copy.as_ref(), &failed);
                }
            }
        }
        refuse(record, blame)
    }

    /// The request for the next attempt, if there may be one.
    fn again(
        &self,
        failure: Failure,
        copy: Option<&http::request::Parts>,
        failed: &[Arc<Instance>],
    ) -> Option<Request<Upload>> {
        let shared = &self.shared;
        if failed.len() > shared.config.retries_max as usize {
            return None;
        }
        let again = || copy.map(|parts| Request::from_parts(parts.clone(), Upload::none()));
        let request = failure.unsent.or_else(|| failure.may_repeat.then(again)?)?;
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

    /// Sends the request to one instance: on a connection that is there, and if that turns out to be closed, on a new
    /// one.
    async fn attempt(
        &self,
        mut request: Request<Upload>,
        is_repeatable: bool,
        instance: &Instance,
        protocol: Protocol,
        until: Option<Instant>,
    ) -> Result<Begun<C>, Failure> {
        let address = instance.address;
        loop {
            match protocol {
                Protocol::Http1 => {
                    let kept = self.pool.take(address, is_repeatable);
                    let is_kept = kept.is_some();
                    let mut sender = match kept {
                        Some(sender) => sender,
                        None => match self.pool.dial(address).await {
                            Ok(sender) => sender,
                            Err(error) => return Err(unreached(&error, request)),
                        },
                    };
                    let sent = self.within(sender.try_send_request(request), until).await;
                    let failure = match sent {
                        Ok(Ok(response)) => {
                            let lease = Lease::Http1 { sender, address, pool: Arc::clone(&self.pool) };
                            return Ok(Begun { response, lease });
                        }
                        Ok(Err(mut error)) => broken(error.take_message(), error.error()),
                        Err(failure) => return Err(failure),
                    };
                    match failure {
                        Failure { unsent: Some(unsent), .. } if is_kept => request = unsent,
                        failure => return Err(failure),
                    }
                }
                Protocol::H2c => {
                    let (joined, is_kept) = match self.pool.join(address) {
                        Some(place) => (Ok(place), true),
                        None => (self.pool.dial_http2(address).await, false),
                    };
                    let mut place = match joined {
                        Ok(place) => place,
                        Err(error) => return Err(unreached(&error, request)),
                    };
                    let sent = self.within(place.sender.try_send_request(request), until).await;
                    let failure = match sent {
                        Ok(Ok(response)) => return Ok(Begun { response, lease: Lease::Http2(place) }),
                        Ok(Err(mut error)) => broken(error.take_message(), error.error()),
                        Err(failure) => return Err(failure),
                    };
                    match failure {
                        Failure { unsent: Some(unsent), .. } if is_kept && place.sender.is_closed() => {
                            request = unsent;
                        }
                        failure => return Err(failure),
                    }
                }
            }
        }
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
                let may_repeat = until.is_none_or(|until| deadline < until);
                Err(Failure { upstream: Upstream::TimedOut, unsent: None, may_repeat })
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
        let patience =
            Patience::new(self.shared.watch.clock().clone(), self.shared.config.idle_timeout, until);
        response.map(|body| Answer::instance(body, record, flight, lease, patience))
    }
}

/// Nothing of the request was sent.
fn unreached(error: &ConnectError, request: Request<Upload>) -> Failure {
    let upstream = match error {
        ConnectError::TimedOut => Upstream::TimedOut,
        ConnectError::Io(_) | ConnectError::Handshake(_) => Upstream::Unreachable,
    };
    tracing::debug!(%error, "an instance was not reached");
    Failure { upstream, unsent: Some(request), may_repeat: true }
}

/// The connection broke before there was an answer.
fn broken(unsent: Option<Request<Upload>>, error: &hyper::Error) -> Failure {
    tracing::debug!(%error, "an instance broke off");
    // What is no HTTP would be none the next time.
    let may_repeat = !error.is_parse() || is_refused_stream(error);
    Failure { upstream: Upstream::BadAnswer, unsent, may_repeat }
}

/// The instance says itself that it did nothing about the request.
fn is_refused_stream(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    source.is_some_and(|error| error.reason() == Some(h2::Reason::REFUSED_STREAM))
}
