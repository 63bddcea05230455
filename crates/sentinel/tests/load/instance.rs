//! Instances that fall ill when they are told to.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use runtime::{clock::Clock, shutdown::Tasks};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::scene::{find, header};

/// What an instance does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    Well,
    /// Nobody listens, and whoever was connected is not any more.
    Dead,
    Resets,
    HalfCloses,
    Stalls,
    Garbage,
}

impl Behaviour {
    pub const ILL: [Behaviour; 5] =
        [Behaviour::Dead, Behaviour::Resets, Behaviour::HalfCloses, Behaviour::Stalls, Behaviour::Garbage];

    pub fn name(self) -> &'static str {
        match self {
            Behaviour::Well => "well",
            Behaviour::Dead => "one is dead",
            Behaviour::Resets => "one resets",
            Behaviour::HalfCloses => "one half-closes",
            Behaviour::Stalls => "one stalls",
            Behaviour::Garbage => "one answers garbage",
        }
    }
}

/// All instances of a deployment.
pub struct Fleet(Vec<Member>);

struct Member {
    state: Arc<State>,
    life: Mutex<Tasks>,
    is_listed: AtomicBool,
}

struct State {
    address: Mutex<SocketAddr>,
    behaviour: Mutex<Behaviour>,
    is_ill: AtomicBool,
    asked: AtomicU64,
    under_way: AtomicI64,
}

impl Fleet {
    pub async fn start(count: usize) -> Fleet {
        let mut all = Vec::new();
        for _ in 0..count {
            let address = Mutex::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            let state = Arc::new(State {
                address,
                behaviour: Mutex::new(Behaviour::Well),
                is_ill: AtomicBool::new(false),
                asked: AtomicU64::new(0),
                under_way: AtomicI64::new(0),
            });
            let member = Member { state, life: Mutex::new(Tasks::new()), is_listed: AtomicBool::new(true) };
            member.begin().await;
            all.push(member);
        }
        Fleet(all)
    }

    /// Where requests may be led to.
    pub fn listed(&self) -> Vec<SocketAddr> {
        let listed = self.0.iter().filter(|member| member.is_listed.load(Ordering::SeqCst));
        listed.map(|member| member.state.address()).collect()
    }

    pub fn list(&self, nth: usize, is_listed: bool) {
        self.0[nth].is_listed.store(is_listed, Ordering::SeqCst);
    }

    /// How many requests it has had.
    pub fn asked(&self, nth: usize) -> u64 {
        self.0[nth].state.asked.load(Ordering::SeqCst)
    }

    /// What everybody does, for whoever wonders about an answer.
    pub fn states(&self) -> String {
        let of = |member: &Member| {
            let behaviour = member.state.behaviour();
            let ill = if member.state.is_ill.load(Ordering::SeqCst) { " ill" } else { "" };
            format!("{} {}{ill}", member.state.address(), behaviour.name())
        };
        self.0.iter().map(of).collect::<Vec<_>>().join(", ")
    }

    pub async fn behave(&self, nth: usize, behaviour: Behaviour) {
        let member = &self.0[nth];
        let before = std::mem::replace(
            &mut *member.state.behaviour.lock().unwrap_or_else(PoisonError::into_inner),
            behaviour,
        );
        // It stays marked for the rest of its phase: what it broke off may be told a little later.
        member.state.is_ill.store(true, Ordering::SeqCst);
        if behaviour == Behaviour::Dead {
            member.life().abort_now();
        } else if before == Behaviour::Dead {
            member.begin().await;
        }
    }

    /// Whatever it broke off is told by now.
    pub fn recovered(&self, nth: usize) {
        self.0[nth].state.is_ill.store(false, Ordering::SeqCst);
    }

    /// Waits until nothing is under way at an instance that is not led to any more.
    pub async fn drain(&self, nth: usize, clock: &Clock) {
        let state = &self.0[nth].state;
        let mut quiet = 0;
        let mut asked = state.asked.load(Ordering::SeqCst);
        // Whoever read the table before may still be on its way here.
        while quiet < 20 {
            clock.sleep(Duration::from_millis(5)).await;
            let now = state.asked.load(Ordering::SeqCst);
            let is_quiet = now == asked && state.under_way.load(Ordering::SeqCst) == 0;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            asked = now;
        }
    }

    /// Ends it and begins another on a port of its own.
    pub async fn restart(&self, nth: usize) {
        let member = &self.0[nth];
        member.life().abort_now();
        *member.state.address.lock().unwrap_or_else(PoisonError::into_inner) =
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        member.begin().await;
    }
}

impl Member {
    fn life(&self) -> Tasks {
        self.life.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn begin(&self) {
        let listener = TcpListener::bind(self.state.address()).await.unwrap();
        *self.state.address.lock().unwrap_or_else(PoisonError::into_inner) = listener.local_addr().unwrap();
        let life = Tasks::new();
        *self.life.lock().unwrap_or_else(PoisonError::into_inner) = life.clone();
        let (state, spawner) = (Arc::clone(&self.state), life.clone());
        life.spawn("instance", async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawner.spawn_one_of_many("connection", Arc::clone(&state).serve(stream));
            }
        });
    }
}

impl State {
    fn address(&self) -> SocketAddr {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn behaviour(&self) -> Behaviour {
        *self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut bytes = Vec::new();
        while read_request(&mut stream, &mut bytes).await {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.under_way.fetch_add(1, Ordering::SeqCst);
            let goes_on = self.answer(&mut stream).await;
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            if !goes_on {
                return;
            }
        }
    }

    async fn answer(&self, stream: &mut TcpStream) -> bool {
        match self.behaviour() {
            Behaviour::Well | Behaviour::Dead => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.is_ok()
            }
            Behaviour::Resets => {
                let _ = stream.set_zero_linger();
                false
            }
            Behaviour::HalfCloses => {
                let _ = stream.shutdown().await;
                let _ = stream.read_u8().await;
                false
            }
            Behaviour::Stalls => {
                let _ = stream.read_u8().await;
                false
            }
            Behaviour::Garbage => {
                let _ = stream.write_all(b"220 mail.example.com ready\r\n\r\n").await;
                false
            }
        }
    }
}

/// Reads one request with its body, if there is one more.
pub async fn read_request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> bool {
    loop {
        if let Some(end) = find(bytes, b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end + 2]).to_ascii_lowercase();
            let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                bytes.drain(..end + 4 + length);
                return true;
            }
        }
        if !matches!(stream.read_buf(bytes).await, Ok(1..)) {
            return false;
        }
    }
}

/// A thousand instances on one port: each answers with its number, which it knows from the address it was asked at.
pub struct Generations {
    port: u16,
}

impl Generations {
    pub async fn start(tasks: &Tasks) -> Generations {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let spawner = tasks.clone();
        tasks.spawn("generations", async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawner.spawn_one_of_many("generation", number(stream));
            }
        });
        Generations { port }
    }

    pub fn address(&self, generation: u32) -> SocketAddr {
        let [_, high, middle, low] = generation.to_be_bytes();
        SocketAddr::from(([127, 1 + high, middle, low], self.port))
    }
}

async fn number(mut stream: TcpStream) {
    let SocketAddr::V4(own) = stream.local_addr().unwrap() else { unreachable!("it listens on IPv4") };
    let [_, high, middle, low] = own.ip().octets();
    let body = u32::from_be_bytes([0, high - 1, middle, low]).to_string();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut bytes = Vec::new();
    while read_request(&mut stream, &mut bytes).await {
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
