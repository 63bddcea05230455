//! Who is calling: tokens as text, their hashes, and the credentials that are derived rather than stored.
//!
//! ```text
//! krane_user_<52>    krane_agent_<52>                              256 random bits; the store has their SHA-256
//! krane_sentinel_<sentinel id>.<key id>.<generation>.<52>          an HMAC; nobody stores it
//! ```
//!
//! `<52>` is 256 bits in lower-case base32, most significant first, in the alphabet of our ids. Whatever is
//! not spelt exactly so is no token of ours.

mod base32;
mod derived;

use std::{fmt, sync::Arc};

use aws_lc_rs::digest;
use model::{
    id::SentinelId,
    name::LabelValue,
    sentinel::Generation,
    token::{TokenHash, TokenKind},
};
use runtime::random::Random;

pub use self::derived::CredentialKeys;

/// What every token of ours starts with.
const PREFIX: &str = "krane_";
const SENTINEL: &str = "sentinel_";

/// Longer than any token: a text beyond it is not looked at.
const CHARS_MAX: usize = 256;

/// What a bearer presents. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer(Arc<str>);

/// What a bearer's text turned out to be; whether it is good is the store's to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presented {
    Stored { kind: TokenKind, hash: TokenHash },
    Sentinel(SentinelToken),
}

/// `krane_sentinel_<sentinel id>.<key id>.<generation>.<mac>`, taken apart; not yet verified.
#[derive(Clone, PartialEq, Eq)]
pub struct SentinelToken {
    pub sentinel: SentinelId,
    pub key: LabelValue,
    pub generation: Generation,
    mac: [u8; 32],
}

/// What an agent hands to an environment's sentinels.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub token: Bearer,
    /// Newest first.
    pub gossip_keys: Vec<[u8; 32]>,
}

impl Bearer {
    /// The token of an `Authorization` header's value, if it has the form of one of ours.
    pub fn from_header(value: &str) -> Option<Bearer> {
        let (scheme, token) = value.split_once(' ')?;
        // Of a scheme, RFC 9110 says that its case means nothing and that spaces may follow it.
        scheme.eq_ignore_ascii_case("bearer").then(|| Bearer::parse(token.trim_matches(' ')))?
    }

    /// A new token of this kind: 256 random bits.
    pub fn generate(kind: TokenKind, random: &Random) -> Bearer {
        Bearer(format!("{PREFIX}{kind}_{}", base32::write(&random.bytes())).into())
    }

    pub fn parse(text: &str) -> Option<Bearer> {
        present(text).map(|_| Bearer(text.into()))
    }

    pub fn presented(&self) -> Option<Presented> {
        present(&self.0)
    }

    /// The token itself, to be shown to its owner once or sent as a header.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn of(token: &SentinelToken) -> Bearer {
        let SentinelToken { sentinel, key, generation, mac } = token;
        let mac = base32::write(mac);
        Bearer(format!("{PREFIX}{SENTINEL}{sentinel}.{key}.{}.{mac}", generation.0).into())
    }
}

fn present(text: &str) -> Option<Presented> {
    let rest = text.strip_prefix(PREFIX).filter(|_| text.len() <= CHARS_MAX)?;
    if let Some(rest) = rest.strip_prefix(SENTINEL) {
        return SentinelToken::read(rest).map(Presented::Sentinel);
    }
    let (kind, secret) = rest.split_once('_')?;
    let kind = kind.parse().ok()?;
    base32::read(secret)?;
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    let hash = hash.as_ref().try_into().expect("SHA-256 is 32 bytes");
    Some(Presented::Stored { kind, hash: TokenHash(hash) })
}

impl SentinelToken {
    /// A key's id may have dots; what stands around it has none.
    fn read(text: &str) -> Option<SentinelToken> {
        let (sentinel, rest) = text.split_once('.')?;
        let (rest, mac) = rest.rsplit_once('.')?;
        let (key, generation) = rest.rsplit_once('.')?;
        Some(SentinelToken {
            sentinel: sentinel.parse().ok()?,
            key: key.parse().ok()?,
            generation: read_generation(generation)?,
            mac: base32::read(mac)?,
        })
    }
}

/// A number as we write it: `+1` and `01` are other spellings of it.
fn read_generation(text: &str) -> Option<Generation> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(Generation(number))
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

impl fmt::Debug for SentinelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelToken").field("sentinel", &self.sentinel).finish_non_exhaustive()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

#[cfg(test)]
mod tests;
