//! Why a request was not answered as it should be, and who is to blame. The status follows from that, here and
//! nowhere else.

use http::StatusCode;
use model::traffic;

/// Whose fault it is, and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    Client(Client),
    Upstream(Upstream),
    Us(Us),
}

/// What a client did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// The request cannot be read, or can be read in two ways.
    Malformed(&'static str),
    /// There is no `Host`.
    HostMissing,
    HeadTooLarge,
    UriTooLong,
    BodyTooLarge,
    /// It stopped sending in the middle of its request.
    TooSlow,
    /// It has as many requests under way as one client may.
    TooMany,
    /// It went away before it was answered.
    Closed,
    /// `CONNECT`: this is no proxy for whoever wants one.
    MethodNotAllowed,
    ExpectationUnknown,
    /// Nothing of this environment has the name it asked for.
    DeploymentNotFound,
}

/// What an instance did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// Nothing of the deployment runs here.
    NoneRunning,
    /// It refused the connection, or cannot be reached.
    Unreachable,
    /// It broke off, or answered what is no HTTP.
    BadAnswer,
    /// It took too long.
    TimedOut,
    /// It speaks HTTP/2, which has no upgrades here.
    UpgradeUnsupported,
}

/// What we did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Us {
    /// More is under way than we take.
    Overloaded,
    /// There is no routing table yet.
    NotReady,
    /// A bug.
    Internal,
}

impl Blame {
    /// The one place where a status is decided.
    pub fn status(self) -> StatusCode {
        match self {
            Blame::Client(client) => match client {
                Client::Malformed(_) | Client::HostMissing => StatusCode::BAD_REQUEST,
                Client::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                Client::UriTooLong => StatusCode::URI_TOO_LONG,
                Client::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                Client::TooSlow => StatusCode::REQUEST_TIMEOUT,
                Client::TooMany => StatusCode::TOO_MANY_REQUESTS,
                Client::Closed => client_closed(),
                Client::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
                Client::ExpectationUnknown => StatusCode::EXPECTATION_FAILED,
                Client::DeploymentNotFound => StatusCode::NOT_FOUND,
            },
            Blame::Upstream(upstream) => match upstream {
                Upstream::NoneRunning | Upstream::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
                Upstream::BadAnswer => StatusCode::BAD_GATEWAY,
                Upstream::TimedOut => StatusCode::GATEWAY_TIMEOUT,
                Upstream::UpgradeUnsupported => StatusCode::NOT_IMPLEMENTED,
            },
            Blame::Us(us) => match us {
                Us::Overloaded | Us::NotReady => StatusCode::SERVICE_UNAVAILABLE,
                Us::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            },
        }
    }

    /// A name that never changes, for programs.
    pub fn code(self) -> &'static str {
        match self {
            Blame::Client(client) => match client {
                Client::Malformed(_) => "User.BadRequest.MalformedRequest",
                Client::HostMissing => "User.BadRequest.MissingRequiredHeader",
                Client::HeadTooLarge => "User.BadRequest.RequestHeadersTooLarge",
                Client::UriTooLong => "User.BadRequest.RequestUriTooLong",
                Client::BodyTooLarge => "User.BadRequest.RequestBodyTooLarge",
                Client::TooSlow => "User.BadRequest.RequestTimeout",
                Client::TooMany => "User.BadRequest.TooManyRequests",
                Client::Closed => "User.BadRequest.ClientClosedRequest",
                Client::MethodNotAllowed => "User.BadRequest.MethodNotAllowed",
                Client::ExpectationUnknown => "User.BadRequest.ExpectationFailed",
                Client::DeploymentNotFound => "Sentinel.Routing.DeploymentNotFound",
            },
            Blame::Upstream(upstream) => match upstream {
                Upstream::NoneRunning => "Sentinel.Routing.NoRunningInstances",
                Upstream::Unreachable => "Sentinel.Proxy.ServiceUnavailable",
                Upstream::BadAnswer => "Sentinel.Proxy.BadGateway",
                Upstream::TimedOut => "Sentinel.Proxy.SentinelTimeout",
                Upstream::UpgradeUnsupported => "Sentinel.Proxy.UpgradeNotSupported",
            },
            Blame::Us(us) => match us {
                Us::Overloaded => "Sentinel.Internal.Overloaded",
                Us::NotReady => "Sentinel.Internal.NotReady",
                Us::Internal => "Sentinel.Internal.InternalServerError",
            },
        }
    }

    /// A sentence for people.
    pub fn detail(self) -> &'static str {
        match self {
            Blame::Client(client) => match client {
                Client::Malformed(reason) => reason,
                Client::HostMissing => "the request has no Host header",
                Client::HeadTooLarge => "the request's headers are larger or more than are taken here",
                Client::UriTooLong => "the request's target is longer than is taken here",
                Client::BodyTooLarge => "the request's body is larger than is taken here",
                Client::TooSlow => "the request was not sent in time",
                Client::TooMany => "too many requests of this client are under way",
                Client::Closed => "the client went away before it was answered",
                Client::MethodNotAllowed => "this method is not carried",
                Client::ExpectationUnknown => "only 100-continue can be expected",
                Client::DeploymentNotFound => "there is no deployment of this name here",
            },
            Blame::Upstream(upstream) => match upstream {
                Upstream::NoneRunning => "no instance of the deployment runs here",
                Upstream::Unreachable => "the deployment cannot be reached",
                Upstream::BadAnswer => "the deployment broke off or did not answer in HTTP",
                Upstream::TimedOut => "the deployment did not answer in time",
                Upstream::UpgradeUnsupported => "the deployment speaks HTTP/2, which cannot be upgraded",
            },
            Blame::Us(us) => match us {
                Us::Overloaded => "too many requests are under way",
                Us::NotReady => "the routes are not known yet",
                Us::Internal => "something is wrong here",
            },
        }
    }

    /// Seconds after which it may be worth to ask again.
    pub fn retry_after(self) -> Option<u32> {
        match self {
            Blame::Client(Client::TooMany)
            | Blame::Upstream(Upstream::NoneRunning | Upstream::Unreachable)
            | Blame::Us(Us::Overloaded | Us::NotReady) => Some(1),
            Blame::Client(_) | Blame::Upstream(_) | Blame::Us(_) => None,
        }
    }

    /// Whether the connection must end: what follows on it cannot be trusted to be a request.
    pub fn closes(self) -> bool {
        match self {
            Blame::Client(client) => match client {
                Client::Malformed(_)
                | Client::HostMissing
                | Client::HeadTooLarge
                | Client::UriTooLong
                | Client::BodyTooLarge
                | Client::TooSlow
                | Client::Closed
                | Client::MethodNotAllowed
                | Client::ExpectationUnknown => true,
                Client::DeploymentNotFound | Client::TooMany => false,
            },
            Blame::Upstream(_) | Blame::Us(_) => false,
        }
    }

    /// As it is counted.
    pub fn counted(self) -> traffic::Blame {
        match self {
            Blame::Client(_) => traffic::Blame::Client,
            Blame::Upstream(_) => traffic::Blame::Upstream,
            Blame::Us(_) => traffic::Blame::Platform,
        }
    }

    /// The answer's body: problem details (RFC 9457) with a code and the request's id.
    pub fn problem(self, request_id: &str) -> Vec<u8> {
        let status = self.status();
        let title = status.canonical_reason().unwrap_or("Client Closed Request");
        let problem = serde_json::json!({
            "type": "about:blank",
            "title": title,
            "status": status.as_u16(),
            "detail": self.detail(),
            "code": self.code(),
            "requestId": request_id,
        });
        serde_json::to_vec(&problem).expect("texts and numbers")
    }
}

