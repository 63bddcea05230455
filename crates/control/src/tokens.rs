//! Tokens, as an operator handles them: made, listed, rotated, revoked, in the store itself.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use model::{
    id::TokenId,
    name::Line,
    time::Millis,
    token::{Reach, Role, Scope, Token, TokenKind},
};
use runtime::{clock::Clock, random::Random};
use store::{Store, Write};
use wire::auth::{Bearer, Presented};

use crate::{
    event::{Draft, Events},
    files::{self, FileError},
};

/// How many are read at a time.
const PAGE: u32 = 1000;

/// The tokens of a store.
#[derive(Clone)]
pub struct Tokens {
    store: Store,
    clock: Clock,
    random: Random,
    events: Events,
}

/// What a token shall open, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    pub name: Line,
    pub scope: Scope,
    /// Without it, it is good until it is revoked.
    pub expires_in: Option<Duration>,
}

/// A token that was just made, with what its bearer presents: it is shown now, and never again.
#[derive(Debug)]
pub struct Created {
    pub token: Token,
    pub bearer: Bearer,
}

/// Why a token could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("the store does not take it")]
    Store(#[source] store::Error),
    #[error("there is no token {0}")]
    Unknown(TokenId),
    #[error("the token {0} has expired or was revoked: make a new one")]
    Ended(TokenId),
    #[error("the first token cannot be kept")]
    File(#[source] FileError),
}

impl Tokens {
    pub fn new(store: &Store, clock: &Clock, random: &Random) -> Self {
        let events = Events::new(clock, random);
        Self { store: store.clone(), clock: clock.clone(), random: random.clone(), events }
    }

    /// Makes a token. The first one for a place makes the place, in the same write.
    pub async fn create(&self, new: NewToken) -> Result<Created, TokenError> {
        let created = self.draw(new);
        self.write(&created.token).await?;
        Ok(created)
    }

    /// Every token there is, the ended ones too.
    pub async fn list(&self) -> Result<Vec<Token>, TokenError> {
        let mut tokens: Vec<Token> = Vec::new();
        loop {
            let after = tokens.last().map(|token| token.id);
            let page = self.store.tokens(after, PAGE).await.map_err(TokenError::Store)?;
            let is_last = page.len() < PAGE as usize;
            tokens.extend(page);
            if is_last {
                return Ok(tokens);
            }
        }
    }

    /// Makes a successor that opens the same for as long, and lets the old one end after the overlap.
    pub async fn rotate(&self, id: TokenId, overlap: Duration) -> Result<Created, TokenError> {
        let old = self.get(id).await?;
        if !old.is_good(self.now()) {
            return Err(TokenError::Ended(id));
        }
        let created = self.successor(&old);
        let draft = self.events.draft();
        let rotated = self.store.retry(async || {
            let mut write = self.store.begin().await?;
            write.rotate_token(id, &created.token, overlap, &draft.cause()).await?;
            write.put_event(&draft.token_created(&created.token)).await?;
            write.commit().await
        });
        match rotated.await {
            Ok(_) => Ok(created),
            // It was revoked just now.
            Err(store::Error::Conflict(_)) => Err(TokenError::Ended(id)),
            Err(error) => Err(TokenError::Store(error)),
        }
    }

    /// Ends a token now; says whether it had not ended before.
    pub async fn revoke(&self, id: TokenId) -> Result<bool, TokenError> {
        let token = self.get(id).await?;
        let draft = self.events.draft();
        let revoked = self.store.retry(async || {
            let mut write = self.store.begin().await?;
            let revoked = write.revoke_token(id, draft.at(), &draft.cause()).await?;
            if revoked {
                write.put_event(&draft.token_revoked(&token)).await?;
            }
            write.commit().await?;
            Ok(revoked)
        });
        revoked.await.map_err(TokenError::Store)
    }

    /// Makes an admin's token if no user has one, and keeps it in a file that only we can read.
    ///
    /// The file comes first: a token that is in the store and nowhere else would be nobody's.
    pub async fn first(&self, directory: &Path) -> Result<Option<PathBuf>, TokenError> {
        if self.store.has_tokens().await.map_err(TokenError::Store)? {
            return Ok(None);
        }
        let scope = Scope::User { role: Role::Admin, reach: Reach::All };
        let name = "first admin".parse().expect("two words are a line");
        let created = self.draw(NewToken { name, scope, expires_in: None });
        let path = directory.join("admin.token");
        files::write_private(&path, created.bearer.reveal()).map_err(TokenError::File)?;
        self.write(&created.token).await?;
        Ok(Some(path))
    }

    async fn get(&self, id: TokenId) -> Result<Token, TokenError> {
        match self.store.token(id).await {
            Ok(token) => Ok(token),
            Err(store::Error::NotFound(_)) => Err(TokenError::Unknown(id)),
            Err(error) => Err(TokenError::Store(error)),
        }
    }

    /// A successor of a token, which opens the same for as long.
    pub(crate) fn successor(&self, old: &Token) -> Created {
        let life = old.expires_at.map(|at| at.0.saturating_sub(old.created_at.0));
        let expires_in = life.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
        self.draw(NewToken { name: old.name.clone(), scope: old.scope.clone(), expires_in })
    }

    /// A token that is nowhere yet.
    pub(crate) fn draw(&self, new: NewToken) -> Created {
        let now = self.now();
        let kind = match new.scope {
            Scope::User { .. } => TokenKind::User,
            Scope::Agent { .. } => TokenKind::Agent,
        };
        let bearer = Bearer::generate(kind, &self.random);
        let Some(Presented::Stored { hash, .. }) = bearer.presented() else {
            unreachable!("a token that was just made is one")
        };
        let token = Token {
            id: TokenId::new(u64::try_from(now.0).unwrap_or_default(), self.random.bytes()),
            name: new.name,
            hash,
            scope: new.scope,
            created_at: now,
            expires_at: new.expires_in.map(|life| later(now, life)),
            revoked_at: None,
            last_used_at: None,
        };
        Created { token, bearer }
    }

    async fn write(&self, token: &Token) -> Result<(), TokenError> {
        let draft = self.events.draft();
        let written = self.store.retry(async || {
            let mut write = self.store.begin().await?;
            Tokens::put(&mut write, &draft, token).await?;
            write.commit().await
        });
        written.await.map(drop).map_err(TokenError::Store)
    }

    /// Stores a new token, and the place that it is for, in the caller's write.
    pub(crate) async fn put(write: &mut Write, draft: &Draft, token: &Token) -> store::Result<()> {
        let cause = draft.cause();
        if let Scope::Agent { placement } = &token.scope {
            // One that an operator has closed to new things stays closed.
            if !write.regions().await?.iter().any(|region| region.key == placement.region) {
                write.put_region(&placement.region, true, draft.at()).await?;
            }
            write.put_cluster(placement, &cause).await?;
        }
        write.put_token(token, &cause).await?;
        write.put_event(&draft.token_created(token)).await.map(drop)
    }

    fn now(&self) -> Millis {
        Millis(self.clock.now().millis())
    }
}

fn later(now: Millis, by: Duration) -> Millis {
    Millis(now.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
}
