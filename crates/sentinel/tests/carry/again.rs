//! When a request is sent once more, and when it must not be.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use model::deployment::Protocol;
use runtime::shutdown::Tasks;
use sentinel::{config::ProxyConfig, pool::Spawner};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    get, instance, read_head,
    scene::{HOST, Recorder, Scene},
};

/// What may not be made twice, though it has no body.
fn post(path: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

/// An instance that answers one request on each connection, and breaks the connection when it gets a second.
async fn forgetful(tasks: &Tasks) -> SocketAddr {
    instance(tasks, |mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        read_head(&mut stream).await;
    })
    .await
}

#[tokio::test]
async fn a_connection_that_was_closing_is_not_the_request_s_failure() {
    let tasks = Tasks::new();
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[forgetful(&tasks).await]).await;
    for nth in 0..20 {
        let answers = scene.exchange(&get("/", ""), 1).await;
        assert_eq!(answers.statuses, [200], "request {nth}, of the only instance: {}", answers.text);
    }
    assert_eq!(scene.shared.metrics.ejections.get(), 0);
}

#[tokio::test]
async fn garbage_is_tried_elsewhere_if_the_request_may_be() {
    let tasks = Tasks::new();
    let (recorder, well) = Recorder::start(&tasks).await;
    let garbage = instance(&tasks, |mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"SSH-2.0-nothing\r\n\r\n").await;
    })
    .await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[garbage, well]).await;
    for nth in 0..20 {
        assert_eq!(scene.exchange(&get("/", ""), 1).await.statuses, [200], "request {nth}");
    }
    assert_eq!(recorder.take().len(), 20);
}

#[tokio::test]
async fn an_instance_that_stalls_is_not_waited_for_if_another_may_be_asked() {
    let tasks = Tasks::new();
    let (recorder, well) = Recorder::start(&tasks).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let stalled = instance(&tasks, move |mut stream| {
        let counted = Arc::clone(&counted);
        async move {
            if read_head(&mut stream).await.starts_with("POST") {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            let _ = stream.read_u8().await;
        }
    })
    .await;
    let config =
        ProxyConfig { response_headers_timeout: Duration::from_millis(100), ..ProxyConfig::default() };
    let scene = Scene::new(config, Protocol::Http1, &[stalled, well]).await;
    let mut statuses = Vec::new();
    for _ in 0..30 {
        assert_eq!(scene.exchange(&get("/", ""), 1).await.statuses, [200]);
        statuses.extend(scene.exchange(&post("/"), 1).await.statuses);
    }
    // What may have had an effect is not made twice, but told.
    let (told, answered): (Vec<u16>, Vec<u16>) = statuses.into_iter().partition(|status| *status == 504);
    assert!(answered.iter().all(|status| *status == 200), "{answered:?}");
    let posts = recorder.take().iter().filter(|request| request.starts_with("POST")).count();
    assert_eq!(posts, 30 - told.len());
    assert_eq!(told.len(), asked.load(Ordering::Relaxed), "each that went to the stalled one is told");
    assert!(!told.is_empty(), "the stalled one was never asked");
}

/// An instance of HTTP/2 that answers `limit` requests on each connection, and then says goodbye to it.
async fn mortal(tasks: &Tasks, limit: usize) -> SocketAddr {
    let spawner = tasks.clone();
    instance(tasks, move |stream| {
        let spawner = spawner.clone();
        async move {
            let served = Arc::new(AtomicUsize::new(0));
            let (sender, told) = tokio::sync::watch::channel(false);
            let service = service_fn(|request: Request<Incoming>| {
                let nth = served.fetch_add(1, Ordering::Relaxed) + 1;
                if nth >= limit {
                    sender.send_replace(true);
                }
                async move {
                    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
                    Ok::<_, Infallible>(Response::new(Full::new(body.unwrap_or_default())))
                }
            });
            let server = hyper::server::conn::http2::Builder::new(Spawner(spawner));
            let mut connection = std::pin::pin!(server.serve_connection(TokioIo::new(stream), service));
            let mut told = told;
            let is_told = async { told.wait_for(|told| *told).await.is_ok() };
            tokio::select! {
                _ = connection.as_mut() => {}
                _ = is_told => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_goodbye_of_http_2_loses_no_request() {
    let tasks = Tasks::new();
    let scene = Scene::new(ProxyConfig::default(), Protocol::H2c, &[mortal(&tasks, 5).await]).await;
    let stream = TokioIo::new(scene.connect().await);
    let (sender, connection) =
        hyper::client::conn::http2::handshake(Spawner(tasks.clone()), stream).await.unwrap();
    tasks.spawn("client", async move {
        let _ = connection.await;
    });
    let ask = |nth: usize| {
        let mut sender = sender.clone();
        async move {
            let request =
                Request::get(format!("http://{HOST}/{nth}")).body(Full::<Bytes>::default()).unwrap();
            sender.send_request(request).await.unwrap().status()
        }
    };
    for round in 0..40 {
        let all = futures_util::future::join_all((0..8).map(ask)).await;
        assert_eq!(all, [StatusCode::OK; 8], "round {round}");
    }
    assert_eq!(scene.shared.metrics.ejections.get(), 0, "an instance that says goodbye is well");
}

#[tokio::test]
async fn a_refused_stream_is_tried_elsewhere_whatever_its_method() {
    let tasks = Tasks::new();
    let refusing = instance(&tasks, |stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_request, mut respond))) = connection.accept().await {
            respond.send_reset(h2::Reason::REFUSED_STREAM);
        }
    })
    .await;
    let well = mortal(&tasks, usize::MAX).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::H2c, &[refusing, well]).await;
    for nth in 0..20 {
        let bare = format!("POST /{nth} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\n\r\n");
        let answers = scene.exchange(bare.as_bytes(), 1).await;
        assert_eq!(answers.statuses, [200], "request {nth}: {}", answers.text);
    }
    assert!(scene.shared.metrics.retries.get() > 0, "the refusing one was never asked");
}
