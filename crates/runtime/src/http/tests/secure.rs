//! The server over TLS.

use rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::tls::tests::{Directory, Pair};
use crate::tls::{ClientTls, Roots, client_config};

async fn shake_hands(
    running: &Running,
    config: Arc<rustls::ClientConfig>,
) -> io::Result<TlsStream<DuplexStream>> {
    let name = ServerName::try_from("krane.test").unwrap();
    TlsConnector::from(config).connect(name, running.dial().await).await
}

fn certificate(stream: &TlsStream<DuplexStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

fn hello(tls: ServerTls) -> Running {
    Running::new(HttpConfig { age: None, ..HttpConfig::default() }, Some(tls), |request| {
        std::future::ready(whole(format!("{:?}", request.version())))
    })
}

async fn ask(client: &mut Client) -> String {
    text(client.get().await.unwrap().into_body()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn alpn_chooses_the_version() {
    let (directory, pair) = (Directory::new(), Pair::new());
    directory.put(&pair);
    let running = hello(directory.server());
    let roots = Roots::File(directory.certificate());

    let stream = shake_hands(&running, ClientTls::load(&roots).unwrap().config()).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = Client::over(stream, Version::HTTP_2, &running.clients).await;
    assert_eq!(ask(&mut client).await, "HTTP/2.0");

    let mut config = Arc::unwrap_or_clone(client_config(&roots).unwrap());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = shake_hands(&running, Arc::new(config)).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let mut client = Client::over(stream, Version::HTTP_11, &running.clients).await;
    assert_eq!(ask(&mut client).await, "HTTP/1.1");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_trusts_others_does_not_connect() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    directory.put(&Pair::new());
    elsewhere.put(&Pair::new());
    let running = hello(directory.server());
    for roots in [Roots::File(elsewhere.certificate()), Roots::Mozilla] {
        let config = ClientTls::load(&roots).unwrap().config();
        let error = shake_hands(&running, config).await.err().unwrap();
        assert!(error.to_string().starts_with("invalid peer certificate"), "{error}");
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_never_finishes_the_handshake_is_closed() {
    let directory = Directory::new();
    directory.put(&Pair::new());
    let running = hello(directory.server());
    let begun = running.clock.instant();
    let mut silent = running.dial().await;
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
    let lived = running.clock.instant() - begun;
    assert!((30 * SECOND..31 * SECOND).contains(&lived), "{lived:?}");

    // One that is still shaking hands does not hold up a stop.
    let mut late = running.dial().await;
    running.clock.sleep(SECOND).await;
    running.stop().await;
    assert_eq!(late.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_changed_certificate_is_shown_to_new_connections_and_old_ones_live_on() {
    let (directory, old, new) = (Directory::new(), Pair::new(), Pair::new());
    directory.put(&old);
    let running = hello(directory.server());
    let connect = async || {
        // A configuration of its own each time: a resumed session is shown no certificate.
        let config = ClientTls::load(&Roots::File(directory.certificate())).unwrap().config();
        shake_hands(&running, config).await.unwrap()
    };
    let stream = connect().await;
    assert_eq!(certificate(&stream), old.der());
    let mut client = Client::over(stream, Version::HTTP_2, &running.clients).await;
    assert_eq!(ask(&mut client).await, "HTTP/2.0");

    directory.put(&new);
    running.clock.sleep(11 * SECOND).await;
    assert_eq!(certificate(&connect().await), new.der());
    assert_eq!(ask(&mut client).await, "HTTP/2.0", "the old connection goes on");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_pair_that_cannot_be_used_leaves_the_old_one_in_place() {
    let (directory, old, new) = (Directory::new(), Pair::new(), Pair::new());
    directory.put(&old);
    let running = hello(directory.server());
    let config = || ClientTls::load(&Roots::File(directory.keep(&old))).unwrap().config();

    let broken = [
        Pair { certificate: new.certificate.clone(), key: old.key.clone() },
        Pair { certificate: "nothing".into(), key: new.key.clone() },
        Pair { certificate: new.certificate.clone(), key: String::new() },
    ];
    for pair in &broken {
        directory.put(pair);
        running.clock.sleep(11 * SECOND).await;
        assert_eq!(certificate(&shake_hands(&running, config()).await.unwrap()), old.der());
    }
    directory.remove();
    running.clock.sleep(11 * SECOND).await;
    assert_eq!(certificate(&shake_hands(&running, config()).await.unwrap()), old.der());

    // Mended, it is taken.
    directory.put(&new);
    running.clock.sleep(11 * SECOND).await;
    let config = ClientTls::load(&Roots::File(directory.certificate())).unwrap().config();
    assert_eq!(certificate(&shake_hands(&running, config).await.unwrap()), new.der());
    running.stop().await;
}
