//! Clients that ask all the time, and note every answer that is not as it should be.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use runtime::{clock::Clock, shutdown::Tasks};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Notify,
};

use crate::{
    instance::Fleet,
    scene::{find, header},
};

/// What a request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It may be made twice.
    Get,
    /// It may not.
    Post,
}

/// An answer that was not 2xx.
pub struct Failure {
    pub at: Duration,
    pub asked: Asked,
    /// Zero if there was none.
    pub status: u16,
    /// What every instance did then.
    pub states: String,
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { at, asked, status, states, text } = self;
        write!(f, "{at:?} {asked:?}: {status} while {states}: {text}")
    }
}

/// A constant load.
pub struct Load {
    shared: Arc<Shared>,
}

struct Shared {
    address: SocketAddr,
    hosts: &'static [&'static str],
    fleet: Arc<Fleet>,
    count: AtomicU64,
    failures: Mutex<Vec<Failure>>,
    counted: Notify,
    taken: AtomicU64,
}

/// No phase takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_mins(3);

impl Load {
    pub fn start(
        tasks: &Tasks,
        address: SocketAddr,
        clients: usize,
        hosts: &'static [&'static str],
        fleet: &Arc<Fleet>,
    ) -> Load {
        let shared = Arc::new(Shared {
            address,
            hosts,
            fleet: Arc::clone(fleet),
            count: AtomicU64::new(0),
            failures: Mutex::default(),
            counted: Notify::new(),
            taken: AtomicU64::new(0),
        });
        for nth in 0..clients {
            tasks.spawn("client", Arc::clone(&shared).ask_on(nth, tasks.clone()));
        }
        Load { shared }
    }

    /// Waits for so many more requests.
    pub async fn more(&self, requests: u64) {
        let until = self.shared.count.load(Ordering::SeqCst) + requests;
        let more = async {
            loop {
                let counted = self.shared.counted.notified();
                if self.shared.count.load(Ordering::SeqCst) >= until {
                    return;
                }
                counted.await;
            }
        };
        tokio::time::timeout(PATIENCE, more).await.expect("the load goes on");
    }

    /// How many there were since the last time, and which were not answered well.
    pub fn take(&self) -> (u64, Vec<Failure>) {
        let count = self.shared.count.load(Ordering::SeqCst);
        let before = self.shared.taken.swap(count, Ordering::SeqCst);
        let failures =
            std::mem::take(&mut *self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner));
        (count - before, failures)
    }
}

impl Shared {
    async fn ask_on(self: Arc<Self>, nth: usize, tasks: Tasks) {
        let clock = Clock::system();
        let begun = clock.instant();
        let mut connection = None;
        for round in nth.. {
            if tasks.is_stopping() {
                return;
            }
            let host = self.hosts[round % self.hosts.len()];
            // One in eight may not be made twice.
            let asked = if round % 8 == 0 { Asked::Post } else { Asked::Get };
            let stream = match connection.take() {
                Some(stream) => stream,
                None => TcpStream::connect(self.address).await.unwrap(),
            };
            let states = self.fleet.states();
            let answered = ask(stream, host, asked).await;
            let (status, text) = match answered {
                Ok(answer) => {
                    connection = answer.stream;
                    (answer.status, answer.text)
                }
                Err(error) => (0, error.to_string()),
            };
            if !(200..300).contains(&status) {
                let states = format!("{states} / {}", self.fleet.states());
                let failure = Failure { at: clock.instant() - begun, asked, status, states, text };
                self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
            }
            self.count.fetch_add(1, Ordering::SeqCst);
            self.counted.notify_waiters();
        }
    }
}

/// An answer, and the connection if it may be used again.
struct Answer {
    status: u16,
    text: String,
    stream: Option<TcpStream>,
}

async fn ask(mut stream: TcpStream, host: &str, asked: Asked) -> std::io::Result<Answer> {
    let request = match asked {
        Asked::Get => format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        Asked::Post => format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\n\r\nhello"),
    };
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end + 2]).to_ascii_lowercase();
            let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
                let stays = header(&head, "connection") != Some("close");
                let text = String::from_utf8_lossy(&bytes[end + 4..]).into_owned();
                return Ok(Answer { status, text, stream: stays.then_some(stream) });
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Asks two hosts by turns. What they answer is the number of a switch, which must never go back.
pub struct Reader {
    read: Arc<Read>,
}

#[derive(Default)]
struct Read {
    seen: AtomicU32,
    count: AtomicU64,
    wrongs: Mutex<Vec<String>>,
    is_asked_to_end: AtomicBool,
    has_ended: Notify,
}

impl Reader {
    pub fn start(tasks: &Tasks, address: SocketAddr, hosts: [&'static str; 2]) -> Reader {
        let read = Arc::new(Read::default());
        let reading = Arc::clone(&read);
        tasks.spawn("reader", async move {
            let mut connection = None;
            while !reading.is_asked_to_end.load(Ordering::SeqCst) {
                for host in hosts {
                    let stream = match connection.take() {
                        Some(stream) => stream,
                        None => TcpStream::connect(address).await.unwrap(),
                    };
                    connection = reading.read(stream, host).await;
                }
            }
            reading.has_ended.notify_one();
        });
        Reader { read }
    }

    /// Waits until one of them has read this switch.
    pub async fn someone_reads(readers: &[Reader], generation: u32) {
        let seen = async {
            while !readers.iter().any(|reader| reader.read.seen.load(Ordering::SeqCst) >= generation) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("a switch is read");
    }

    /// How many answers it got, and what was wrong with them.
    pub async fn end(self) -> (u64, Vec<String>) {
        self.read.is_asked_to_end.store(true, Ordering::SeqCst);
        self.read.has_ended.notified().await;
        let wrongs = std::mem::take(&mut *self.read.wrongs.lock().unwrap_or_else(PoisonError::into_inner));
        (self.read.count.load(Ordering::SeqCst), wrongs)
    }
}

impl Read {
    async fn read(&self, stream: TcpStream, host: &str) -> Option<TcpStream> {
        let before = self.seen.load(Ordering::SeqCst);
        let (wrong, next) = match ask(stream, host, Asked::Get).await {
            Ok(Answer { status: 200, text, stream }) => {
                let now: u32 = text.parse().unwrap();
                self.seen.store(now, Ordering::SeqCst);
                let wrong =
                    (now < before).then(|| format!("{host} is at {now} after the other was at {before}"));
                (wrong, stream)
            }
            Ok(Answer { status, text, stream }) => (Some(format!("{host}: {status} {text}")), stream),
            Err(error) => (Some(format!("{host}: {error}")), None),
        };
        self.count.fetch_add(1, Ordering::SeqCst);
        if let Some(wrong) = wrong {
            self.wrongs.lock().unwrap_or_else(PoisonError::into_inner).push(wrong);
        }
        next
    }
}
