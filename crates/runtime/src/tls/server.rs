//! The certificate a server shows, read again while it runs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;

use super::{H2, HTTP_1, TlsError, file, provider};
use crate::clock::Clock;

/// A server's certificate chain and key; clones show the same ones.
///
/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 by ALPN, no certificate asked of clients.
#[derive(Clone)]
pub struct ServerTls {
    files: Arc<Files>,
    shown: Arc<Shown>,
    config: Arc<ServerConfig>,
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// What the next handshake shows. Connections that are open do not look here any more.
struct Shown(ArcSwap<CertifiedKey>);

/// How soon a changed file is noticed. Contents are compared, not times or names: a mounted secret changes
/// by a swap of links far above the file.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

impl ServerTls {
    /// Reads the chain, the server's own certificate first, and its key; both PEM.
    pub fn load(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let files = Files { certificate: certificate.into(), key: key.into() };
        let shown = Arc::new(Shown(ArcSwap::from_pointee(files.read()?)));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has cipher suites for TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![H2.to_vec(), HTTP_1.to_vec()];
        Ok(Self { files: Arc::new(files), shown, config: Arc::new(config) })
    }

    /// For whoever accepts connections; it stays right when the files change.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Shakes hands with a client.
    pub async fn accept<I>(&self, io: I) -> std::io::Result<tokio_rustls::server::TlsStream<I>>
    where
        I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        tokio_rustls::TlsAcceptor::from(self.config()).accept(io).await
    }

    /// Looks at the files again and again until `stopping`, and shows what they hold to new connections.
    ///
    /// A pair that cannot be used changes nothing and is said once: the two files may have been caught between
    /// their two changes, and an old certificate is better than none.
    pub async fn follow(self, clock: Clock, stopping: CancellationToken) {
        let mut complaint = None;
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = clock.sleep(LOOK_INTERVAL) => {}
            }
            let files = Arc::clone(&self.files);
            let Ok(read) = tokio::task::spawn_blocking(move || files.read()).await else {
                // Only a runtime that is going down refuses: the next turn sees the stop.
                continue;
            };
            match read {
                Ok(pair) => {
                    complaint = None;
                    self.shown.change_to(pair);
                }
                Err(error) => {
                    let said = error.to_string();
                    if complaint.as_ref() != Some(&said) {
                        let error: &(dyn std::error::Error + 'static) = &error;
                        tracing::warn!(error, "the new certificate cannot be used, the old one stays");
                    }
                    complaint = Some(said);
                }
            }
        }
    }
}

/// The paths and nothing of what is in them.
impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("certificate", &self.files.certificate)
            .field("key", &self.files.key)
            .finish_non_exhaustive()
    }
}

impl Files {
    fn read(&self) -> Result<CertifiedKey, TlsError> {
        let chain = file::certificates(&self.certificate)?;
        let key = file::private_key(&self.key)?;
        CertifiedKey::from_der(chain, key, &provider()).map_err(|source| TlsError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        })
    }
}

impl Shown {
    /// A certificate names its public key, so the same chain is the same key, whatever its file looks like.
    fn change_to(&self, pair: CertifiedKey) {
        if self.0.load().cert != pair.cert {
            self.0.store(Arc::new(pair));
            tracing::info!("the certificate has changed, new connections are shown the new one");
        }
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Asked for by rustls; what it stands for is a key.
impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}
