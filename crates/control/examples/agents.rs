//! A load of agents: opens their watches as agents do, over few connections, and counts what arrives.
//!
//! ```text
//! agents --url http://127.0.0.1:7070 --places FILE [--agents 100] [--connections 4] [--watches 3] [--beat 10]
//! ```
//!
//! `FILE` has a line for each place: the place, a space, and an agent's token for it. Agents are dealt out
//! to the places in turn. It prints JSON, a line for each thing it says, and is told what to do on its input.
//! Times are microseconds since 1970.
//!
//! | order | is answered with |
//! | --- | --- |
//! | (none) | `{"said":"open",…}`, once every watch has its `INIT_DONE` |
//! | `report` | a `{"said":"version",…}` for each version: how many watches were given it, and when; then counts |
//! | `wait 100` | `{"said":"arrived",…}`: when each state arrived that was not told before, once there are 100 |
//! | `beat` | `{"said":"beating"}`: from now on there are heartbeats, as there are at once with `--beat` |
//! | `stop`, end of input | `{"said":"counts",…}`, everything so far |

use std::{
    collections::BTreeMap,
    io::{BufRead as _, Write as _},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use connectrpc::{
    ConnectError,
    client::{ClientConfig, Http2Connection, SharedHttp2Connection},
};
use model::{
    name::{Line, Placement},
    watch::Cursor,
};
use serde_json::{Value as Json, json};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use wire::{
    proto::{self, __buffa::view::oneof, ClusterServiceClient, bookmark},
    request::{Caller, Watch},
};

/// What the binary ships with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Client = ClusterServiceClient<SharedHttp2Connection>;

/// How long one that lost its stream waits before it comes again.
const PAUSE: Duration = Duration::from_millis(200);

/// Requests that wait for their turn on one connection.
const QUEUED: usize = 1024;

/// How many come before the next do: a server's queue for new connections is short.
const TOGETHER: usize = 100;

/// How often an agent beats if nobody says.
const BEAT: Duration = Duration::from_secs(10);

/// How often it is looked whether what is waited for has come.
const LOOK: Duration = Duration::from_millis(1);

/// Everything that is counted, by all agents together.
#[derive(Default)]
struct Counts {
    open: AtomicU64,
    inits: AtomicU64,
    states: AtomicU64,
    alive: AtomicU64,
    beats: AtomicU64,
    failed_beats: AtomicU64,
    ended: AtomicU64,
    /// Of the states that were not told of yet.
    bytes: AtomicU64,
    /// When each version arrived, at each watch that it arrived at.
    arrivals: Mutex<BTreeMap<u64, Vec<u64>>>,
}

/// What a message of a watch is.
enum Message {
    Init,
    InitDone,
    Alive,
    State { version: u64, bytes: u64 },
}

/// What the command line says.
pub struct Options {
    url: http::Uri,
    places: Vec<(Placement, String)>,
    agents: usize,
    connections: usize,
    watches: usize,
    beat: Duration,
}

#[tokio::main]
pub async fn main() {
    let options = Options::read();
    let counts = Arc::<Counts>::default();
    let (start, started) = watch::channel(!options.beat.is_zero());
    let mut agents = JoinSet::new();
    let connections: Vec<_> = (0..options.connections).map(|_| connect(&options.url)).collect();
    for number in 0..options.agents {
        let (placement, token) = &options.places[number % options.places.len()];
        let config = ClientConfig::new(options.url.clone())
            .with_default_header("authorization", format!("Bearer {token}"));
        let client = Client::new(connections[number % connections.len()].clone(), config);
        let instance: Line = format!("load-{number}").parse().expect("a line");
        let caller = Caller { placement: placement.clone(), instance: Some(instance) };
        for kind in 0..options.watches {
            agents.spawn(follow(client.clone(), caller.clone(), kind, counts.clone()));
        }
        let every = if options.beat.is_zero() { BEAT } else { options.beat };
        agents.spawn(beat(client, caller, every, number, counts.clone(), started.clone()));
        if number % TOGETHER == TOGETHER - 1 {
            counts.opened((number + 1) * options.watches).await;
        }
    }
    let watches = options.agents * options.watches;
    counts.opened(watches).await;
    say(&json!({ "said": "open", "watches": watches, "at_us": now_us() }));
    let mut told = orders();
    while let Some(order) = told.recv().await {
        match order.split_once(' ').unwrap_or((&order, "")) {
            ("report", _) => counts.report(),
            ("wait", count) => counts.wait(count.parse().expect("wait for a number")).await,
            ("beat", _) => {
                start.send_replace(true);
                say(&json!({ "said": "beating" }));
            }
            ("stop", _) => break,
            (other, _) => eprintln!("`report`, `wait`, `beat` or `stop`, not {other:?}"),
        }
    }
    counts.report();
    agents.abort_all();
}

fn connect(url: &http::Uri) -> SharedHttp2Connection {
    Http2Connection::builder()
        .keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true)
        .lazy_plaintext(url.clone())
        .shared(QUEUED)
}

