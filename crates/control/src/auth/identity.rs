//! Whom a token stands for. What a request claims is believed only as far as its token reaches.

use std::fmt;

use connectrpc::ConnectError;
use model::{
    id::{EnvironmentId, SentinelId, TokenId},
    name::{Line, Placement},
    token::{Reach, Role},
};
use tokio_util::sync::CancellationToken;
use wire::request::Caller;

use super::{Gate, permission::Who};

/// Who sent a request; every request that is let in carries it as an extension.
#[derive(Clone)]
pub struct Identity {
    gate: Gate,
    bearer: Bearer,
    end: CancellationToken,
}

/// What the bearer of a good token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bearer {
    Agent { token: TokenId, placement: Placement },
    User { token: TokenId, role: Role, reach: Reach },
    Sentinel { id: SentinelId, environment: EnvironmentId, placement: Placement },
}

/// An agent that may speak for its place.
#[derive(Clone)]
pub struct Agent {
    placement: Placement,
    instance: Option<Line>,
    token: TokenId,
    end: CancellationToken,
}

/// A sentinel that may ask about its environment in its place.
#[derive(Clone)]
pub struct SentinelCaller {
    id: SentinelId,
    environment: EnvironmentId,
    placement: Placement,
    end: CancellationToken,
}

/// A person or a script, with what their token opens.
#[derive(Debug, Clone)]
pub struct User {
    token: TokenId,
    role: Role,
    reach: Reach,
    end: CancellationToken,
}

impl Identity {
    pub(super) fn new(gate: Gate, bearer: Bearer, end: CancellationToken) -> Self {
        Self { gate, bearer, end }
    }

    /// The agent that the caller says it is, if its token says so too.
    pub fn agent_at(&self, caller: &Caller) -> Result<Agent, ConnectError> {
        let Bearer::Agent { token, placement } = &self.bearer else {
            return Err(ConnectError::permission_denied("this token is not an agent's"));
        };
        if *placement != caller.placement {
            let reason = format!("this token does not open {}", caller.placement);
            return Err(ConnectError::permission_denied(reason));
        }
        self.known(placement)?;
        let (placement, instance) = (placement.clone(), caller.instance.clone());
        Ok(Agent { placement, instance, token: *token, end: self.end.clone() })
    }

    /// The sentinel of that environment, if the token is of one.
    pub fn sentinel_of(
        &self,
        caller: &Caller,
        environment: EnvironmentId,
    ) -> Result<SentinelCaller, ConnectError> {
        let Bearer::Sentinel { id, environment: own, placement } = &self.bearer else {
            return Err(ConnectError::permission_denied("this token is not a sentinel's"));
        };
        if *placement != caller.placement {
            let reason = format!("this token does not open {}", caller.placement);
            return Err(ConnectError::permission_denied(reason));
        }
        if *own != environment {
            return Err(ConnectError::permission_denied(format!("this token does not open {environment}")));
        }
        self.known(placement)?;
        let (placement, end) = (placement.clone(), self.end.clone());
        Ok(SentinelCaller { id: *id, environment, placement, end })
    }

    /// The user, if the token is one's.
    pub fn user(&self) -> Option<User> {
        match self.bearer {
            Bearer::User { token, role, reach } => Some(User { token, role, reach, end: self.end.clone() }),
            Bearer::Agent { .. } | Bearer::Sentinel { .. } => None,
        }
    }

    /// Resolves when the token is revoked, expires, or is replaced for so long that it no longer counts.
    pub async fn ended(&self) {
        self.end.cancelled().await;
    }

    pub(super) fn is(&self, who: Who) -> bool {
        match self.bearer {
            Bearer::Agent { .. } => who == Who::Agent,
            Bearer::User { .. } => who == Who::User,
            Bearer::Sentinel { .. } => who == Who::Sentinel,
        }
    }

    /// `failed_precondition`, never `not_found`: there are agents that delete what is not found.
    fn known(&self, placement: &Placement) -> Result<(), ConnectError> {
        if self.gate.knows(placement) {
            return Ok(());
        }
        Err(ConnectError::failed_precondition(format!("{placement} is not a place that we know")))
    }
}

impl Agent {
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Which of the place's agents it is, if it says so.
    pub fn instance(&self) -> Option<&Line> {
        self.instance.as_ref()
    }

    /// Whether it knows none of our additions.
    pub fn is_foreign(&self) -> bool {
        self.instance.is_none()
    }

    pub fn token(&self) -> TokenId {
        self.token
    }

    /// Cancelled when its token no longer counts.
    pub fn end(&self) -> CancellationToken {
        self.end.clone()
    }
}

impl User {
    pub fn token(&self) -> TokenId {
        self.token
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Cancelled when the token no longer counts.
    pub fn end(&self) -> CancellationToken {
        self.end.clone()
    }
}

impl SentinelCaller {
    pub fn id(&self) -> SentinelId {
        self.id
    }

    pub fn environment(&self) -> EnvironmentId {
        self.environment
    }

    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Cancelled when its credential no longer counts.
    pub fn end(&self) -> CancellationToken {
        self.end.clone()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bearer.fmt(out)
    }
}
