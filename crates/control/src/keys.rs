//! The keys that credentials are derived with: from the settings, or for SQLite from a file of our own.

use model::{invalid::Invalid, name::LabelValue};
use runtime::{config::SecretString, random::Random};
use wire::auth::CredentialKeys;

use crate::{
    config::{ControlConfig, CredentialKeyConfig},
    files::{self, FileError},
};

/// What a key of our own making is called.
const OWN: &str = "own";

/// Why there is nothing to derive credentials with.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the credential keys cannot be used: {0}")]
    Invalid(Invalid),
    #[error("PostgreSQL needs a credential_key in the settings: replicas must derive the same credentials")]
    Missing,
    #[error("the credential key cannot be kept")]
    File(#[source] FileError),
}

/// Those of the settings; else the one in `credential.key` beside the SQLite file, which is made if need be.
pub(crate) fn load(config: &ControlConfig, random: &Random) -> Result<CredentialKeys, KeyError> {
    let named = |CredentialKeyConfig { id, secret }: &CredentialKeyConfig| {
        let id: LabelValue = id.parse().expect("validation has read it");
        (id, secret.clone())
    };
    let mut keys: Vec<_> = config.credential_key.iter().map(named).collect();
    if keys.is_empty() {
        let database = config.database().ok_or(KeyError::Missing)?;
        let path = database.with_file_name("credential.key");
        let kept = files::read_private(&path).map_err(KeyError::File)?;
        let secret = if let Some(text) = kept {
            SecretString::new(text)
        } else {
            let secret = CredentialKeys::generate(random);
            files::write_private(&path, secret.expose()).map_err(KeyError::File)?;
            secret
        };
        keys.push((OWN.parse().expect("a word is a label"), secret));
    }
    CredentialKeys::parse(keys).map_err(KeyError::Invalid)
}
