//! A sentinel and programs that others wrote: every case of h2spec, and curl through TLS.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]
#![allow(clippy::disallowed_methods, reason = "where the programs are is told by the environment")]

#[path = "scene/scene.rs"]
mod scene;

use std::{convert::Infallible, time::Duration};

use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use model::deployment::Protocol;
use runtime::{shutdown::Tasks, tls::ServerTls};
use sentinel::{config::ProxyConfig, pool::Spawner};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

use scene::{HOST, Recorder, Scene, deployment, header, read_answers, route};

/// How many there are: 145, and one more that is strict.
const CASES: usize = 146;

/// An instance that reads what it gets, and answers with enough to be cut into windows.
async fn talkative(tasks: &Tasks) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let spawner = tasks.clone();
    tasks.spawn("instance", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let inner = spawner.clone();
            spawner.spawn_one_of_many("behaviour", async move {
                let service = service_fn(|request: Request<Incoming>| async move {
                    let _ = request.into_body().collect().await;
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(&[b'a'; 128]))))
                });
                let server = hyper::server::conn::http2::Builder::new(Spawner(inner));
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn every_case_of_http_2_is_passed() {
    let program =
        std::env::var("KRANE_TEST_H2SPEC").expect("`cargo xtask test` builds h2spec and says where it is");
    let tasks = Tasks::new();
    let address = talkative(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::H2c, &[address]).await;
    scene.publish(&[deployment(1, Protocol::H2c, &[address]), route("localhost", 1)]);
    let home = tempfile::tempdir().unwrap();
    let report = home.path().join("report.xml");
    let mut command = tokio::process::Command::new(program);
    command.args(["-host", "localhost", "-port", &scene.address.port().to_string(), "-report"]).arg(&report);
    let ended = tokio::time::timeout(Duration::from_mins(3), command.kill_on_drop(true).output()).await;
    let output = ended.expect("it ends").unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let report = std::fs::read_to_string(report).unwrap();
    let count = |what: &str| report.matches(what).count();
    let (cases, failed) = (count("<testcase "), count("<failure>") + count("<error>"));
    assert_eq!((cases, failed, count("<skipped>")), (CASES, 0, 0), "{said}");
    assert!(output.status.success(), "{said}");
}

#[tokio::test]
async fn tls_comes_in_as_either_protocol() {
    let tasks = Tasks::new();
    let (recorder, address) = Recorder::start(&tasks).await;
    let home = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec![HOST.to_owned()]).unwrap();
    std::fs::write(home.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(home.path().join("certificate.pem"), made.cert.pem()).unwrap();
    let tls = ServerTls::load(home.path().join("certificate.pem"), home.path().join("key.pem")).unwrap();
    let scene = Scene::with_tls(ProxyConfig::default(), Protocol::Http1, &[address], Some(tls)).await;
    let curl = |more: &[&str]| {
        let resolve = format!("{HOST}:{}:127.0.0.1", scene.address.port());
        let url = format!("https://{HOST}:{}/", scene.address.port());
        let certificate = home.path().join("certificate.pem");
        let mut command = tokio::process::Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "20", "--resolve", &resolve, "--cacert"]);
        command.arg(certificate).args(["--write-out", " %{http_code} %{http_version}"]).args(more).arg(url);
        async move {
            let output = command.output().await.unwrap();
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        }
    };
    assert_eq!(curl(&["--http1.1"]).await, "ok 200 1.1");
    assert_eq!(curl(&["--http2"]).await, "ok 200 2");
    let head = recorder.take().remove(0).to_ascii_lowercase();
    assert_eq!(header(&head, "x-forwarded-proto"), Some("https"));
    let mut plain = scene.connect().await;
    plain.write_all(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n").as_bytes()).await.unwrap();
    assert!(read_answers(&mut plain, 1).await.statuses.is_empty(), "without TLS nothing is answered");
}
