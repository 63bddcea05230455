//! Answers that were given: a request that is made again under its key is answered again, and done once.

use model::{id::TokenId, time::Millis};

use crate::{Error, Result, Store, Value, Write, value::text};

/// A request that must be done once, by what it is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnceKey {
    pub token: TokenId,
    pub key: String,
    pub method: &'static str,
    pub path: String,
    /// A hash over method, path and body.
    pub hash: [u8; 32],
    pub expires_at: Millis,
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Once {
    /// Nobody has used it: it is ours until the commit.
    New,
    /// The same request was answered so.
    Answered(Vec<u8>),
    /// Another request was made under it.
    Other,
}

/// Of two at once the second waits here until the first has committed or is gone. One that has expired is nobody's.
const CLAIM: &str = "
  INSERT INTO idempotency_keys (token_id, key, method, path, body_hash, state, answer, expires_at)
  VALUES ($1, $2, $3, $4, $5, 'running', NULL, $6)
  ON CONFLICT (token_id, key) DO UPDATE SET method = excluded.method, path = excluded.path,
    body_hash = excluded.body_hash, state = excluded.state, answer = NULL, expires_at = excluded.expires_at
  WHERE idempotency_keys.expires_at <= $7
  RETURNING 1";

const FIND: &str = "
  SELECT body_hash, answer FROM idempotency_keys WHERE token_id = $1 AND key = $2";

const ANSWER: &str = "
  UPDATE idempotency_keys SET state = 'answered', answer = $3 WHERE token_id = $1 AND key = $2";

const PRUNE: &str = "
  DELETE FROM idempotency_keys WHERE (token_id, key) IN (
    SELECT token_id, key FROM idempotency_keys WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)
  RETURNING 1";

impl Store {
    /// Forgets answers that have expired, so many at a time; says how many.
    pub async fn prune_once_keys(&self, now: Millis, limit: u32) -> Result<usize> {
        self.retry(async || {
            let mut write = self.begin().await?;
            let pruned = write.run(PRUNE, vec![now.0.into(), limit.into()]).await?.len();
            write.commit().await?;
            Ok(pruned)
        })
        .await
    }
}

impl Write {
    /// Takes a key for this write, or says how the request was answered before.
    pub async fn claim_once(&mut self, once: &OnceKey, now: Millis) -> Result<Once> {
        let params = vec![
            text(&once.token),
            once.key.as_str().into(),
            once.method.into(),
            once.path.as_str().into(),
            once.hash.as_slice().into(),
            once.expires_at.0.into(),
            now.0.into(),
        ];
        if !self.run(CLAIM, params).await?.is_empty() {
            return Ok(Once::New);
        }
        let rows = self.run(FIND, vec![text(&once.token), once.key.as_str().into()]).await?;
        let Some(row) = rows.first() else {
            return Err(Error::Busy("the key of a request was given back just now".to_owned()));
        };
        let mut cells = row.cells();
        let (hash, answer): (Vec<u8>, Option<Vec<u8>>) = (cells.take()?, cells.take()?);
        if hash != once.hash {
            return Ok(Once::Other);
        }
        answer.map(Once::Answered).ok_or_else(|| Error::broken("a request was committed without its answer"))
    }

    /// Keeps the answer of the request whose key this write holds.
    pub async fn answer_once(&mut self, once: &OnceKey, answer: Vec<u8>) -> Result<()> {
        let params = vec![text(&once.token), once.key.as_str().into(), Value::Bytes(answer)];
        self.run(ANSWER, params).await.map(drop)
    }
}
