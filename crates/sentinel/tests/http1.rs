//! HTTP/1 as attackers write it: what each request is answered, and what of it an instance may have seen.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "http1/cases.rs"]
mod cases;
#[path = "scene/scene.rs"]
mod scene;

use model::deployment::Protocol;
use runtime::shutdown::Tasks;
use sentinel::config::ProxyConfig;

use cases::{CASES, Case, SMUGGLED};
use scene::{Recorder, Scene, header};

/// What is wrong with how a case went; nothing if all is well.
async fn wrongs(scene: &Scene, recorder: &Recorder, case: &Case) -> Vec<String> {
    let Case { name, sent, answers, received } = case;
    let got = scene.exchange(sent, answers.len()).await;
    let mut wrongs = Vec::new();
    if got.statuses != *answers {
        wrongs.push(format!("{name}: answered {:?}, not {answers:?}", got.statuses));
    }
    let is_refused = answers.last().is_some_and(|status| *status >= 400);
    if is_refused && !got.is_closed {
        wrongs.push(format!("{name}: the connection is still open"));
    }
    if is_refused && !got.text.contains("x-unkey-error-source: sentinel") {
        wrongs.push(format!("{name}: the refusal is not ours: {}", got.text));
    }
    let seen = recorder.take();
    let lines: Vec<String> =
        seen.iter().map(|request| request.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    if lines != *received {
        wrongs.push(format!("{name}: the instance saw {lines:?}, not {received:?}"));
    }
    wrongs.extend(seen.iter().flat_map(|request| ambiguous(name, request)));
    wrongs
}

/// Whatever arrives must be beyond doubt.
fn ambiguous(name: &str, request: &str) -> Vec<String> {
    let head = request.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase();
    let count = |wanted: &str| head.lines().filter(|line| line.starts_with(wanted)).count();
    let mut wrongs = Vec::new();
    if count("content-length:") + count("transfer-encoding:") > 1 || count("host:") != 1 {
        wrongs.push(format!("{name}: what arrived can be read in two ways: {head}"));
    }
    if request.contains(SMUGGLED) {
        wrongs.push(format!("{name}: what was hidden has arrived"));
    }
    if request.to_ascii_lowercase().contains("x-unkey-") || header(&head, "connection").is_some() {
        wrongs.push(format!("{name}: what is not the instance's has arrived: {request}"));
    }
    wrongs
}

#[tokio::test]
async fn no_request_is_read_in_two_ways() {
    assert!(CASES.len() >= 100, "there are {}", CASES.len());
    let tasks = Tasks::new();
    let (recorder, address) = Recorder::start(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[address]).await;
    let mut all = Vec::new();
    for case in CASES {
        all.extend(wrongs(&scene, &recorder, case).await);
    }
    assert!(all.is_empty(), "{} of {} cases:\n{}", all.len(), CASES.len(), all.join("\n"));
}

#[tokio::test]
async fn what_is_too_large_is_refused_as_that() {
    let tasks = Tasks::new();
    let (recorder, address) = Recorder::start(&tasks).await;
    let config = ProxyConfig { body_max: runtime::config::ByteSize::bytes(10), ..ProxyConfig::default() };
    let scene = Scene::new(config, Protocol::Http1, &[address]).await;
    let head = |rest: &str| format!("GET / HTTP/1.1\r\nHost: a.example.com\r\n{rest}\r\n");
    let many: Vec<String> = (0..200).map(|nth| format!("X-{nth}: 1\r\n")).collect();
    let long = format!("GET /{} HTTP/1.1\r\nHost: a.example.com\r\n\r\n", "a".repeat(20_000));
    let endless = format!("GET /{}", "a".repeat(100_000));
    let chunks = format!("{}{}", "6\r\nhello!\r\n".repeat(3), "0\r\n\r\n");
    for (name, sent, status) in [
        ("a large header", head(&format!("X: {}\r\n", "a".repeat(70_000))), 431),
        ("many headers", head(&many.concat()), 431),
        ("a long target", long, 414),
        ("a target without an end", endless, 414),
        (
            "a large body",
            "POST / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 11\r\n\r\nhello world".to_owned(),
            413,
        ),
        (
            "a large body in chunks",
            format!("POST / HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"),
            413,
        ),
    ] {
        let got = scene.exchange(sent.as_bytes(), 1).await;
        assert_eq!(got.statuses, [status], "{name}: {}", got.text);
        assert!(got.is_closed, "{name}");
        assert!(recorder.take().is_empty(), "{name}");
    }
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_one_request() {
    use tokio::io::AsyncWriteExt as _;
    let tasks = Tasks::new();
    let (recorder, address) = Recorder::start(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[address]).await;
    let mut stream = scene.connect().await;
    stream.set_nodelay(true).unwrap();
    for byte in b"POST /slow HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n" {
        stream.write_all(&[*byte]).await.unwrap();
        stream.flush().await.unwrap();
    }
    assert_eq!(scene::read_answers(&mut stream, 1).await.statuses, [200]);
    assert!(recorder.take()[0].starts_with("POST /slow "));
}
