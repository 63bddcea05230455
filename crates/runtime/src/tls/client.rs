//! Whom a client trusts.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

use super::{H2, TlsError, file, provider};

/// The authorities whose word a client takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// Those that Mozilla trusts, as they were when this was built; nothing of the machine is asked.
    Mozilla,
    /// Those in a PEM file, and no others.
    File(PathBuf),
}

/// How our own clients speak TLS: HTTP/2 and nothing else.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    pub fn load(roots: &Roots) -> Result<Self, TlsError> {
        let mut config = Arc::unwrap_or_clone(client_config(roots)?);
        config.alpn_protocols = vec![H2.to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }
}

/// TLS 1.2 and 1.3 without a certificate of the client's own, for any protocol: it offers none by ALPN, which
/// a database would take amiss.
pub fn client_config(roots: &Roots) -> Result<Arc<ClientConfig>, TlsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites for TLS 1.2 and 1.3")
        .with_root_certificates(store(roots)?)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn store(roots: &Roots) -> Result<RootCertStore, TlsError> {
    let path = match roots {
        Roots::Mozilla => return Ok(webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()),
        Roots::File(path) => path,
    };
    let mut store = RootCertStore::empty();
    for (index, certificate) in file::certificates(path)?.into_iter().enumerate() {
        let malformed = |source| TlsError::Certificate { path: path.clone(), number: index + 1, source };
        store.add(certificate).map_err(malformed)?;
    }
    Ok(store)
}
