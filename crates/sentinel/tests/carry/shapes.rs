//! The shapes that requests and answers have: events, slow ends, no body, TLS, and names that lead nowhere.

use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::{
    Request, StatusCode,
    body::{Bytes, Frame},
};
use hyper_util::rt::TokioIo;
use model::{deployment::Protocol, id::DeploymentId};
use runtime::shutdown::Tasks;
use sentinel::{config::ProxyConfig, pool::Spawner, trust::Trusted};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    get, http2_echo, instance, read_head,
    scene::{HOST, Recorder, Scene, deployment, find, header, route},
};

type Sender<B> = hyper::client::conn::http2::SendRequest<B>;

async fn http2_client<B>(scene: &Scene, tasks: &Tasks) -> Sender<B>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TokioIo::new(scene.connect().await);
    let (sender, connection) =
        hyper::client::conn::http2::handshake(Spawner(tasks.clone()), stream).await.unwrap();
    tasks.spawn("client", async move {
        let _ = connection.await;
    });
    sender
}

#[tokio::test]
async fn an_event_arrives_before_the_next_is_sent() {
    let tasks = Tasks::new();
    let (sender, told) = tokio::sync::watch::channel(0_usize);
    let events = instance(&tasks, move |mut stream| {
        let mut told = told.clone();
        async move {
            read_head(&mut stream).await;
            let head =
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head).await.unwrap();
            for nth in 1.. {
                if told.wait_for(|told| *told >= nth).await.is_err() {
                    return;
                }
                let event = format!("data: {nth}\n\n");
                let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                if stream.write_all(chunk.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[events]).await;
    let mut stream = scene.connect().await;
    stream.write_all(&get("/", "Accept: text/event-stream\r\n")).await.unwrap();
    let mut bytes = Vec::new();
    for nth in 1..=5 {
        sender.send_replace(nth);
        let wanted = format!("data: {nth}\n\n");
        while find(&bytes, wanted.as_bytes()).is_none() {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
        }
    }
    sender.send_replace(0);
    let mut client: Sender<Empty<Bytes>> = http2_client(&scene, &tasks).await;
    let request = Request::get(format!("http://{HOST}/")).body(Empty::new()).unwrap();
    let mut body = client.send_request(request).await.unwrap().into_body();
    for nth in 1..=5 {
        sender.send_replace(nth);
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, format!("data: {nth}\n\n"));
    }
}

#[tokio::test]
async fn both_ways_flow_at_once() {
    let tasks = Tasks::new();
    let scene = Scene::new(ProxyConfig::default(), Protocol::H2c, &[http2_echo(&tasks).await]).await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
    let stream = futures_util::stream::unfold(receiver, async |mut receiver| {
        let bytes = receiver.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(Frame::data(bytes)), receiver))
    });
    let body = StreamBody::new(Box::pin(stream));
    let mut client = http2_client(&scene, &tasks).await;
    let request = Request::post(format!("http://{HOST}/")).body(body).unwrap();
    let mut answer = client.send_request(request).await.unwrap().into_body();
    for nth in 0..20_u32 {
        sender.send(Bytes::from(nth.to_string())).await.unwrap();
        let echoed = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(echoed, nth.to_string(), "the answer to a part comes before the next part is sent");
    }
    drop(sender);
    assert!(answer.frame().await.is_none_or(|frame| frame.unwrap().into_data().unwrap().is_empty()));
}

#[tokio::test]
async fn a_head_is_answered_with_a_length_and_no_body() {
    let tasks = Tasks::new();
    let asked = instance(&tasks, |mut stream| async move {
        while read_head(&mut stream).await.starts_with("HEAD ") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n").await;
        }
    })
    .await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[asked]).await;
    let mut stream = scene.connect().await;
    for _ in 0..3 {
        stream.write_all(format!("HEAD / HTTP/1.1\r\nHost: {HOST}\r\n\r\n").as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await.to_ascii_lowercase();
        assert_eq!(header(&head, "content-length"), Some("1234"), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "and no body: {head}");
    }
    let mut client: Sender<Empty<Bytes>> = http2_client(&scene, &tasks).await;
    let request = Request::head(format!("http://{HOST}/")).body(Empty::new()).unwrap();
    let response = client.send_request(request).await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["content-length"]),
        (StatusCode::OK, &"1234".parse().unwrap())
    );
}

