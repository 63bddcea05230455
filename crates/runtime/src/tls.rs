//! TLS from files: a server's certificate that is renewed without a restart, and whom a client trusts.
//!
//! ```text
//!   certificate, key ──▶ pair ──▶ ServerTls ──▶ every new connection
//!         ▲                          │
//!         └──── looked at again ◀────┘
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

mod client;
mod file;
mod server;
#[cfg(test)]
pub(crate) mod tests;

pub use client::{ClientTls, Roots, client_config};
pub use server::ServerTls;

/// HTTP/2 as the two sides of a handshake name it.
const H2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// A file that TLS needs cannot be used. No content of a file is ever part of it: one of them is a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} {reason}", path.display())]
    Content { path: PathBuf, reason: &'static str },
    #[error("certificate {number} in {} is not one", path.display())]
    Certificate {
        path: PathBuf,
        /// Counted from one, as a reader of the file would.
        number: usize,
        #[source]
        source: rustls::Error,
    },
    #[error("the certificate in {} does not go with the key in {}", certificate.display(), key.display())]
    Pair {
        certificate: PathBuf,
        key: PathBuf,
        #[source]
        source: rustls::Error,
    },
}

/// The cryptography, named explicitly: a default for the whole process would be whoever came first.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
