//! Credentials that are derived rather than stored: an HMAC over what they are for, with a key that all replicas
//! of a control plane share.
//!
//! ```text
//! HMAC-SHA256( key,  kind ‖ 0x00 ‖ id ‖ 0x00 ‖ generation as 4 bytes big-endian )
//! ```
//!
//! Neither a kind nor an id can hold a zero byte, so no two subjects share their bytes.

use std::fmt;

use aws_lc_rs::hmac;
use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use model::{
    id::{EnvironmentId, SentinelId},
    invalid::{Invalid, Problems},
    name::LabelValue,
    sentinel::Generation,
};
use runtime::{config::SecretString, random::Random};

use super::{Bearer, Credentials, SentinelToken};

/// The bytes that a key has at least: as many as its HMAC gives.
const KEY_BYTES_MIN: usize = 32;

/// More than this was given by mistake.
const KEY_BYTES_MAX: usize = 1024;

/// Padding is often lost when a key is copied, and says nothing.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64: [GeneralPurpose; 2] =
    [GeneralPurpose::new(&alphabet::STANDARD, LENIENT), GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT)];

/// The keys that credentials are derived with, by their ids; the first is the one new ones are made with.
#[derive(Clone)]
pub struct CredentialKeys(Vec<(LabelValue, hmac::Key)>);

/// What a derived credential is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Sentinel(SentinelId),
    Gossip(EnvironmentId),
}

impl CredentialKeys {
    /// The keys of the settings: each at least 32 bytes, in hex or in base64. A text that is both is hex.
    pub fn parse(keys: Vec<(LabelValue, SecretString)>) -> Result<CredentialKeys, Invalid> {
        let mut problems = Problems::new();
        problems.require(!keys.is_empty(), "credential_key", "at least one is needed");
        let mut parsed: Vec<(LabelValue, Vec<u8>)> = Vec::new();
        for (id, secret) in keys {
            let mut problem = problems.field(&format!("credential_key.{id}"));
            let Some(bytes) = problem.keep(decode(secret.expose())) else { continue };
            problem.require(parsed.iter().all(|(other, _)| *other != id), "there are two keys of this id");
            let twin = parsed.iter().find(|(_, other)| *other == bytes);
            if let Some((twin, _)) = twin.filter(|(other, _)| *other != id) {
                problem.add(format_args!("it is the same key as {twin}"));
            }
            parsed.push((id, bytes));
        }
        problems.finish(())?;
        let key = |bytes: Vec<u8>| hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        Ok(CredentialKeys(parsed.into_iter().map(|(id, bytes)| (id, key(bytes))).collect()))
    }

    /// A new key as the settings have it.
    pub fn generate(random: &Random) -> SecretString {
        let digits = |byte: u8| {
            [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        };
        SecretString::new(random.bytes::<32>().into_iter().flat_map(digits).collect::<String>())
    }

    /// The id of the key that new credentials are made with.
    pub fn newest(&self) -> &LabelValue {
        &self.0[0].0
    }

    /// What the sentinels of this row are given; `None` if the key is not loaded.
    pub fn credentials(
        &self,
        sentinel: SentinelId,
        environment: EnvironmentId,
        key: &LabelValue,
        credential: Generation,
        gossip: Generation,
    ) -> Option<Credentials> {
        let secret = self.get(key)?;
        let mac = derive(secret, Subject::Sentinel(sentinel), credential);
        let token = SentinelToken { sentinel, key: key.clone(), generation: credential, mac };
        let generations = [Some(gossip), gossip.previous()].into_iter().flatten();
        let gossip_key = |generation| derive(secret, Subject::Gossip(environment), generation);
        Some(Credentials { token: Bearer::of(&token), gossip_keys: generations.map(gossip_key).collect() })
    }

    /// Whether the mac is ours, compared in constant time.
    pub fn verify(&self, token: &SentinelToken) -> bool {
        let Some(key) = self.get(&token.key) else { return false };
        let bytes = Subject::Sentinel(token.sentinel).bytes(token.generation);
        hmac::verify(key, &bytes, &token.mac).is_ok()
    }

    fn get(&self, id: &LabelValue) -> Option<&hmac::Key> {
        self.0.iter().find(|(known, _)| known == id).map(|(_, key)| key)
    }
}

impl fmt::Debug for CredentialKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.0.iter().map(|(id, _)| id.as_str());
        f.write_str("CredentialKeys")?;
        f.debug_list().entries(ids).finish()
    }
}

impl Subject {
    /// What is signed.
    pub(super) fn bytes(self, generation: Generation) -> Vec<u8> {
        let (kind, id) = match self {
            Subject::Sentinel(id) => ("sentinel", id.to_string()),
            Subject::Gossip(id) => ("gossip", id.to_string()),
        };
        [kind.as_bytes(), &[0], id.as_bytes(), &[0], &generation.0.to_be_bytes()].concat()
    }
}

fn derive(key: &hmac::Key, subject: Subject, generation: Generation) -> [u8; 32] {
    let tag = hmac::sign(key, &subject.bytes(generation));
    tag.as_ref().try_into().expect("HMAC-SHA256 gives 32 bytes")
}

/// A key's bytes. What is wrong is said without a single character of it.
fn decode(text: &str) -> Result<Vec<u8>, String> {
    let bytes = hex(text)
        .or_else(|| BASE64.iter().find_map(|engine| engine.decode(text).ok()))
        .ok_or("a key is written in hex or in base64")?;
    let length = bytes.len();
    if (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&length) {
        Ok(bytes)
    } else {
        Err(format!("a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, this one has {length}"))
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}
