//! A reader that holds a stream to its grammar: ordered, unique, nothing after it was said to be past.

use std::{fmt::Debug, pin::Pin, time::Duration};

use connectrpc::{ConnectError, ErrorCode};
use futures_util::{Stream, StreamExt as _};
use model::{
    id::DeploymentId,
    invalid::Invalid,
    watch::{Census, Event, Key, Reader, Received, Standing},
};
use wire::{
    deployment, proto,
    request::{Caller, Sync, Watch, WatchRoutes},
};

use crate::world::{Agent, SentinelClient};

/// Far longer than anything takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

type Messages<M> = Pin<Box<dyn Stream<Item = Result<M, ConnectError>> + Send>>;

/// A stream of the wire as the messages it has, and its end as the last of them.
macro_rules! messages {
    ($call:expr) => {{
        let messages = futures_util::stream::unfold(Some($call.await?), |stream| async move {
            let mut stream = stream?;
            match stream.message().await {
                Ok(Some(message)) => Some((Ok(message.to_owned_message()), Some(stream))),
                Ok(None) => stream.error().cloned().map(|error| (Err(error), None)),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(Box::pin(messages))
    }};
}

pub async fn deployments(
    client: &Agent,
    watch: Watch,
) -> Result<Messages<proto::DeploymentState>, ConnectError> {
    messages!(client.watch_deployments((&watch).into()))
}

pub async fn sentinels(client: &Agent, watch: Watch) -> Result<Messages<proto::SentinelState>, ConnectError> {
    messages!(client.watch_sentinels((&watch).into()))
}

pub async fn changes(
    client: &Agent,
    watch: Watch,
) -> Result<Messages<proto::DeploymentChangeEvent>, ConnectError> {
    messages!(client.watch_deployment_changes((&watch).into()))
}

pub async fn sync(
    client: &Agent,
    sync: Sync,
) -> Result<Messages<proto::DeploymentChangeEvent>, ConnectError> {
    messages!(client.sync_desired_state((&sync).into()))
}

pub async fn routes(
    client: &SentinelClient,
    watch: WatchRoutes,
) -> Result<Messages<proto::RouteEvent>, ConnectError> {
    messages!(client.watch_routes((&watch).into()))
}

/// One stream, what it said, and what its reader makes of it.
pub struct Recorder<M, T> {
    messages: Messages<M>,
    read: Box<dyn Fn(M) -> Result<Event<T>, Invalid> + Send>,
    pub reader: Reader<T>,
    /// The stream so far, in short: `init`, `apply 4`, `delete 5 end`, `done`, `alive`.
    pub said: Vec<String>,
}

pub type DeploymentRecorder = Recorder<proto::DeploymentState, deployment::Desired>;

impl DeploymentRecorder {
    /// Follows the deployments of a place with a reader that may already hold something.
    pub async fn open(client: &Agent, caller: &Caller, reader: Reader<deployment::Desired>) -> Self {
        let watch = Watch { caller: caller.clone(), cursor: reader.cursor() };
        let messages = deployments(client, watch).await.expect("the stream opens");
        let placement = caller.placement.clone();
        Self::new(messages, reader, move |state| deployment::event(state, &placement))
    }
}

impl<M: 'static, T: Clone + Debug + 'static> Recorder<M, T> {
    pub fn new(
        messages: Messages<M>,
        reader: Reader<T>,
        read: impl Fn(M) -> Result<Event<T>, Invalid> + Send + 'static,
    ) -> Self {
        Self { messages, read: Box::new(read), reader, said: Vec::new() }
    }

    /// The next event, after the reader has taken it; the error that ended the stream, if it has ended.
    pub async fn next(&mut self) -> Result<Event<T>, ConnectError> {
        let message = tokio::time::timeout(PATIENCE, self.messages.next()).await.expect("something comes");
        let message = message.expect("a watch does not end by itself")?;
        let event = (self.read)(message).expect("our own message can be read");
        self.said.push(short(&event));
        let received = self.reader.receive(event.clone()).expect("the stream keeps its grammar");
        let is_in_step = !matches!(received, Received::OutOfStep { .. });
        assert!(is_in_step, "both sides count the same: {received:?}");
        Ok(event)
    }

    /// Reads on until `is_enough`, and gives what was said on the way.
    pub async fn until(&mut self, is_enough: impl Fn(&Self, &Event<T>) -> bool) -> Vec<String> {
        let from = self.said.len();
        loop {
            let event = self.next().await.expect("the stream goes on");
            if is_enough(self, &event) {
                return self.said[from..].to_vec();
            }
        }
    }

    /// Everything up to the first `INIT_DONE`.
    pub async fn init(&mut self) -> Vec<String> {
        self.until(|_, event| matches!(event, Event::InitDone(_))).await
    }

    /// Everything up to the end of a picture.
    pub async fn picture(&mut self) -> Vec<String> {
        self.until(|_, event| matches!(event, Event::Apply(change) | Event::Delete(change) if change.end))
            .await
    }

    /// Everything up to the next `ALIVE` that has a census, and that census.
    pub async fn census(&mut self) -> Census {
        loop {
            if let Event::Alive(bookmark) = self.next().await.expect("the stream goes on")
                && let Some(census) = bookmark.census
            {
                assert_eq!(census, self.reader.census());
                return census;
            }
        }
    }

    /// Reads to the end and gives the code it ended with.
    pub async fn end(&mut self) -> ErrorCode {
        loop {
            if let Err(error) = self.next().await {
                return error.code;
            }
        }
    }

    /// The keys of what is known to live.
    pub fn live(&self) -> Vec<Key> {
        let live = |standing: &Standing<T>| matches!(standing, Standing::Known { .. });
        self.reader.iter().filter(|(_, standing)| live(standing)).map(|(key, _)| key.clone()).collect()
    }
}

fn short<T>(event: &Event<T>) -> String {
    let end = |end: bool| if end { " end" } else { "" };
    match event {
        Event::Init => "init".to_owned(),
        Event::Apply(change) => format!("apply {}{}", number(&change.key), end(change.end)),
        Event::Delete(change) => format!("delete {}{}", number(&change.key), end(change.end)),
        Event::InitDone(_) => "done".to_owned(),
        Event::Alive(_) => "alive".to_owned(),
    }
}

/// A sample's number instead of its id, so that it can be read.
fn number(key: &Key) -> String {
    let found = (0..1000).find(|number| key.as_str() == DeploymentId::sample(*number).to_string());
    found.map_or_else(|| key.to_string(), |number| number.to_string())
}
