//! A door to a control plane that can be shut: then every call is answered with 503, and counted.
//!
//! ```text
//! agent ──▶ Door ──open──▶ control plane
//!             └────shut──▶ 503
//! ```

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// Listens until it is dropped.
pub struct Door {
    pub url: String,
    is_shut: watch::Sender<bool>,
    turned_away: Arc<AtomicU64>,
    listening: JoinHandle<()>,
}

/// What a client of HTTP/2 says first.
const PREFACE: usize = 24;
/// The kinds of frames that are answered here.
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;
/// The end of the headers and of the stream.
const ENDS: u8 = 5;
/// `:status: 503`, its name by its number in the static table.
const UNAVAILABLE: [u8; 5] = [0x08, 0x03, b'5', b'0', b'3'];
/// Far more than a call of ours has.
const FRAME_MAX: usize = 1 << 20;

impl Door {
    /// An open door to this address.
    pub async fn to(address: SocketAddr) -> Door {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let (is_shut, turned_away) = (watch::Sender::new(false), Arc::<AtomicU64>::default());
        let (state, count) = (is_shut.clone(), turned_away.clone());
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut state, count) = (state.subscribe(), count.clone());
                tokio::spawn(async move {
                    let is_shut = *state.borrow_and_update();
                    // A connection is one or the other: whoever comes again after a change finds it.
                    tokio::select! {
                        _changed = state.changed() => {}
                        _ended = serve(client, address, is_shut, &count) => {}
                    }
                });
            }
        });
        Door { url, is_shut, turned_away, listening }
    }

    pub fn shut(&self) {
        self.is_shut.send_replace(true);
    }

    pub fn open(&self) {
        self.is_shut.send_replace(false);
    }

    /// How many calls found it shut.
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(
    mut client: TcpStream,
    to: SocketAddr,
    is_shut: bool,
    count: &AtomicU64,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    if is_shut {
        return turn_away(&mut client, count).await;
    }
    let mut server = TcpStream::connect(to).await?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await.map(|_| ())
}

/// As much of HTTP/2 as it takes to say no. A call begins with one frame of headers; what follows is read and ignored.
async fn turn_away(client: &mut TcpStream, count: &AtomicU64) -> std::io::Result<()> {
    client.read_exact(&mut [0; PREFACE]).await?;
    client.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        assert!(length <= FRAME_MAX, "a frame of {length} bytes");
        let mut payload = vec![0; length];
        client.read_exact(&mut payload).await?;
        let answer = match kind {
            HEADERS => {
                count.fetch_add(1, Ordering::Relaxed);
                frame(HEADERS, ENDS, u32::from_be_bytes(stream), &UNAVAILABLE)
            }
            SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(PING, ACK, 0, &payload),
            _ => continue,
        };
        client.write_all(&answer).await?;
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}
