//! A control plane on a port of its own, and a client that speaks Connect with JSON over HTTP/1.1.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use control::{Control, Parts, config::ControlConfig, tokens::Tokens};
use model::{event::EventKind, watch::Version};
use runtime::{
    clock::Clock,
    random::Random,
    ready::Readiness,
    shutdown::Tasks,
    telemetry::{Build, Metrics},
};
use store::Store;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

pub struct Plane {
    pub store: Store,
    pub tokens: Tokens,
    address: SocketAddr,
    tasks: Tasks,
    home: tempfile::TempDir,
}

/// The answer to a request, as it comes.
pub struct Answer {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Plane {
    pub async fn start(change: impl FnOnce(&mut ControlConfig)) -> Plane {
        let home = tempfile::tempdir().unwrap();
        let mut config = ControlConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            directory: home.path().join("state"),
            drain: Duration::from_secs(5),
            ..ControlConfig::default()
        };
        config.lease.tick = Duration::from_millis(50);
        change(&mut config);
        let (clock, random, tasks) = (Clock::system(), Random::system(), Tasks::new());
        let parts = Parts {
            clock: clock.clone(),
            random: random.clone(),
            tasks: tasks.clone(),
            readiness: Readiness::new(),
            metrics: Metrics::new(Build { role: "control", version: "0.0.0", revision: "test" }),
        };
        let control = Control::open(config, parts).await.expect("it opens");
        let store = control.store().clone();
        let bound = control.bind().await.expect("a port is free");
        let address = bound.address();
        tasks.spawn_essential("control", bound.run());
        Plane { tokens: Tokens::new(&store, &clock, &random), store, address, tasks, home }
    }

    pub fn home(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// The code of the answer to a call, or `ok`.
    pub async fn code(&self, path: &str, token: Option<&str>, body: &str) -> String {
        let answer = self.send(path, token, "application/json", body.as_bytes()).await.read_to_end().await;
        if answer.starts_with("HTTP/1.1 200") {
            return "ok".to_owned();
        }
        let code = answer.split("\"code\":\"").nth(1).and_then(|rest| rest.split('"').next());
        code.unwrap_or_else(|| panic!("no code in {answer}")).to_owned()
    }

    /// Opens a stream.
    pub async fn open(&self, path: &str, token: &str, body: &str) -> Answer {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let enveloped = [&[0], length.as_slice(), body.as_bytes()].concat();
        self.send(path, Some(token), "application/connect+json", &enveloped).await
    }

    pub async fn events(&self) -> Vec<EventKind> {
        let events = self.store.events(Version::ZERO, 1000).await.unwrap();
        events.into_iter().map(|(_, event)| event.kind).collect()
    }

    pub async fn end(self) {
        assert!(self.tasks.stop(Duration::from_secs(20)).await.is_clean());
        assert_eq!(self.tasks.failure(), None);
    }

    async fn send(&self, path: &str, token: Option<&str>, content: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        let authorization = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: {content}\r\n\
             content-length: {}\r\n{authorization}\r\n",
            self.address,
            body.len(),
        );
        stream.write_all(&[head.as_bytes(), body].concat()).await.expect("it reads");
        Answer { stream, read: Vec::new() }
    }
}

impl Answer {
    /// Reads until a text has come.
    pub async fn read_until(&mut self, text: &str) {
        while !self.text().contains(text) {
            assert!(self.read_some().await, "it ended before {text}: {}", self.text());
        }
    }

    /// All of it, once the other side has ended it.
    pub async fn read_to_end(&mut self) -> String {
        while self.read_some().await {}
        self.text()
    }

    async fn read_some(&mut self) -> bool {
        let read = tokio::time::timeout(Duration::from_mins(1), self.stream.read_buf(&mut self.read)).await;
        read.unwrap_or_else(|_| panic!("nothing more came after: {}", self.text())).expect("it can be read")
            > 0
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }
}
