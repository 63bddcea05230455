//! Somebody who opens what is sealed, for as long as there is no vault: the values are what they are sealed as.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use agent::secrets::{Secrets, SecretsError, Variables};
use futures_util::future::BoxFuture;
use model::{
    id::EnvironmentId,
    secret::{Plain, Sealed},
};
use serde_json::Value;

/// Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Opener(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_away: AtomicBool,
    opened: AtomicUsize,
}

/// What `{"secrets":{"NAME":"value"}}` is opened.
pub fn opened(sealed: &Sealed) -> Variables {
    let text: Value = serde_json::from_slice(sealed.as_bytes()).expect("it is JSON");
    let secrets = text["secrets"].as_object().expect("it has secrets");
    let plain = |value: &Value| Plain::new(value.as_str().expect("a text"));
    secrets.iter().map(|(name, value)| (name.parse().expect("a name"), plain(value))).collect()
}

impl Opener {
    /// From now on it answers, or it does not.
    pub fn go_away(&self, is_away: bool) {
        self.0.is_away.store(is_away, Ordering::SeqCst);
    }

    /// How often it opened anything.
    pub fn opened(&self) -> usize {
        self.0.opened.load(Ordering::SeqCst)
    }
}

impl Secrets for Opener {
    fn open<'a>(
        &'a self,
        _environment: EnvironmentId,
        sealed: &'a Sealed,
    ) -> BoxFuture<'a, Result<Variables, SecretsError>> {
        Box::pin(async move {
            if self.0.is_away.load(Ordering::SeqCst) {
                return Err(SecretsError::Unavailable("it is away".to_owned()));
            }
            self.0.opened.fetch_add(1, Ordering::SeqCst);
            Ok(opened(sealed))
        })
    }
}
