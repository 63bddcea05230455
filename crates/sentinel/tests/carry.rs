//! Requests through a sentinel to real instances: what arrives, what comes back, and what happens when one is not there.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "carry/again.rs"]
mod again;
#[path = "carry/limits.rs"]
mod limits;
#[path = "scene/scene.rs"]
mod scene;
#[path = "carry/shapes.rs"]
mod shapes;

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use model::{deployment::Protocol, id::DeploymentId};
use runtime::shutdown::Tasks;
use sentinel::{config::ProxyConfig, pool::Spawner, trust::Trusted};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use scene::{HOST, Recorder, Scene, deployment, header, read_answers, route};

fn get(path: &str, more: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{more}\r\n").into_bytes()
}

/// A port that nobody listens on.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn what_a_stranger_says_of_itself_has_no_effect() {
    let tasks = Tasks::new();
    let (recorder, address) = Recorder::start(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[address]).await;
    scene.publish(&[
        deployment(1, Protocol::Http1, &[address]),
        deployment(2, Protocol::Http1, &[]),
        route(HOST, 1),
    ]);
    let other = DeploymentId::sample(2);
    let said = format!(
        "X-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\nX-Unkey-Principal: root\r\nX-Deployment-Id: {other}\r\n"
    );
    let answers = scene.exchange(&get("/", &said), 1).await;
    assert_eq!(answers.statuses, [200], "{}", answers.text);
    let head = recorder.take().remove(0).to_ascii_lowercase();
    assert_eq!(header(&head, "x-forwarded-for"), Some("127.0.0.1"));
    assert!(
        !head.contains("1.2.3.4") && !head.contains("x-unkey") && !head.contains("x-deployment-id"),
        "{head}"
    );
    let answered = answers.text.to_ascii_lowercase();
    assert!(!answered.contains("x-unkey-secret"), "an instance's word is not ours: {answered}");
    assert_eq!(header(&answered, "x-request-id"), header(&head, "x-request-id"));
    assert!(header(&answered, "server-timing").unwrap().contains("instance;dur="));
    assert!(header(&head, "traceparent").is_some());
}

#[tokio::test]
async fn a_deployment_of_another_environment_is_not_there() {
    let tasks = Tasks::new();
    let (recorder, address) = Recorder::start(&tasks).await;
    let trusted = Trusted::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let config = ProxyConfig { trusted, ..ProxyConfig::default() };
    let scene = Scene::new(config, Protocol::Http1, &[address]).await;
    let named = |id: &str| get("/", &format!("X-Deployment-Id: {id}\r\n"));
    let ours = DeploymentId::sample(1).to_string();
    assert_eq!(scene.exchange(&named(&ours), 1).await.statuses, [200]);
    let theirs = DeploymentId::sample(9).to_string();
    for id in [theirs.as_str(), "dep_1", "", "../dep"] {
        assert_eq!(scene.exchange(&named(id), 1).await.statuses, [404], "{id:?}");
    }
    let elsewhere = b"GET / HTTP/1.1\r\nHost: b.example.com\r\n\r\n";
    let answers = scene.exchange(elsewhere, 1).await;
    assert_eq!(answers.statuses, [404]);
    assert!(answers.text.contains("Sentinel.Routing.DeploymentNotFound"), "{}", answers.text);
    assert_eq!(recorder.take().len(), 1);
}

#[tokio::test]
async fn a_request_goes_to_another_instance_if_one_is_not_there() {
    let tasks = Tasks::new();
    let (recorder, address) = Recorder::start(&tasks).await;
    let scene =
        Scene::new(ProxyConfig::default(), Protocol::Http1, &[nobody().await, address, nobody().await]).await;
    for nth in 0..40 {
        let post = format!("POST /{nth} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(scene.exchange(post.as_bytes(), 1).await.statuses, [200], "request {nth}");
    }
    assert_eq!(recorder.take().len(), 40, "each once");
}

#[tokio::test]
async fn with_nobody_there_it_says_so() {
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[nobody().await]).await;
    let answers = scene.exchange(&get("/", ""), 1).await;
    assert_eq!(answers.statuses, [503]);
    assert!(answers.text.contains("Sentinel.Proxy.ServiceUnavailable"), "{}", answers.text);
    scene.publish(&[deployment(1, Protocol::Http1, &[]), route(HOST, 1)]);
    let answers = scene.exchange(&get("/", ""), 1).await;
    assert_eq!(answers.statuses, [503]);
    assert!(
        answers.text.contains("NoRunningInstances") && answers.text.contains("retry-after: 1"),
        "{}",
        answers.text
    );
}

