//! What one client may have, what all may have, and how slow one may be.

use std::time::Duration;

use model::deployment::Protocol;
use runtime::{config::ByteSize, shutdown::Tasks};
use sentinel::{config::ProxyConfig, trust::Trusted};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    get, instance, read_head,
    scene::{HOST, Recorder, Scene, read_answers},
};

/// An instance that answers only when it is told to.
async fn patient(tasks: &Tasks) -> (std::net::SocketAddr, tokio::sync::watch::Sender<bool>) {
    let (sender, told) = tokio::sync::watch::channel(false);
    let address = instance(tasks, move |mut stream| {
        let mut told = told.clone();
        async move {
            loop {
                if read_head(&mut stream).await.is_empty() {
                    return;
                }
                let _ = told.wait_for(|told| *told).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    (address, sender)
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_u8()).await;
    read.is_ok_and(|read| read.is_err())
}

#[tokio::test]
async fn one_client_has_so_many_connections() {
    let tasks = Tasks::new();
    let (_recorder, address) = Recorder::start(&tasks).await;
    let config = ProxyConfig { client_connections_max: 2, ..ProxyConfig::default() };
    let scene = Scene::new(config, Protocol::Http1, &[address]).await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = scene.connect().await;
        stream.write_all(&get("/", "")).await.unwrap();
        assert_eq!(read_answers(&mut stream, 1).await.statuses, [200]);
        kept.push(stream);
    }
    assert!(is_closed(&mut scene.connect().await).await, "the third is one too many");
    assert_eq!(scene.shared.metrics.connections_refused.get(), 1);
    let other = std::net::SocketAddr::from(([127, 0, 0, 2], 0));
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(other).unwrap();
    let mut stream = socket.connect(scene.address).await.unwrap();
    stream.write_all(&get("/", "")).await.unwrap();
    assert_eq!(read_answers(&mut stream, 1).await.statuses, [200], "another client has its own");
    drop(kept);
}

#[tokio::test]
async fn all_clients_have_so_many_connections() {
    let tasks = Tasks::new();
    let (_recorder, address) = Recorder::start(&tasks).await;
    let config = ProxyConfig { connections_max: 1, ..ProxyConfig::default() };
    let scene = Scene::new(config, Protocol::Http1, &[address]).await;
    let mut first = scene.connect().await;
    first.write_all(&get("/", "")).await.unwrap();
    assert_eq!(read_answers(&mut first, 1).await.statuses, [200]);
    assert!(is_closed(&mut scene.connect().await).await);
    first.write_all(&get("/", "")).await.unwrap();
    assert_eq!(read_answers(&mut first, 1).await.statuses, [200], "who is there stays");
}

#[tokio::test]
async fn one_client_has_so_many_requests_under_way_and_then_waits_briefly() {
    let tasks = Tasks::new();
    let (address, told) = patient(&tasks).await;
    let trusted = Trusted::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let queue = Duration::from_millis(50);
    let config = ProxyConfig { client_requests_max: 1, trusted, queue, ..ProxyConfig::default() };
    let scene = Scene::new(config, Protocol::Http1, &[address]).await;
    let of = |client: &str| get("/", &format!("X-Forwarded-For: {client}\r\n"));
    let mut first = scene.connect().await;
    first.write_all(&of("192.0.2.1")).await.unwrap();
    while scene.shared.metrics.in_flight.get() == 0 {
        tokio::task::yield_now().await;
    }
    let answers = scene.exchange(&of("192.0.2.1"), 1).await;
    assert_eq!(answers.statuses, [429], "{}", answers.text);
    assert!(answers.text.contains("TooManyRequests") && answers.text.contains("retry-after: 1"));
    let mut other = scene.connect().await;
    other.write_all(&of("192.0.2.2")).await.unwrap();
    told.send_replace(true);
    assert_eq!(read_answers(&mut other, 1).await.statuses, [200], "another client has its own");
    assert_eq!(read_answers(&mut first, 1).await.statuses, [200]);
    first.write_all(&of("192.0.2.1")).await.unwrap();
    assert_eq!(read_answers(&mut first, 1).await.statuses, [200], "what ended makes room");
}

#[tokio::test]
async fn with_too_much_under_way_a_request_waits_briefly_and_is_told() {
    let tasks = Tasks::new();
    let (address, told) = patient(&tasks).await;
    let config = ProxyConfig { requests_max: 1, queue: Duration::from_millis(50), ..ProxyConfig::default() };
    let scene = Scene::new(config, Protocol::Http1, &[address]).await;
    let mut first = scene.connect().await;
    first.write_all(&get("/", "")).await.unwrap();
    while scene.shared.metrics.in_flight.get() == 0 {
        tokio::task::yield_now().await;
    }
    let answers = scene.exchange(&get("/", ""), 1).await;
    assert_eq!(answers.statuses, [503], "{}", answers.text);
    assert!(answers.text.contains("Overloaded") && answers.text.contains("retry-after: 1"));
    let health = scene.exchange(&get("/_unkey/internal/health", ""), 1).await;
    assert_eq!(health.statuses, [200], "health waits for nobody");
    told.send_replace(true);
    assert_eq!(read_answers(&mut first, 1).await.statuses, [200]);
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_cut_and_its_instance_freed() {
    let tasks = Tasks::new();
    let endless = instance(&tasks, |mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await;
        let block = vec![0; 64 * 1024];
        while stream.write_all(&block).await.is_ok() {}
    })
    .await;
    let config = ProxyConfig { idle_timeout: Duration::from_millis(300), ..ProxyConfig::default() };
    let scene = Scene::new(config, Protocol::Http1, &[endless]).await;
    let mut stream = scene.connect().await;
    stream.write_all(&get("/", "")).await.unwrap();
    let ended = async {
        while scene.shared.metrics.in_flight.get() == 0 {
            tokio::task::yield_now().await;
        }
        while scene.shared.metrics.in_flight.get() > 0 {
            scene.watch.clock().sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended).await.expect("it is cut");
    let log = scene.shared.log.recent();
    assert_eq!(log[0].code, Some("User.BadRequest.ClientClosedRequest"));
}

#[tokio::test]
async fn a_client_that_dawdles_with_its_head_is_told_and_cut() {
    let tasks = Tasks::new();
    let (recorder, address) = Recorder::start(&tasks).await;
    let config =
        ProxyConfig { request_headers_timeout: Duration::from_millis(200), ..ProxyConfig::default() };
    let scene = Scene::new(config, Protocol::Http1, &[address]).await;
    let answers = scene.exchange(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nX: ").as_bytes(), 1).await;
    assert_eq!(answers.statuses, [408], "{}", answers.text);
    assert!(answers.is_closed && recorder.take().is_empty());
    let silent = scene.exchange(b"", 1).await;
    assert!(silent.is_closed && silent.statuses.is_empty(), "who says nothing is told nothing");
}

#[tokio::test]
async fn a_client_may_rest_between_requests_for_longer_than_a_head_may_take() {
    let tasks = Tasks::new();
    let (_recorder, address) = Recorder::start(&tasks).await;
    let config =
        ProxyConfig { request_headers_timeout: Duration::from_millis(100), ..ProxyConfig::default() };
    let scene = Scene::new(config, Protocol::Http1, &[address]).await;
    let mut stream = scene.connect().await;
    for _ in 0..2 {
        stream.write_all(&get("/", "")).await.unwrap();
        assert_eq!(read_answers(&mut stream, 1).await.statuses, [200]);
        scene.watch.clock().sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test]
async fn a_body_that_stops_coming_is_the_client_s_fault() {
    let tasks = Tasks::new();
    let (_recorder, address) = Recorder::start(&tasks).await;
    let config = ProxyConfig {
        idle_timeout: Duration::from_millis(200),
        body_max: ByteSize::kib(1),
        ..ProxyConfig::default()
    };
    let scene = Scene::new(config, Protocol::Http1, &[address]).await;
    let begun = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 10\r\n\r\nonly");
    let answers = scene.exchange(begun.as_bytes(), 1).await;
    assert_eq!(answers.statuses, [408], "{}", answers.text);
}
