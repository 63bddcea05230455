//! `Idempotency-Key`: what makes a request that is sent twice one request.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderName, Method};
use model::{id::TokenId, time::Millis};
use sha2::{Digest as _, Sha256};
use store::OnceKey;

use super::super::{
    call::Call,
    problem::{Code, Problem},
};

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// How long an answer is kept.
const KEPT: Duration = Duration::from_hours(24);

/// Longer ones are refused.
const CHARS_MAX: usize = 128;

/// The keys whose requests are being done in this process.
#[derive(Clone, Default)]
pub(crate) struct Running(Arc<Mutex<BTreeSet<(TokenId, String)>>>);

/// A request that is being done, until this is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    running: Arc<Mutex<BTreeSet<(TokenId, String)>>>,
    key: (TokenId, String),
}

impl Running {
    pub(super) fn begin(&self, key: &OnceKey) -> Result<Guard, Problem> {
        let key = (key.token, key.key.clone());
        if !self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone()) {
            let detail = "a request with this Idempotency-Key has no answer yet";
            return Err(Problem::new(Code::InProgress, detail).after(1));
        }
        Ok(Guard { running: self.0.clone(), key })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl Call {
    /// The key that a POST brings, with what it must be the key of.
    pub(super) fn once_key(&self) -> Result<Option<OnceKey>, Problem> {
        let Some(value) = self.headers.get(HEADER).filter(|_| self.route.method == Method::POST) else {
            return Ok(None);
        };
        let is_word = |text: &&str| {
            !text.is_empty() && text.len() <= CHARS_MAX && text.bytes().all(|b| b.is_ascii_graphic())
        };
        let Some(key) = value.to_str().ok().filter(is_word) else {
            let detail =
                format!("an Idempotency-Key has 1 to {CHARS_MAX} printable ASCII characters, no spaces");
            return Err(Problem::new(Code::Malformed, detail));
        };
        let expires_at = self.now().0.saturating_add(i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX));
        Ok(Some(OnceKey {
            token: self.user().token(),
            key: key.to_owned(),
            method: "POST",
            path: self.path.clone(),
            hash: hash("POST", &self.path, &self.body),
            expires_at: Millis(expires_at),
        }))
    }
}

pub(super) fn reused() -> Problem {
    Problem::new(Code::KeyReused, "this Idempotency-Key was used for another method, path or body")
}

/// Lengths keep apart what could be read as the other.
fn hash(method: &str, path: &str, body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [method.as_bytes(), path.as_bytes(), body] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_method_path_and_body_apart() {
        assert_ne!(hash("POST", "/a", b"b"), hash("POST", "/ab", b""));
        assert_eq!(hash("POST", "/a", b"b"), hash("POST", "/a", b"b"));
    }
}
