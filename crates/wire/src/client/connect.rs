//! How a connection is made: by dialling, or as a simulation has it.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// Two ways of bytes.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Makes connections.
pub trait Connect: Send + Sync + 'static {
    fn connect(&self, uri: &Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>>;
}

/// Over TCP: in the clear for `http`, with TLS for `https`.
#[derive(Clone)]
pub struct Dial(Option<TlsConnector>);

impl Dial {
    /// Without a configuration of TLS no `https` address can be dialled.
    pub fn new(tls: Option<Arc<ClientConfig>>) -> Dial {
        Dial(tls.map(|config| {
            let mut config = Arc::unwrap_or_clone(config);
            config.alpn_protocols = vec![H2.to_vec()];
            TlsConnector::from(Arc::new(config))
        }))
    }
}

const H2: &[u8] = b"h2";

impl Connect for Dial {
    fn connect(&self, uri: &Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let (tls, uri) = (self.0.clone(), uri.clone());
        async move {
            let is_https = uri.scheme_str() == Some("https");
            let host = host(&uri).ok_or_else(|| unfit("the address has no host"))?;
            let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            // Messages are whole and small; waiting for more to send with them only delays them.
            stream.set_nodelay(true)?;
            if !is_https {
                return Ok(Box::new(stream) as Box<dyn Io>);
            }
            let tls = tls.ok_or_else(|| unfit("an https address needs TLS roots"))?;
            let name = ServerName::try_from(host).map_err(|_| unfit("the host is no name that TLS knows"))?;
            let stream = tls.connect(name, stream).await?;
            if stream.get_ref().1.alpn_protocol() != Some(H2) {
                return Err(unfit("the other side does not speak HTTP/2"));
            }
            Ok(Box::new(stream) as Box<dyn Io>)
        }
        .boxed()
    }
}

/// The host without the brackets that an IPv6 address has in a URI.
fn host(uri: &Uri) -> Option<String> {
    let host = uri.host()?;
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    Some(bare.unwrap_or(host).to_owned())
}

fn unfit(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// A connector as the transport below wants it.
#[derive(Clone)]
pub(super) struct Connector(pub(super) Arc<dyn Connect>);

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Io>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.connect(&uri);
        async move { connecting.await.map(TokioIo::new) }.boxed()
    }
}
