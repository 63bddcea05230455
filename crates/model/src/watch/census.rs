//! Count and digest of a stream's live objects: two sides in step learn it without sending any.

use sha2::{Digest as _, Sha256};

use super::{Key, Version};

/// How many objects live, and the wrapping sum of their hashes, so that order does not matter
/// and one change costs one hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    pub count: u64,
    pub digest: u64,
}

impl Census {
    pub fn add(&mut self, key: &Key, version: Version) {
        self.count += 1;
        self.digest = self.digest.wrapping_add(hash(key, version));
    }

    pub fn remove(&mut self, key: &Key, version: Version) {
        self.count -= 1;
        self.digest = self.digest.wrapping_sub(hash(key, version));
    }

    /// The census of two disjoint sets of objects together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, digest: self.digest.wrapping_add(other.digest) }
    }

    /// The census of what is left without a part of it.
    #[must_use]
    pub fn without(self, part: Self) -> Self {
        Self { count: self.count - part.count, digest: self.digest.wrapping_sub(part.digest) }
    }
}

/// The first 8 bytes, little-endian, of SHA-256(id, 0x00, version as 8 bytes big-endian).
fn hash(key: &Key, version: Version) -> u64 {
    let hash = Sha256::new()
        .chain_update(key.as_str().as_bytes())
        .chain_update([0])
        .chain_update(version.get().to_be_bytes())
        .finalize();
    let (first, _) = hash.split_first_chunk::<8>().expect("SHA-256 is 32 bytes");
    u64::from_le_bytes(*first)
}
