//! HTTP/2 by hand, for what a client library hides: pings that nobody answers, settings, and the farewell.

use tokio::io::AsyncWriteExt;

use super::*;

const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// The other end of a connection, which does only what it is told to.
struct Hand(DuplexStream);

struct Received {
    kind: u8,
    payload: Vec<u8>,
}

impl Hand {
    async fn new(mut io: DuplexStream) -> Self {
        io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        // Settings, none of them.
        io.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.unwrap();
        Self(io)
    }

    /// Asks with `GET http /`, each of which has a number in the compression's static table.
    async fn get(&mut self) {
        let (headers, end_stream_and_headers) = (1, 0x5);
        let frame = [0, 0, 3, headers, end_stream_and_headers, 0, 0, 0, 1, 0x82, 0x86, 0x84];
        self.0.write_all(&frame).await.unwrap();
    }

    /// The next frame, or nothing if the server has hung up.
    async fn receive(&mut self) -> Option<Received> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Received { kind: head[3], payload })
    }

    async fn receive_all(&mut self) -> Vec<Received> {
        let mut all = Vec::new();
        while let Some(received) = self.receive().await {
            all.push(received);
        }
        all
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_ping_is_gone_after_fifteen_seconds() {
    let dropped = CancellationToken::new();
    let running = Running::new(HttpConfig::default(), None, {
        let dropped = dropped.clone();
        move |_| never(dropped.clone())
    });
    let begun = running.clock.instant();
    let mut hand = Hand::new(running.dial().await).await;
    hand.get().await;

    let received = hand.receive_all().await;
    let lived = running.clock.instant() - begun;
    assert!((15 * SECOND..16 * SECOND).contains(&lived), "{lived:?}");
    assert!(received.iter().any(|frame| frame.kind == PING));
    dropped.cancelled().await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_is_told_to_go_without_an_error() {
    let config = HttpConfig {
        age: Some(60 * SECOND),
        // Nobody here answers pings.
        keep_alive_interval: DEADLINE,
        ..HttpConfig::default()
    };
    let running = Running::new(config, None, |_| std::future::ready(whole("hello")));
    let begun = running.clock.instant();
    let mut hand = Hand::new(running.dial().await).await;
    hand.get().await;

    let farewell = loop {
        let received = hand.receive().await.expect("a farewell comes before the end");
        if received.kind == GOAWAY {
            break received;
        }
    };
    let age = running.clock.instant() - begun;
    assert!((54 * SECOND..=66 * SECOND).contains(&age), "{age:?}");
    assert_eq!(farewell.payload[4..8], [0; 4], "no error is named");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_number_of_streams_is_announced() {
    const MAX_CONCURRENT_STREAMS: [u8; 2] = [0, 3];
    let config = HttpConfig { streams_max: 7, ..HttpConfig::default() };
    let running = Running::new(config, None, |_| std::future::ready(whole("hello")));
    let mut hand = Hand::new(running.dial().await).await;
    let settings = hand.receive().await.unwrap();
    assert_eq!(settings.kind, SETTINGS);
    let streams = settings.payload.chunks(6).find(|setting| setting[..2] == MAX_CONCURRENT_STREAMS).unwrap();
    assert_eq!(streams[2..], [0, 0, 0, 7]);
    running.stop().await;
}
