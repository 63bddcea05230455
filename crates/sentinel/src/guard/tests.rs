//! What passes and what does not, whole and in pieces.

use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

fn looked(bytes: &[u8]) -> Result<usize, (usize, Client)> {
    Framing::new(HeadLimits::default()).look(bytes)
}

fn pace() -> Pace {
    Pace::new(&Clock::system(), Duration::from_secs(30), Duration::from_mins(1))
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn requests_follow_each_other() {
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let chunked =
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n0\r\nA: b\r\n\r\n";
    let all = [GET, post, chunked, b"\r\n", GET].concat();
    assert_eq!(looked(&all), Ok(all.len()));
    let unfinished = [&all[..], b"GET / HTTP/1.1\r\nHos"].concat();
    assert_eq!(looked(&unfinished), Ok(all.len()));
}

#[test]
fn what_came_before_a_refusal_goes_on() {
    let bad = [GET, b"GET / HTTP/1.1\nHost: a\n\n"].concat();
    assert_eq!(looked(&bad).unwrap_err().0, GET.len());
}

#[tokio::test]
async fn a_refusal_is_told_in_its_turn_and_ends_the_connection() {
    let (mut client, server) = tokio::io::duplex(1024);
    let line = Arc::new(Line::default());
    let mut guarded = Guarded::new(server, Vec::new(), HeadLimits::default(), Arc::clone(&line), pace());
    client.write_all(&[GET, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", GET].concat()).await.unwrap();
    let mut read = vec![0; GET.len() + REFUSED.len()];
    guarded.read_exact(&mut read).await.unwrap();
    assert_eq!(read, [GET, REFUSED].concat());
    assert_eq!(line.refusal(), Some(Client::Malformed("there is more than one Host")));
}

#[tokio::test]
async fn an_upgrade_waits_for_the_decision() {
    const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    for opens in [true, false] {
        let (mut client, server) = tokio::io::duplex(1024);
        let line = Arc::new(Line::default());
        let mut guarded = Guarded::new(server, Vec::new(), HeadLimits::default(), Arc::clone(&line), pace());
        client.write_all(&[UPGRADE, b"\x01\x02\n\x03"].concat()).await.unwrap();
        let mut head = vec![0; UPGRADE.len()];
        guarded.read_exact(&mut head).await.unwrap();
        let mut rest = vec![0; 4];
        let read = guarded.read_exact(&mut rest);
        tokio::pin!(read);
        assert!(futures_util::poll!(read.as_mut()).is_pending(), "nobody knows yet what these bytes are");
        if opens {
            line.open();
        } else {
            line.decline();
        }
        read.await.unwrap();
        let expected: &[u8] = if opens { b"\x01\x02\n\x03" } else { &REFUSED[..4] };
        assert_eq!(rest, expected);
    }
}

#[tokio::test]
async fn what_was_read_before_is_looked_at_too() {
    let (_client, server) = tokio::io::duplex(1024);
    let mut guarded = Guarded::new(server, GET.to_vec(), HeadLimits::default(), Arc::default(), pace());
    let mut read = vec![0; GET.len()];
    guarded.read_exact(&mut read).await.unwrap();
    assert_eq!(read, GET);
}

/// What passes when the bytes come in these pieces, as the wrapper shows them.
fn in_pieces(bytes: &[u8], cuts: &[usize]) -> (usize, Option<Client>) {
    let mut framing = Framing::new(HeadLimits::default());
    let (mut passed, mut shown) = (0, 0);
    let ends = cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([bytes.len()]);
    for end in ends {
        shown = shown.max(end);
        match framing.look(&bytes[passed..shown]) {
            Ok(more) => passed += more,
            Err((more, client)) => return (passed + more, Some(client)),
        }
    }
    (passed, None)
}

fn traffic() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(GET.to_vec()),
        Just(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc".to_vec()),
        Just(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_vec()
        ),
        Just(b"GET / HTTP/1.1\nHost: a\n\n".to_vec()),
        Just(b"\r\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(part, 1..5).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn it_does_not_matter_how_the_bytes_are_cut(bytes in traffic(), mut cuts: Vec<usize>) {
        cuts.iter_mut().for_each(|cut| *cut %= bytes.len() + 1);
        cuts.sort_unstable();
        let whole = in_pieces(&bytes, &[]);
        let pieces = in_pieces(&bytes, &cuts);
        prop_assert_eq!(whole.1.is_some(), pieces.1.is_some());
        prop_assert_eq!(whole.0, pieces.0);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let _ = looked(&bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_come_to_its_end_is_refused() {
    let (mut client, server) = tokio::io::duplex(1024);
    let line = Arc::new(Line::default());
    let begun = Clock::system().instant();
    let mut guarded = Guarded::new(server, Vec::new(), HeadLimits::default(), Arc::clone(&line), pace());
    let dawdle = async {
        // A byte every ten seconds is not quiet, and yet no head.
        for byte in b"GET / HT" {
            client.write_all(&[*byte]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    let mut read = vec![0; REFUSED.len()];
    tokio::select! {
        () = dawdle => panic!("it was waited for"),
        read = guarded.read_exact(&mut read) => read.unwrap(),
    };
    assert_eq!(read, REFUSED);
    assert_eq!(line.refusal(), Some(Client::TooSlow));
    assert_eq!(Clock::system().instant() - begun, Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_cut() {
    let (mut client, server) = tokio::io::duplex(16);
    let mut guarded = Guarded::new(server, Vec::new(), HeadLimits::default(), Arc::default(), pace());
    guarded.write_all(&[1; 16]).await.unwrap();
    let begun = Clock::system().instant();
    let take = async {
        tokio::time::sleep(Duration::from_secs(50)).await;
        client.read_exact(&mut [0; 8]).await.unwrap();
        std::future::pending::<()>().await;
    };
    let error = tokio::select! {
        () = take => unreachable!("it waits for ever"),
        written = guarded.write_all(&[1; 16]) => written.unwrap_err(),
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(
        Clock::system().instant() - begun,
        Duration::from_secs(110),
        "what it took began the wait anew"
    );
}

#[tokio::test]
async fn what_begins_as_another_protocol_is_not_answered() {
    let (_client, server) = tokio::io::duplex(1024);
    let begun = b"INVALID CONNECTION PREFACE\r\n\r\n".to_vec();
    let mut guarded = Guarded::new(server, begun, HeadLimits::default(), Arc::default(), pace());
    assert_eq!(guarded.read(&mut [0; 64]).await.unwrap(), 0);
}
