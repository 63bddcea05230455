//! Secrets: sealed, which may be stored and sent, and plain, which may not be seen.

use std::{fmt, sync::Arc};

/// Bytes that only a vault can open. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Sealed(Arc<[u8]>);

/// An opened secret. It can be neither printed nor compared nor copied, only used.
pub struct Plain(Vec<u8>);

impl Sealed {
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Sealed {
        Sealed(bytes.into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

impl Plain {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Plain {
        Plain(bytes.into())
    }

    /// The secret itself. Whoever calls this answers for where it goes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(…)")
    }
}

impl Drop for Plain {
    /// Overwrites the bytes. The compiler may leave this out; keys that must be gone are the vault's own type.
    fn drop(&mut self) {
        self.0.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_printed() {
        assert_eq!(format!("{:?}", Plain::new("hunter2")), "Plain(…)");
        assert_eq!(format!("{:?}", Sealed::new(*b"hunter2")), "Sealed(7 bytes)");
        assert_eq!(Plain::new("hunter2").expose(), b"hunter2");
    }
}