/// 499, as others log it.
fn client_closed() -> StatusCode {
    StatusCode::from_u16(499).expect("a number of three digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_status() {
        let all = [
            Blame::Client(Client::Malformed("why")),
            Blame::Client(Client::HostMissing),
            Blame::Client(Client::HeadTooLarge),
            Blame::Client(Client::UriTooLong),
            Blame::Client(Client::BodyTooLarge),
            Blame::Client(Client::TooSlow),
            Blame::Client(Client::TooMany),
            Blame::Client(Client::Closed),
            Blame::Client(Client::MethodNotAllowed),
            Blame::Client(Client::ExpectationUnknown),
            Blame::Client(Client::DeploymentNotFound),
            Blame::Upstream(Upstream::NoneRunning),
            Blame::Upstream(Upstream::Unreachable),
            Blame::Upstream(Upstream::BadAnswer),
            Blame::Upstream(Upstream::TimedOut),
            Blame::Upstream(Upstream::UpgradeUnsupported),
            Blame::Us(Us::Overloaded),
            Blame::Us(Us::NotReady),
            Blame::Us(Us::Internal),
        ];
        let line =
            |blame: Blame| format!("{} {} {}\n", blame.status().as_u16(), blame.counted(), blame.code());
        let table: String = all.into_iter().map(line).collect();
        expect_test::expect![[r#"
            400 client User.BadRequest.MalformedRequest
            400 client User.BadRequest.MissingRequiredHeader
            431 client User.BadRequest.RequestHeadersTooLarge
            414 client User.BadRequest.RequestUriTooLong
            413 client User.BadRequest.RequestBodyTooLarge
            408 client User.BadRequest.RequestTimeout
            429 client User.BadRequest.TooManyRequests
            499 client User.BadRequest.ClientClosedRequest
            405 client User.BadRequest.MethodNotAllowed
            417 client User.BadRequest.ExpectationFailed
            404 client Sentinel.Routing.DeploymentNotFound
            503 upstream Sentinel.Routing.NoRunningInstances
            503 upstream Sentinel.Proxy.ServiceUnavailable
            502 upstream Sentinel.Proxy.BadGateway
            504 upstream Sentinel.Proxy.SentinelTimeout
            501 upstream Sentinel.Proxy.UpgradeNotSupported
            503 platform Sentinel.Internal.Overloaded
            503 platform Sentinel.Internal.NotReady
            500 platform Sentinel.Internal.InternalServerError
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn a_problem_names_its_code_and_the_request() {
        let problem = Blame::Upstream(Upstream::TimedOut).problem("req-1");
        expect_test::expect![[r#"{"code":"Sentinel.Proxy.SentinelTimeout","detail":"the deployment did not answer in time","requestId":"req-1","status":504,"title":"Gateway Timeout","type":"about:blank"}"#]]
            .assert_eq(std::str::from_utf8(&problem).unwrap());
    }
}
