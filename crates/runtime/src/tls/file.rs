//! Certificates and keys out of PEM files, with errors that never show what is in them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

/// Far above any chain or bundle of roots; a path that names a device or a log must not fill the memory.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// All certificates of a file, in its order; at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content = read(path)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&content)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(path, &error, "holds no certificate"))?;
    if certificates.is_empty() {
        return Err(unusable(path, &pem::Error::NoItemsFound, "holds no certificate"));
    }
    Ok(certificates)
}

/// The first private key of a file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|error| unusable(path, &error, "holds no private key"))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Read { path: path.to_owned(), source };
    let mut content = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    let length = file.take(BYTES_MAX + 1).read_to_end(&mut content).map_err(unreadable)?;
    if length as u64 > BYTES_MAX {
        return Err(TlsError::Content { path: path.to_owned(), reason: "is larger than 4 MiB" });
    }
    Ok(content)
}

/// The parser's own words quote the line it stumbled over, which in a key whose line breaks were lost is the
/// whole key. So its error is not kept, only what kind it is.
fn unusable(path: &Path, error: &pem::Error, nothing: &'static str) -> TlsError {
    let reason = match error {
        pem::Error::NoItemsFound => nothing,
        pem::Error::MissingSectionEnd { .. } => "is cut short: a section of it has no end",
        pem::Error::IllegalSectionStart { .. } => "is not PEM: a section's first line is malformed",
        pem::Error::Base64Decode(_) => "is not PEM: a section is not base64",
        _ => "is not PEM",
    };
    TlsError::Content { path: path.to_owned(), reason }
}
