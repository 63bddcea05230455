//! A door to a control plane that can be shut: then every call is answered with 503, and counted. While it is open it
//! can lie about what comes out.
//!
//! ```text
//! agent ──▶ Door ──open──▶ control plane
//!             └────shut──▶ 503
//! ```

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// Listens until it is dropped.
pub struct Door {
    pub url: String,
    is_shut: watch::Sender<bool>,
    turned_away: Arc<AtomicU64>,
    lies: Lies,
    listening: JoinHandle<()>,
}

/// Something that the control plane did not say: the first `from` after `near`, or the last one before it, becomes
/// `to`. They are of one length, so that nothing around them has to change.
#[derive(Debug, Clone)]
pub struct Lie {
    pub near: String,
    pub from: Vec<u8>,
    pub to: Vec<u8>,
    pub is_before: bool,
}

type Lies = Arc<Mutex<Vec<Lie>>>;

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
        let (state, count, lies) = (is_shut.clone(), turned_away.clone(), Lies::default());
        let told = lies.clone();
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut state, count, told) = (state.subscribe(), count.clone(), told.clone());
                tokio::spawn(async move {
                    let is_shut = *state.borrow_and_update();
                    // A connection is one or the other: whoever comes again after a change finds it.
                    tokio::select! {
                        _changed = state.changed() => {}
                        _ended = serve(client, address, is_shut, &count, &told) => {}
                    }
                });
            }
        });
        Door { url, is_shut, turned_away, lies, listening }
    }

    pub fn shut(&self) {
        self.is_shut.send_replace(true);
    }

    pub fn open(&self) {
        self.is_shut.send_replace(false);
    }

    /// Says these from now on, and no others.
    pub fn lie(&self, lies: Vec<Lie>) {
        assert!(lies.iter().all(|lie| lie.from.len() == lie.to.len()), "{lies:?}");
        *self.lies.lock().expect("nobody panics with it") = lies;
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
    lies: &Lies,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    if is_shut {
        return turn_away(&mut client, count).await;
    }
    let mut server = TcpStream::connect(to).await?;
    server.set_nodelay(true)?;
    let ((mut up, mut down), (mut from, mut onwards)) = (client.split(), server.split());
    tokio::select! {
        ended = copy(&mut up, &mut onwards) => ended.map(|_| ()),
        ended = carry(&mut from, &mut down, lies) => ended,
    }
}

/// Hands on what the control plane says, a frame at a time: a message of ours is never cut in two by one.
async fn carry(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    lies: &Lies,
) -> std::io::Result<()> {
    loop {
        let (head, mut payload) = read_frame(from).await?;
        for lie in lies.lock().expect("nobody panics with it").iter() {
            lie.tell(&mut payload);
        }
        to.write_all(&[&head[..], &payload].concat()).await?;
    }
}

impl Lie {
    fn tell(&self, said: &mut [u8]) {
        let find = |said: &[u8], what: &[u8]| said.windows(what.len()).position(|part| part == what);
        let Some(near) = find(said, self.near.as_bytes()) else { return };
        let found = if self.is_before {
            said[..near].windows(self.from.len()).rposition(|part| part == self.from)
        } else {
            find(&said[near..], &self.from).map(|at| near + at)
        };
        if let Some(at) = found {
            said[at..at + self.to.len()].copy_from_slice(&self.to);
        }
    }
}

/// As much of HTTP/2 as it takes to say no. A call begins with one frame of headers; what follows is read and ignored.
async fn turn_away(client: &mut TcpStream, count: &AtomicU64) -> std::io::Result<()> {
    client.read_exact(&mut [0; PREFACE]).await?;
    client.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let ([.., kind, flags, a, b, c, d], payload) = read_frame(client).await?;
        let answer = match kind {
            HEADERS => {
                count.fetch_add(1, Ordering::Relaxed);
                frame(HEADERS, ENDS, u32::from_be_bytes([a, b, c, d]), &UNAVAILABLE)
            }
            SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(PING, ACK, 0, &payload),
            _ => continue,
        };
        client.write_all(&answer).await?;
    }
}

/// Its head and what is in it.
async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<([u8; 9], Vec<u8>)> {
    let mut head = [0; 9];
    from.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    assert!(length <= FRAME_MAX, "a frame of {length} bytes");
    let mut payload = vec![0; length];
    from.read_exact(&mut payload).await?;
    Ok((head, payload))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}
