//! The way to a server, encrypted if the settings say so: never "if the server likes".

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{
    Config, Socket,
    config::SslMode,
    tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream},
};
use tokio_rustls::{TlsConnector, client, rustls::pki_types::ServerName};

use crate::{Error, Result, backend::PostgresConfig};

/// Makes a connection what the settings want it to be.
#[derive(Clone)]
pub(super) struct Tls(Option<TlsConnector>);

/// One connection's handshake, if there is to be one.
pub(super) struct Handshake(Option<(TlsConnector, ServerName<'static>)>);

pub(super) struct Encrypted(Box<client::TlsStream<Socket>>);

/// Why there is no encrypted connection. Not an `io::Error`: to try again would not help.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0}")]
    Handshake(io::Error),
    #[error("the settings do not say how to know the server")]
    NoRoots,
    #[error("`{0}` is no name that a certificate can be for")]
    Name(String),
}

/// The server's address with the mode that the settings ask for, and what makes it so.
pub(super) fn of(config: &PostgresConfig) -> Result<(Config, Tls)> {
    let mut server: Config = config.url.parse().map_err(|_| {
        // The text of the error may quote the address, password included.
        Error::broken("the address of the PostgreSQL server cannot be parsed")
    })?;
    let Some(roots) = &config.roots else {
        if server.get_ssl_mode() == SslMode::Require {
            return Err(Error::broken("sslmode=require needs roots: whose certificate is to be believed?"));
        }
        // A mode that falls back would send everything in plain text to whoever refuses to encrypt.
        server.ssl_mode(SslMode::Disable);
        return Ok((server, Tls(None)));
    };
    if server.get_ssl_mode() == SslMode::Disable {
        return Err(Error::broken("there are roots for the PostgreSQL server, but sslmode=disable"));
    }
    server.ssl_mode(SslMode::Require);
    let client = runtime::tls::client_config(roots).map_err(|error| Error::broken(error.to_string()))?;
    Ok((server, Tls(Some(TlsConnector::from(Arc::clone(&client))))))
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = Handshake;
    type Error = Refused;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Handshake, Refused> {
        // Asked for in every mode, also for a connection that stays as it is.
        let Some(connector) = self.0.clone() else { return Ok(Handshake(None)) };
        let server = ServerName::try_from(domain.to_owned()).map_err(|_| Refused::Name(domain.to_owned()))?;
        Ok(Handshake(Some((connector, server))))
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = Refused;
    type Future = Pin<Box<dyn Future<Output = Result<Encrypted, Refused>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let (connector, server) = self.0.ok_or(Refused::NoRoots)?;
            let stream = connector.connect(server, socket).await.map_err(Refused::Handshake)?;
            Ok(Encrypted(Box::new(stream)))
        })
    }
}

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