/// Keeps one watch open, and resumes it from what it saw.
async fn follow(client: Client, caller: Caller, kind: usize, counts: Arc<Counts>) {
    let mut cursor = Cursor::default();
    let mut is_open = false;
    loop {
        let watch = Watch { caller: caller.clone(), cursor };
        let mut see = |message: Message, version: u64, history: &str| {
            counts.see(&message);
            match message {
                Message::InitDone | Message::Alive => {
                    cursor = wire::request::cursor(version, history).expect("a bookmark has a history");
                    if !std::mem::replace(&mut is_open, true) {
                        counts.open.fetch_add(1, Ordering::Relaxed);
                    }
                }
                // Inside an `INIT` the cursor stays where it was.
                Message::State { version, .. } if is_open => {
                    cursor.version = model::watch::Version::new(version);
                }
                Message::State { .. } | Message::Init => {}
            }
        };
        let ended = match kind {
            0 => deployments(&client, &watch, &mut see).await,
            1 => sentinels(&client, &watch, &mut see).await,
            _ => network_policies(&client, &watch, &mut see).await,
        };
        counts.ended.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = ended {
            eprintln!("{}: {error}", caller.placement);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads a stream of one kind to its end.
macro_rules! read {
    ($name:ident, $call:ident, $oneof:ident) => {
        async fn $name(
            client: &Client,
            watch: &Watch,
            see: &mut (dyn FnMut(Message, u64, &str) + Send),
        ) -> Result<(), ConnectError> {
            let mut stream = client.$call(watch.into()).await?;
            while let Some(message) = stream.message().await? {
                let view = message.view();
                match &view.state {
                    Some(oneof::$oneof::State::Bookmark(mark)) => {
                        let kind = mark.kind.as_known().map_or(Message::Init, Message::of);
                        see(kind, mark.version, mark.history);
                    }
                    Some(_) | None => {
                        let bytes = message.bytes().len() as u64;
                        see(Message::State { version: view.version, bytes }, view.version, "");
                    }
                }
            }
            stream.error().map_or(Ok(()), |error| Err(error.clone()))
        }
    };
}

read!(deployments, watch_deployments, deployment_state);
read!(sentinels, watch_sentinels, sentinel_state);
read!(network_policies, watch_cilium_network_policies, cilium_network_policy_state);

/// Renews a lease as an agent does that holds no term. They start at different times.
async fn beat(
    client: Client,
    caller: Caller,
    every: Duration,
    number: usize,
    counts: Arc<Counts>,
    mut started: watch::Receiver<bool>,
) {
    if started.wait_for(|started| *started).await.is_err() {
        return;
    }
    let phase = u32::try_from(number % 100).expect("less than a hundred");
    tokio::time::sleep(every * phase / 100).await;
    loop {
        let region = proto::RegionKey {
            platform: caller.placement.region.platform.to_string(),
            name: caller.placement.region.name.to_string(),
        };
        let heartbeat = proto::HeartbeatRequest {
            region: region.into(),
            shard: caller.placement.shard.to_string(),
            instance_id: caller.instance.as_ref().map(ToString::to_string).unwrap_or_default(),
            agent_version: "0.1.0".to_owned(),
            ..Default::default()
        };
        let counter = match client.heartbeat(heartbeat).await {
            Ok(_) => &counts.beats,
            Err(_) => &counts.failed_beats,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(every).await;
    }
}

impl Message {
    fn of(kind: bookmark::Kind) -> Self {
        match kind {
            bookmark::Kind::KIND_INIT_DONE => Self::InitDone,
            bookmark::Kind::KIND_ALIVE => Self::Alive,
            bookmark::Kind::KIND_INIT | bookmark::Kind::KIND_UNSPECIFIED => Self::Init,
        }
    }
}

impl Counts {
    fn see(&self, message: &Message) {
        let counter = match message {
            Message::Init => &self.inits,
            Message::InitDone => return,
            Message::Alive => &self.alive,
            Message::State { version, bytes } => {
                let now = now_us();
                self.bytes.fetch_add(*bytes, Ordering::Relaxed);
                let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                arrivals.entry(*version).or_default().push(now);
                &self.states
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until so many watches have their `INIT_DONE`.
    async fn opened(&self, watches: usize) {
        while self.open.load(Ordering::Relaxed) < watches as u64 {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until so many states have arrived that were not told of, and tells when each did.
    async fn wait(&self, states: usize) {
        let arrivals = loop {
            if let Some(arrivals) = self.take(states) {
                break arrivals;
            }
            tokio::time::sleep(LOOK).await;
        };
        let mut times: Vec<u64> = arrivals.into_values().flatten().collect();
        times.sort_unstable();
        say(&json!({ "said": "arrived", "at_us": times, "bytes": self.bytes.swap(0, Ordering::Relaxed) }));
    }

    /// What has arrived, if it is so much.
    fn take(&self, states: usize) -> Option<BTreeMap<u64, Vec<u64>>> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let arrived = arrivals.values().map(Vec::len).sum::<usize>();
        (arrived >= states).then(|| std::mem::take(&mut *arrivals))
    }

    fn report(&self) {
        let arrivals = self.take(0).expect("nothing is enough");
        for (version, mut times) in arrivals {
            times.sort_unstable();
            let at = |share: usize| times[(times.len() - 1) * share / 100];
            say(&json!({
                "said": "version", "version": version, "watches": times.len(),
                "first_us": at(0), "p50_us": at(50), "p99_us": at(99), "last_us": at(100),
            }));
        }
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        say(&json!({
            "said": "counts", "open": count(&self.open), "inits": count(&self.inits),
            "states": count(&self.states), "alive": count(&self.alive), "beats": count(&self.beats),
            "failed_beats": count(&self.failed_beats), "ended": count(&self.ended),
        }));
    }
}

impl Options {
    fn read() -> Self {
        let number = |name: &str, otherwise: usize| {
            option(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
        };
        Self {
            url: option("--url").expect("--url URL").parse().expect("a URL"),
            places: Self::places(),
            agents: number("--agents", 100),
            connections: number("--connections", 4).max(1),
            watches: number("--watches", 3).clamp(1, 3),
            beat: Duration::from_secs(number("--beat", 10) as u64),
        }
    }

    /// The places that the command line names a file of, with their tokens.
    pub fn places() -> Vec<(Placement, String)> {
        let path = option("--places").expect("--places FILE");
        let text = std::fs::read_to_string(path).expect("the places can be read");
        let place = |line: &str| {
            let (place, token) = line.split_once(' ').expect("a place, a space and a token");
            (place.parse().expect("a place"), token.trim().to_owned())
        };
        text.lines().filter(|line| !line.is_empty()).map(place).collect()
    }
}

/// What follows a word of the command line.
pub fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// The lines of our input, from a thread of its own: reading them blocks.
pub fn orders() -> mpsc::Receiver<String> {
    let (order, orders) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if order.blocking_send(line.trim().to_owned()).is_err() {
                return;
            }
        }
    });
    orders
}

pub fn say(line: &Json) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody reads what we say");
}

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "compared with the time of a commit in another process, to the microsecond"
)]
pub fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.expect("it is past 1970").as_micros()).expect("it is before the year 500000")
}