/// An instance that does this with every connection.
async fn instance<F>(tasks: &Tasks, behave: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let spawner = tasks.clone();
    tasks.spawn("instance", async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawner.spawn_one_of_many("behaviour", behave(stream));
        }
    });
    address
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while scene::find(&bytes, b"\r\n\r\n").is_none() {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn what_may_be_repeated_is_when_an_instance_breaks_off_and_nothing_else() {
    let tasks = Tasks::new();
    let breaking = instance(&tasks, |mut stream| async move {
        read_head(&mut stream).await;
    })
    .await;
    let (recorder, address) = Recorder::start(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[breaking, address]).await;
    for nth in 0..20 {
        assert_eq!(scene.exchange(&get("/", ""), 1).await.statuses, [200], "request {nth}");
    }
    assert_eq!(recorder.take().len(), 20);
    let alone = Scene::new(ProxyConfig::default(), Protocol::Http1, &[breaking]).await;
    let post = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 2\r\n\r\nhi");
    let answers = alone.exchange(post.as_bytes(), 1).await;
    assert_eq!(answers.statuses, [502]);
    assert!(answers.text.contains("Sentinel.Proxy.BadGateway"), "{}", answers.text);
}

#[tokio::test]
async fn an_instance_that_answers_garbage_or_nothing_is_to_blame() {
    let tasks = Tasks::new();
    let garbage = instance(&tasks, |mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"SSH-2.0-nothing\r\n\r\n").await;
    })
    .await;
    let silent = instance(&tasks, |mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.read_u8().await;
    })
    .await;
    let config =
        ProxyConfig { response_headers_timeout: Duration::from_millis(100), ..ProxyConfig::default() };
    for (address, status) in [(garbage, 502), (silent, 504)] {
        let scene = Scene::new(config.clone(), Protocol::Http1, &[address]).await;
        assert_eq!(scene.exchange(&get("/", ""), 1).await.statuses, [status]);
    }
}

