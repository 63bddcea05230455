//! Who may call: tokens, kept as a hash, and what each of them opens.

use crate::{
    choice::choice,
    id::{TokenId, WorkspaceId},
    name::{Line, Placement},
    time::Millis,
};
use std::fmt;

/// A token as it is stored. What its bearer holds is nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: TokenId,
    pub name: Line,
    pub hash: TokenHash,
    pub scope: Scope,
    pub created_at: Millis,
    /// Without it, it is good until it is revoked.
    pub expires_at: Option<Millis>,
    pub revoked_at: Option<Millis>,
    pub last_used_at: Option<Millis>,
}

/// What a token opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// A person or a script, through the API.
    User { role: Role, reach: Reach },
    /// The agents of one place.
    Agent { placement: Placement },
}

/// Where a role counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    Workspace(WorkspaceId),
    /// Every workspace, and what belongs to none: regions, clusters, agent tokens.
    All,
}

choice! {
    /// What the bearer is; also how the token's text begins, between `krane_` and `_`.
    "a kind of token" TokenKind {
        User = "user",
        Agent = "agent",
    }
}

choice! {
    /// What a user may do.
    "a role" Role {
        Admin = "admin",
        Deploy = "deploy",
        Read = "read",
    }
}

/// SHA-256 of a token's text. It is not printed: a log that holds it could be searched for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash(pub [u8; 32]);

impl Token {
    pub fn kind(&self) -> TokenKind {
        match self.scope {
            Scope::User { .. } => TokenKind::User,
            Scope::Agent { .. } => TokenKind::Agent,
        }
    }

    /// Whether it opens anything at this time.
    pub fn is_good(&self, now: Millis) -> bool {
        self.revoked_at.is_none_or(|revoked_at| now < revoked_at)
            && self.expires_at.is_none_or(|expires_at| now < expires_at)
    }

    /// When it stops opening anything, if that is known.
    pub fn ends_at(&self) -> Option<Millis> {
        self.revoked_at.into_iter().chain(self.expires_at).min()
    }
}

impl Reach {
    pub fn covers(self, workspace: WorkspaceId) -> bool {
        match self {
            Reach::Workspace(own) => own == workspace,
            Reach::All => true,
        }
    }
}

impl TokenHash {
    /// Whether both are the same, in a time that does not tell where they differ.
    pub fn matches(&self, other: &TokenHash) -> bool {
        let difference = self.0.iter().zip(other.0).fold(0, |bits, (a, b)| bits | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

#[cfg(any(test, feature = "sample"))]
impl Token {
    /// An admin's token for everything, which does not expire.
    pub fn sample() -> Token {
        Token {
            id: TokenId::sample(1),
            name: "sample".parse().expect("a line"),
            hash: TokenHash([7; 32]),
            scope: Scope::User { role: Role::Admin, reach: Reach::All },
            created_at: Millis(1_700_000_000_000),
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
        }
    }

    #[must_use]
    pub fn with_scope(self, scope: Scope) -> Token {
        Token { scope, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_ends_when_it_expires_or_is_revoked() {
        let token = Token { expires_at: Some(Millis(100)), ..Token::sample() };
        assert!(token.is_good(Millis(99)) && !token.is_good(Millis(100)));
        let revoked = Token { revoked_at: Some(Millis(50)), ..token };
        assert!(revoked.is_good(Millis(49)) && !revoked.is_good(Millis(50)));
        assert_eq!(revoked.ends_at(), Some(Millis(50)));
        assert!(Token::sample().is_good(Millis(i64::MAX)));
        assert_eq!(Token::sample().ends_at(), None);
    }

    #[test]
    fn a_token_for_one_workspace_opens_no_other() {
        let [one, two] = [1, 2].map(WorkspaceId::sample);
        assert!(Reach::Workspace(one).covers(one) && !Reach::Workspace(one).covers(two));
        assert!(Reach::All.covers(one) && Reach::All.covers(two));
    }

    #[test]
    fn a_hash_is_not_printed() {
        assert!(!format!("{:?}", Token::sample()).contains('7'.to_string().repeat(2).as_str()));
        assert_eq!(format!("{:?}", TokenHash([7; 32])), "TokenHash(…)");
    }

    proptest! {
        #[test]
        fn matching_is_being_equal(a: [u8; 32], position in 0_usize..32, change: u8) {
            let mut b = a;
            b[position] ^= change;
            prop_assert_eq!(TokenHash(a).matches(&TokenHash(b)), change == 0);
        }
    }
}
