//! How connections end: by age, with the server, for silence, and by a bug in an answer.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::AsyncWriteExt;

use super::*;

const BOTH: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

#[tokio::test(start_paused = true)]
async fn a_response_under_way_is_finished_when_its_connection_is_too_old() {
    for version in BOTH {
        let gate = CancellationToken::new();
        let config = HttpConfig { age: Some(60 * SECOND), ..HttpConfig::default() };
        let running = Running::new(config, None, {
            let gate = gate.clone();
            move |_| std::future::ready(halves(gate.clone()))
        });
        let mut client = running.client(version).await;
        let mut body = client.get().await.unwrap().into_body();
        assert_eq!(next(&mut body).await, "first ");

        running.clock.sleep(70 * SECOND).await;
        assert_eq!(running.tasks.running().get("connection"), Some(&1), "it may finish");
        gate.cancel();
        assert_eq!(text(body).await.unwrap(), "second");
        assert!(client.get().await.is_err(), "{version:?}: it takes no request any more");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_outlives_the_grace_of_an_old_connection_is_dropped() {
    for version in BOTH {
        let dropped = CancellationToken::new();
        let config = HttpConfig { age: Some(60 * SECOND), age_grace: 20 * SECOND, ..HttpConfig::default() };
        let running = Running::new(config, None, {
            let dropped = dropped.clone();
            move |_| never(dropped.clone())
        });
        let begun = running.clock.instant();
        let mut client = running.client(version).await;
        assert!(client.get().await.is_err());
        dropped.cancelled().await;
        let lived = running.clock.instant() - begun;
        assert!((74 * SECOND..=86 * SECOND).contains(&lived), "{version:?}: {lived:?}");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_at_its_age() {
    let config = HttpConfig { age: Some(60 * SECOND), ..HttpConfig::default() };
    let running = Running::new(config, None, |_| std::future::ready(whole("hello")));
    let mut client = running.client(Version::HTTP_2).await;
    assert_eq!(text(client.get().await.unwrap().into_body()).await.unwrap(), "hello");

    running.clock.sleep(50 * SECOND).await;
    assert_eq!(running.tasks.running().get("connection"), Some(&1));
    running.clock.sleep(20 * SECOND).await;
    assert_eq!(running.tasks.running().get("connection"), None);
    assert!(client.get().await.is_err());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopping_server_accepts_nobody_and_finishes_what_it_began() {
    for version in BOTH {
        let gate = CancellationToken::new();
        let running = Running::new(HttpConfig::default(), None, {
            let gate = gate.clone();
            move |_| std::future::ready(halves(gate.clone()))
        });
        let mut client = running.client(version).await;
        let mut body = client.get().await.unwrap().into_body();
        assert_eq!(next(&mut body).await, "first ");

        tokio::join!(running.stop(), async {
            running.clock.sleep(SECOND).await;
            assert!(running.pipes.is_closed(), "nobody is accepted");
            gate.cancel();
            assert_eq!(text(body).await.unwrap(), "second");
        });
        assert!(client.get().await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn what_outlives_the_drain_is_dropped() {
    for version in BOTH {
        let dropped = CancellationToken::new();
        let (asked, mut heard) = mpsc::channel(1);
        let config = HttpConfig { drain: 10 * SECOND, ..HttpConfig::default() };
        let running = Running::new(config, None, {
            let dropped = dropped.clone();
            move |_| {
                asked.try_send(()).unwrap();
                never(dropped.clone())
            }
        });
        let mut client = running.client(version).await;
        tokio::join!(
            async {
                assert!(client.get().await.is_err());
            },
            async {
                heard.recv().await.unwrap();
                let begun = running.clock.instant();
                running.stop().await;
                let drained = running.clock.instant() - begun;
                assert!((10 * SECOND..11 * SECOND).contains(&drained), "{version:?}: {drained:?}");
            }
        );
        assert!(dropped.is_cancelled(), "{version:?}: the answer is gone with its connection");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_an_end_is_told_when_its_connection_is_to_close() {
    for version in BOTH {
        let config = HttpConfig { age: Some(60 * SECOND), ..HttpConfig::default() };
        let running = Running::new(config, None, |request| {
            let closing = request.extensions().get::<Closing>().unwrap().clone();
            assert!(!closing.is_closing());
            async move { halves(closing.0) }
        });
        let old = running.client(version).await.get().await.unwrap().into_body();
        assert_eq!(text(old).await.unwrap(), "first second");

        let stopped = running.client(version).await.get().await.unwrap().into_body();
        let (answer, ()) = tokio::join!(text(stopped), running.stop());
        assert_eq!(answer.unwrap(), "first second");
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_nothing_is_closed_after_the_header_timeout() {
    let pieces: [&[u8]; 4] =
        [b"", b"PRI * HTTP/2.0\r\n\r\n", b"GET / HT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];
    for sent in pieces {
        // Without pings it is only this timeout that ends the last of them.
        let config = HttpConfig { keep_alive_interval: DEADLINE, ..HttpConfig::default() };
        let running = Running::new(config, None, |_| std::future::ready(whole("hello")));
        let begun = running.clock.instant();
        let mut pipe = running.dial().await;
        pipe.write_all(sent).await.unwrap();
        let _ = pipe.read_to_end(&mut Vec::new()).await;
        let lived = running.clock.instant() - begun;
        assert!((30 * SECOND..61 * SECOND).contains(&lived), "{}: {lived:?}", sent.escape_ascii());
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_http_1_connection_that_falls_silent_gives_its_place_back() {
    let config = HttpConfig { age: None, ..HttpConfig::default() };
    let running = Running::new(config, None, |_| std::future::ready(whole("hello")));
    let mut client = running.client(Version::HTTP_11).await;
    assert_eq!(text(client.get().await.unwrap().into_body()).await.unwrap(), "hello");
    running.clock.sleep(31 * SECOND).await;
    assert_eq!(running.tasks.running().get("connection"), None);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_cuts_off_its_own_request_and_no_other() {
    let (is_first, gate) = (Arc::new(AtomicBool::new(true)), CancellationToken::new());
    let running = Running::new(HttpConfig::default(), None, {
        let gate = gate.clone();
        move |_| {
            let panics = is_first.swap(false, Ordering::Relaxed);
            let gate = gate.clone();
            async move {
                assert!(!panics, "a bug in an answer");
                halves(gate)
            }
        }
    });
    let mut client = running.client(Version::HTTP_2).await;
    assert!(client.get().await.is_err());
    gate.cancel();
    let answer = client.get().await.unwrap();
    assert_eq!(text(answer.into_body()).await.unwrap(), "first second");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_beyond_the_limit_waits_for_a_place() {
    let config = HttpConfig { connections_max: 1, ..HttpConfig::default() };
    let running = Running::new(config, None, |_| std::future::ready(whole("hello")));
    let mut first = running.client(Version::HTTP_11).await;
    assert_eq!(first.get().await.unwrap().status(), StatusCode::OK);

    let mut second = running.client(Version::HTTP_11).await;
    let mut answer = std::pin::pin!(second.get());
    let early = tokio::time::timeout(10 * SECOND, answer.as_mut()).await;
    assert!(early.is_err(), "the only place is taken");
    drop(first);
    assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    running.stop().await;
}