#[tokio::test]
async fn an_upgraded_connection_carries_every_byte() {
    let tasks = Tasks::new();
    let echo = instance(&tasks, |mut stream| async move {
        let head = read_head(&mut stream).await.to_ascii_lowercase();
        assert_eq!(
            (header(&head, "connection"), header(&head, "upgrade")),
            (Some("upgrade"), Some("echo/1"))
        );
        let agreed = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo/1\r\n\r\n";
        stream.write_all(agreed).await.unwrap();
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[echo]).await;
    let mut stream = scene.connect().await;
    let early = b"\x00early\n";
    stream
        .write_all(&[get("/", "Connection: Upgrade\r\nUpgrade: echo/1\r\n"), early.to_vec()].concat())
        .await
        .unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let mut echoed = head.split_once("\r\n\r\n").unwrap().1.as_bytes().to_vec();
    let sent: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let (mut read, mut write) = stream.split();
    let send = async { write.write_all(&sent).await.unwrap() };
    let receive = async {
        while echoed.len() < early.len() + sent.len() {
            assert_ne!(read.read_buf(&mut echoed).await.unwrap(), 0, "it ended early");
        }
    };
    tokio::join!(send, receive);
    assert_eq!(echoed, [&early[..], &sent].concat());
}

#[tokio::test]
async fn an_upgrade_to_an_instance_of_http_2_is_declined() {
    let scene = Scene::new(ProxyConfig::default(), Protocol::H2c, &[nobody().await]).await;
    let upgrade = get("/", "Connection: Upgrade\r\nUpgrade: echo/1\r\n");
    let then = [upgrade, get("/_unkey/internal/health", "")].concat();
    assert_eq!(scene.exchange(&then, 2).await.statuses, [501, 200], "and the connection goes on");
}

#[tokio::test]
async fn health_is_answered_before_anything_is_routed() {
    let tasks = Tasks::new();
    let (recorder, address) = Recorder::start(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[address]).await;
    let routes = scene.readiness.component("routes");
    for (path, status) in
        [("health", 200), ("health/live", 200), ("health/ready", 503), ("other", 404), ("refused", 404)]
    {
        let answers = scene.exchange(&get(&format!("/_unkey/internal/{path}"), ""), 1).await;
        assert_eq!(answers.statuses, [status], "{path}");
    }
    routes.ready();
    assert_eq!(scene.exchange(&get("/_unkey/internal/health/ready", ""), 1).await.statuses, [200]);
    assert!(recorder.take().is_empty());
    routes.retire();
}

#[tokio::test]
async fn a_drain_lets_every_connection_answer_once_more() {
    let tasks = Tasks::new();
    let (_recorder, address) = Recorder::start(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[address]).await;
    let mut idle = scene.connect().await;
    idle.write_all(&get("/", "")).await.unwrap();
    assert_eq!(read_answers(&mut idle, 1).await.statuses, [200]);
    scene.shared.drain();
    let stopping = scene.tasks.clone();
    tasks.spawn("stop", async move {
        stopping.stop(Duration::from_secs(5)).await;
    });
    scene.tasks.stopping().await;
    idle.write_all(&get("/", "")).await.unwrap();
    let answers = read_answers(&mut idle, 2).await;
    assert_eq!(answers.statuses, [200], "a request that was on its way is answered");
    assert!(answers.is_closed && answers.text.contains("connection: close"), "{}", answers.text);
}

#[tokio::test]
async fn every_request_is_logged_once_and_counted_for_its_route() {
    let tasks = Tasks::new();
    let (_recorder, address) = Recorder::start(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[address]).await;
    let all =
        [get("/a?token=abc", "X-Request-Id: one\r\n"), get("/b", ""), get("/c", "Bad Name: 1\r\n")].concat();
    assert_eq!(scene.exchange(&all, 3).await.statuses, [200, 200, 400]);
    let log = scene.shared.log.recent();
    let line = |entry: &sentinel::log::Entry| format!("{} {} {}", entry.status, entry.path, entry.blame);
    let lines: Vec<String> = log.iter().map(line).collect();
    assert_eq!(lines, ["200 /a?token=[redacted] none", "200 /b none", "400 /_unkey/internal/refused client"]);
    assert_eq!(log[0].request_id, "one");
    let sums = scene.tallies.sums();
    assert_eq!(sums.values().map(|sums| sums.latency.count()).sum::<u64>(), 2);
}

/// An instance of HTTP/2 that sends back what it gets, with a trailer.
async fn http2_echo(tasks: &Tasks) -> SocketAddr {
    let spawner = tasks.clone();
    instance(tasks, move |stream| {
        let spawner = spawner.clone();
        async move {
            let service = service_fn(|request: Request<Incoming>| async move {
                let host = request.uri().authority().map(ToString::to_string);
                let body = request.into_body();
                let mut response = Response::new(body);
                response.headers_mut().insert("x-host", host.unwrap_or_default().parse().unwrap());
                Ok::<_, Infallible>(response)
            });
            let server = hyper::server::conn::http2::Builder::new(Spawner(spawner));
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        }
    })
    .await
}

#[tokio::test]
async fn http_2_is_carried_in_and_out_with_trailers() {
    let tasks = Tasks::new();
    let echo = http2_echo(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::H2c, &[echo]).await;
    let stream = TokioIo::new(scene.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(Spawner(tasks.clone()), stream).await.unwrap();
    tasks.spawn("client", async move {
        let _ = connection.await;
    });
    let mut trailers = hyper::HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    trailers.insert("x-unkey-principal", "root".parse().unwrap());
    let body = Full::new(Bytes::from_static(b"hello")).with_trailers(std::future::ready(Some(Ok(trailers))));
    let request = Request::post(format!("http://{HOST}/echo")).header("te", "trailers").body(body).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(
        (response.status(), response.headers()["x-host"].as_bytes()),
        (StatusCode::OK, HOST.as_bytes())
    );
    let collected = response.into_body().collect().await.unwrap();
    let trailers = collected.trailers().unwrap();
    assert_eq!((trailers.len(), trailers["grpc-status"].as_bytes()), (1, &b"0"[..]));
    assert_eq!(collected.to_bytes(), "hello");
    // The same instance from HTTP/1.
    let post = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 2\r\n\r\nhi");
    let answers = scene.exchange(post.as_bytes(), 1).await;
    assert!(answers.text.ends_with("hi"), "{}", answers.text);
}

#[tokio::test]
async fn an_answer_may_end_before_its_request() {
    let tasks = Tasks::new();
    let hasty = instance(&tasks, |mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
    .await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[hasty]).await;
    let begun = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1000\r\n\r\nonly this");
    assert_eq!(scene.exchange(begun.as_bytes(), 1).await.statuses, [403]);
}

#[tokio::test]
async fn a_client_that_expects_it_is_told_to_continue() {
    let tasks = Tasks::new();
    let (recorder, address) = Recorder::start(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[address]).await;
    let mut stream = scene.connect().await;
    let head =
        format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 100 "));
    stream.write_all(b"hi").await.unwrap();
    assert_eq!(read_answers(&mut stream, 1).await.statuses, [200]);
    assert!(recorder.take()[0].ends_with("hi"));
}

#[tokio::test]
async fn no_reader_of_routes_sees_half_a_switch() {
    let tasks = Tasks::new();
    let (one, first) = Recorder::start(&tasks).await;
    let (two, second) = Recorder::start(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[first]).await;
    let both = |number| {
        let deployments =
            [deployment(1, Protocol::Http1, &[first]), deployment(2, Protocol::Http1, &[second])];
        let routes = [route("a.example.com", number), route("b.example.com", number)];
        [deployments, routes].concat()
    };
    for nth in 0..200_u128 {
        let number = nth % 2 + 1;
        scene.publish(&both(number));
        let asked =
            b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\nGET / HTTP/1.1\r\nHost: b.example.com\r\n\r\n";
        assert_eq!(scene.exchange(asked, 2).await.statuses, [200, 200]);
        let seen = (one.take().len(), two.take().len());
        assert_eq!(seen, if number == 1 { (2, 0) } else { (0, 2) }, "switch {nth}");
    }
}
