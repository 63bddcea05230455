//! The admin port as a probe, a scraper and an operator see it, over a real socket.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::telemetry::Build;

const DEADLINE: Duration = Duration::from_secs(10);

fn admin() -> Admin {
    Admin {
        readiness: Readiness::new(),
        metrics: Metrics::new(Build { role: "control", version: "1.2.3", revision: "abc" }),
        effective_config: watch::channel("region = \"north\"\n".to_owned()).1,
        tasks: Tasks::new(),
    }
}

async fn any_port(admin: &Admin) -> Bound {
    admin.clone().bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap()
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Sends a request over a connection of its own and returns status line, content type and body.
async fn request(address: SocketAddr, line: &str) -> (String, String, String) {
    let mut stream = connect(address).await;
    let request = format!("{line} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();

    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().trim_start_matches("HTTP/1.1 ").to_owned();
    let content_type = lines.find_map(|line| line.strip_prefix("content-type: ")).unwrap().to_owned();
    (status, content_type, body.to_owned())
}

/// Runs the admin port while `ask` asks it things.
async fn with_running<F: Future<Output = ()>>(admin: &Admin, ask: impl FnOnce(SocketAddr) -> F) {
    let bound = any_port(admin).await;
    let address = bound.address();
    let tasks = admin.tasks.child();
    tokio::join!(bound.run(&tasks), async {
        ask(address).await;
        assert!(tasks.stop(DEADLINE).await.is_clean());
    });
}

#[tokio::test]
async fn health_is_answered_with_its_checks() {
    let admin = admin();
    let store = admin.readiness.component("store");
    with_running(&admin, async |address| {
        let (status, content_type, body) = request(address, "GET /health/ready").await;
        assert_eq!((status.as_str(), content_type.as_str()), ("503 Service Unavailable", "application/json"));
        let checks = r#"[{"name":"store","state":"starting","reason":null}]"#;
        assert_eq!(body, format!(r#"{{"status":"failing","checks":{checks}}}"#));
        assert_eq!(request(address, "GET /health/startup").await.0, "503 Service Unavailable");
        assert_eq!(request(address, "GET /health/live").await.0, "200 OK");

        store.ready();
        let (status, _, body) = request(address, "GET /health/ready?verbose").await;
        assert_eq!(status, "200 OK");
        assert!(body.starts_with(r#"{"status":"ok","#), "{body}");
        assert_eq!(request(address, "GET /health/startup").await.0, "200 OK");

        admin.readiness.draining();
        assert_eq!(request(address, "GET /health/ready").await.0, "503 Service Unavailable");
        assert_eq!(request(address, "GET /health/live").await.0, "200 OK");
    })
    .await;
}

#[tokio::test]
async fn metrics_configuration_and_tasks_can_be_read() {
    let admin = admin();
    admin.tasks.spawn("janitor", std::future::pending());
    with_running(&admin, async |address| {
        let (status, content_type, body) = request(address, "GET /metrics").await;
        assert_eq!((status.as_str(), content_type.as_str()), ("200 OK", OPENMETRICS));
        assert!(body.contains("krane_build_info") && body.ends_with("# EOF\n"));

        let (_, content_type, body) = request(address, "GET /config").await;
        assert_eq!(
            (content_type.as_str(), body.as_str()),
            ("text/plain; charset=utf-8", "region = \"north\"\n")
        );

        let (_, _, body) = request(address, "GET /debug/tasks").await;
        let tasks: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(tasks["janitor"], 1);
    })
    .await;
}

#[tokio::test]
async fn anything_else_is_refused() {
    let admin = admin();
    with_running(&admin, async |address| {
        assert_eq!(request(address, "GET /").await.0, "404 Not Found");
        assert_eq!(request(address, "GET /metrics/").await.0, "404 Not Found");
        assert_eq!(request(address, "POST /metrics").await.0, "405 Method Not Allowed");
    })
    .await;
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_stop() {
    let admin = admin();
    let mut idle = None;
    with_running(&admin, async |address| {
        idle = Some(connect(address).await);
        // An answer on another connection proves that the idle one has been accepted: they come in order.
        request(address, "GET /health/live").await;
    })
    .await;
    assert_eq!(idle.unwrap().read(&mut [0; 1]).await.unwrap(), 0, "the connection is closed");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = any_port(&admin()).await;
    let error = admin().bind(taken.address()).await.err().unwrap();
    assert_eq!(error.to_string(), format!("cannot listen on {} for the admin port", taken.address()));
    assert!(std::error::Error::source(&error).is_some());
}
