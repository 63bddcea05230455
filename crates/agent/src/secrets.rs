//! Who opens what is sealed: the vault, as the loop sees it.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use model::{
    id::EnvironmentId,
    name::EnvName,
    secret::{Plain, Sealed},
};

/// An environment's variables, opened.
pub type Variables = BTreeMap<EnvName, Plain>;

/// Opens the variables of an environment. It is asked once for each sealed text, not each time its objects are made.
pub trait Secrets: Send + Sync + 'static {
    fn open<'a>(
        &'a self,
        environment: EnvironmentId,
        sealed: &'a Sealed,
    ) -> BoxFuture<'a, Result<Variables, SecretsError>>;
}

/// Why they stay sealed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    #[error("it has variables, and this agent was given no vault that could open them")]
    NoVault,
    #[error("the vault does not open its variables: {0}")]
    Refused(String),
    #[error("the vault does not answer: {0}")]
    Unavailable(String),
}

/// An agent without a vault: what has no variables runs, and nothing else.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoVault;

impl Secrets for NoVault {
    fn open<'a>(
        &'a self,
        _environment: EnvironmentId,
        _sealed: &'a Sealed,
    ) -> BoxFuture<'a, Result<Variables, SecretsError>> {
        Box::pin(std::future::ready(Err(SecretsError::NoVault)))
    }
}
