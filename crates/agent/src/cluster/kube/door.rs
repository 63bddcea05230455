//! Every request goes through here: held to the role, paced, timed, counted, and its failure told by code.

use std::time::Duration;

use ::kube::{Client, client::Body};
use http::Response;
use http_body_util::{BodyExt as _, Limited};
use runtime::{clock::Clock, limit::Limit, random::Random};

use super::{
    ask::Ask,
    config::KubeConfig,
    fault::{Failure, refused, unanswered},
    lines::Lines,
    requests::{Outcome, Requests},
};
use crate::{
    cluster::{Error, Fault, Result},
    rbac,
};

/// No answer is read beyond this: a page of five hundred large objects stays below it.
const ANSWER_BYTES_MAX: usize = 64 << 20;

pub(super) struct Door {
    pub clock: Clock,
    pub random: Random,
    /// How many objects are listed at a time.
    pub page: u32,
    pub streams_lists: bool,
    client: Client,
    timeout: Duration,
    /// That the API server wants one request later (`Retry-After`) does not empty it: what was turned away is one request
    /// of one priority level, and its key waits. Others may be welcome, the Lease among them, and how many of them there
    /// are is bounded by the loops.
    limit: Limit,
    requests: Requests,
}

impl Door {
    pub fn new(
        client: Client,
        config: &KubeConfig,
        requests: Requests,
        clock: Clock,
        random: Random,
    ) -> Door {
        Door {
            page: config.page,
            streams_lists: config.streams_lists,
            client,
            timeout: config.timeout,
            limit: Limit::new(config.requests_per_second, config.requests_burst, clock.clone()),
            requests,
            clock,
            random,
        }
    }

    /// The whole answer.
    pub async fn ask(&self, ask: Ask) -> Result<Vec<u8>, Failure> {
        let resource = ask.resource;
        self.through(ask, async |response: Response<Body>| {
            let (parts, body) = response.into_parts();
            let body = collected(body).await?;
            if parts.status.is_success() {
                Ok(body)
            } else {
                Err(refused(resource, parts.status, &parts.headers, &body))
            }
        })
        .await
    }

    /// The beginning of an answer that goes on.
    pub async fn open(&self, ask: Ask) -> Result<Lines, Failure> {
        let resource = ask.resource;
        self.through(ask, async |response: Response<Body>| {
            let (parts, body) = response.into_parts();
            if parts.status.is_success() {
                return Ok(Lines::new(body));
            }
            let body = collected(body).await?;
            Err(refused(resource, parts.status, &parts.headers, &body))
        })
        .await
    }

    async fn through<T>(
        &self,
        ask: Ask,
        read: impl AsyncFnOnce(Response<Body>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (verb, resource) = (ask.verb, ask.resource);
        let may = rbac::declares(resource, verb);
        debug_assert!(may, "{} of {} is not in the role", verb.as_str(), resource.plural());
        if !may {
            let message = format!("{} of {} is not in our role", verb.as_str(), resource.plural());
            return Err(Error::new(Fault::Forbidden, message).into());
        }
        if ask.is_urgent {
            self.limit.take_at_once();
        } else if self.limit.take().await {
            self.requests.delayed.inc();
        }
        let answer = async {
            let request = ask.request().map_err(|error| Error::new(Fault::Refused, error.to_string()))?;
            let response = self.client.send(request.map(Body::from)).await;
            read(response.map_err(|error| unanswered(&error))?).await
        };
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = self.clock.sleep(self.timeout) => {
                Err(Error::new(Fault::Unavailable, format!("no answer within {:?}", self.timeout)).into())
            }
        };
        let outcome =
            answer.as_ref().map_or_else(|failure| Outcome::Failed(failure.error.fault), |_| Outcome::Ok);
        self.requests.add(verb, resource, outcome);
        answer
    }
}

async fn collected(body: Body) -> Result<Vec<u8>> {
    match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) => Err(Error::new(Fault::Unavailable, format!("the answer broke off: {error}"))),
    }
}