#[tokio::test]
async fn trailers_of_an_answer_arrive_by_both_protocols() {
    let tasks = Tasks::new();
    let trailing = instance(&tasks, |mut stream| async move {
        while !read_head(&mut stream).await.is_empty() {
            let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n";
            let _ = stream.write_all(answer).await;
        }
    })
    .await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[trailing]).await;
    let mut client: Sender<Empty<Bytes>> = http2_client(&scene, &tasks).await;
    let request =
        Request::get(format!("http://{HOST}/")).header("te", "trailers").body(Empty::new()).unwrap();
    let collected = client.send_request(request).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-sum"], "7");
    let mut stream = scene.connect().await;
    stream.write_all(&get("/", "TE: trailers\r\nConnection: te, close\r\n")).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{text}");
}

#[tokio::test]
async fn a_slow_reader_and_a_slow_writer_get_every_byte() {
    let tasks = Tasks::new();
    let scene = Scene::new(ProxyConfig::default(), Protocol::H2c, &[http2_echo(&tasks).await]).await;
    let mut stream = scene.connect().await;
    stream.set_nodelay(true).unwrap();
    let sent: Vec<u8> = (0..=255).cycle().take(40_000).collect();
    let head = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n", sent.len());
    let (mut read, mut write) = stream.split();
    let clock = scene.watch.clock();
    let writing = async {
        write.write_all(head.as_bytes()).await.unwrap();
        for part in sent.chunks(1000) {
            write.write_all(part).await.unwrap();
            clock.sleep(Duration::from_millis(5)).await;
        }
    };
    let reading = async {
        let mut bytes = Vec::new();
        let mut part = [0; 700];
        loop {
            clock.sleep(Duration::from_millis(4)).await;
            let count = read.read(&mut part).await.unwrap();
            assert_ne!(count, 0, "it ended early");
            bytes.extend_from_slice(&part[..count]);
            let begun = find(&bytes, b"\r\n\r\n").map(|end| end + 4);
            if begun.is_some_and(|begun| bytes.len() >= begun + sent.len()) {
                return bytes;
            }
        }
    };
    let ((), bytes) = tokio::join!(writing, reading);
    let begun = find(&bytes, b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8_lossy(&bytes[..begun]).to_ascii_lowercase();
    assert_eq!(header(&head, "content-length"), Some("40000"), "{head}");
    assert_eq!(bytes[begun..], sent);
}

#[tokio::test]
async fn nobody_names_a_deployment_of_another_environment() {
    let tasks = Tasks::new();
    let (recorder, address) = Recorder::start(&tasks).await;
    let trusted = Trusted::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let config = ProxyConfig { trusted, ..ProxyConfig::default() };
    let scene = Scene::new(config, Protocol::Http1, &[address]).await;
    scene.publish(&[deployment(1, Protocol::Http1, &[address]), route(HOST, 1), route("*.example.org", 1)]);
    // Deployment 9 and `theirs.example.com` are another environment's: this sentinel was never told of them.
    let theirs = DeploymentId::sample(9);
    let named = |host: &str, more: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
    let asked = [
        named("theirs.example.com", ""),
        named("THEIRS.EXAMPLE.COM:8040", ""),
        named("theirs.example.com.", ""),
        named(&theirs.to_string(), ""),
        named(HOST, &format!("X-Deployment-Id: {theirs}\r\n")),
        named("theirs.example.com", &format!("X-Deployment-Id: {theirs}\r\n")),
        named("theirs.example.com", &format!("X-Forwarded-Host: {HOST}\r\n")),
        named("theirs.example.com", &format!("Forwarded: host={HOST}\r\n")),
        named("theirs.example.com", "X-Unkey-Deployment-Id: 1\r\n"),
        named("example.org", ""),
        named("127.0.0.1", ""),
        named(HOST, "X-Deployment-Id: \r\n"),
        "GET http://theirs.example.com/ HTTP/1.1\r\nHost: theirs.example.com\r\n\r\n".to_owned(),
    ];
    for request in asked {
        let answers = scene.exchange(request.as_bytes(), 1).await;
        assert_eq!(answers.statuses, [404], "{request}");
        assert!(answers.text.contains("Sentinel.Routing.DeploymentNotFound"), "{}", answers.text);
    }
    let mut client: Sender<Empty<Bytes>> = http2_client(&scene, &tasks).await;
    for (host, id) in [("theirs.example.com", None), (HOST, Some(theirs))] {
        let mut request = Request::get(format!("http://{host}/"));
        if let Some(id) = id {
            request = request.header("x-deployment-id", id.to_string());
        }
        let response = client.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{host}");
    }
    assert!(recorder.take().is_empty());
}
