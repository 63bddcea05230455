//! A client that was made of the base messages alone, and behaves as such clients do.
//!
//! It has no history, no bookmark and no term. Its cursor is the highest version it saw; whatever arrives wins.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use bytes::Bytes;
use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage as _, Value, prost::Message as _,
};

use super::http::{Call, Client, Protocol, Refused};

/// However slow the machine is, news that take longer than this are lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// The messages it knows.
#[derive(Clone)]
pub struct Schema(DescriptorPool);

/// What is held of objects, by kind and name: what they should be, or that they are gone.
pub type Held = BTreeMap<String, String>;

/// Which stream is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Deployments,
    Sentinels,
    NetworkPolicies,
    Changes,
}

/// One stream of such a client, over all its connections.
pub struct Follower {
    pub stream: Stream,
    pub cursor: u64,
    pub held: Held,
    /// How many states it was given, in all.
    pub received: usize,
    caller: Caller,
    call: Option<Call>,
}

/// Who calls whom, and what came of it.
#[derive(Clone)]
pub struct Caller {
    pub client: Client,
    schema: Schema,
    token: String,
}

impl Schema {
    /// Compiles the base messages.
    pub fn compile() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/base");
        let files = protox::compile(["ctrl/v1/base.proto"], [root]).expect("the base messages compile");
        let pool = DescriptorPool::from_file_descriptor_set(files).expect("they are complete");
        let numbers = pool
            .all_messages()
            .flat_map(|message| message.fields().map(|field| field.number()).collect::<Vec<_>>());
        assert!(numbers.max().is_some_and(|number| number < 100), "it knows none of our additions");
        Self(pool)
    }

    fn message(&self, name: &str) -> MessageDescriptor {
        let name = format!("ctrl.v1.{name}");
        self.0.get_message_by_name(&name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// A message with these fields.
    pub fn make(&self, name: &str, fields: &[(&str, Value)]) -> DynamicMessage {
        let mut message = DynamicMessage::new(self.message(name));
        for (field, value) in fields {
            message.set_field_by_name(field, value.clone());
        }
        message
    }

    /// Where it is, as every request says.
    pub fn region(&self) -> Value {
        let fields = [("platform", "aws".into()), ("name", "us-east-1".into())];
        let fields = fields.map(|(name, value): (_, String)| (name, Value::String(value)));
        Value::Message(self.make("RegionKey", &fields))
    }

    fn read(&self, name: &str, bytes: &Bytes) -> DynamicMessage {
        DynamicMessage::decode(self.message(name), bytes.clone()).expect("it reads what it is sent")
    }
}

impl Caller {
    pub fn new(client: Client, schema: &Schema, token: &str) -> Self {
        Self { client, schema: schema.clone(), token: token.to_owned() }
    }

    /// One call; `None` is that it was answered, with a message that such a client does not look into.
    pub async fn call(
        &self,
        method: &str,
        request: &str,
        fields: &[(&str, Value)],
    ) -> Result<Bytes, Refused> {
        let message = self.schema.make(request, fields).encode_to_vec();
        let path = format!("/ctrl.v1.ClusterService/{method}");
        let answer = self.client.ask(Protocol::ConnectProto, &path, Some(&self.token), &message).await;
        if let Err(Refused { code, message }) = &answer {
            assert_ne!(code, "not_found", "{method}: such clients delete what is not found: {message}");
        }
        answer
    }

    pub async fn heartbeat(&self) -> Result<(), Refused> {
        let region = self.schema.region();
        self.call("Heartbeat", "HeartbeatRequest", &[("region", region)]).await.map(drop)
    }

    /// One object by its id: its key and what it should be.
    pub async fn get(&self, stream: Stream, id: &str) -> Result<(String, String), Refused> {
        let (method, field) = match stream {
            Stream::Deployments => ("GetDesiredDeploymentState", "deployment_id"),
            Stream::Sentinels => ("GetDesiredSentinelState", "sentinel_id"),
            Stream::NetworkPolicies => ("GetDesiredCiliumNetworkPolicyState", "cilium_network_policy_id"),
            Stream::Changes => panic!("there is no such thing as a change"),
        };
        let fields = [("region", self.schema.region()), (field, Value::String(id.to_owned()))];
        let answer = self.call(method, &format!("{method}Request"), &fields).await?;
        let (_, key, state) = read_state(stream, &self.schema.read(stream.message(), &answer));
        Ok((key, state))
    }

    /// Everything at once.
    pub async fn sync(&self) -> Result<Held, Refused> {
        let request = self.schema.make("SyncDesiredStateRequest", &[("region", self.schema.region())]);
        let path = "/ctrl.v1.ClusterService/SyncDesiredState";
        let message = request.encode_to_vec();
        let mut call =
            self.client.call(Protocol::ConnectProto, true, path, Some(&self.token), &message).await?;
        let (mut held, mut last) = (Held::new(), 0);
        while let Some(bytes) = call.message().await? {
            let (version, key, state) = read_event(&self.schema.read("DeploymentChangeEvent", &bytes));
            assert!(version > last, "a sync is in the order of versions");
            last = version;
            held.insert(key, state);
        }
        Ok(held)
    }

    pub fn follow(&self, stream: Stream) -> Follower {
        Follower { stream, cursor: 0, held: Held::new(), received: 0, caller: self.clone(), call: None }
    }
}

impl Follower {
    /// Goes on with another server.
    pub fn move_to(&mut self, client: &Client) {
        self.caller.client = client.clone();
        self.call = None;
    }

    /// Hangs up, wherever the stream stands.
    pub fn cut(&mut self) {
        self.call = None;
    }

    /// Takes one state, from a stream that is opened if there is none.
    pub async fn step(&mut self) -> Result<(), Refused> {
        let mut call = match self.call.take() {
            Some(call) => call,
            None => self.open().await?,
        };
        let bytes = call.message().await?.expect("a watch does not end well by itself");
        let message = self.caller.schema.read(self.stream.message(), &bytes);
        let (version, key, state) = match self.stream {
            Stream::Changes => read_event(&message),
            one => read_state(one, &message),
        };
        assert!(version > 0, "every state has a version");
        self.cursor = self.cursor.max(version);
        self.held.insert(key, state);
        self.received += 1;
        self.call = Some(call);
        Ok(())
    }

    /// Follows, over every cut, until it holds this.
    pub async fn until(&mut self, wanted: &Held) {
        let own: Held = wanted.iter().filter(|(key, _)| self.stream.has(key)).map(clone_pair).collect();
        let follow = async {
            while self.held != own {
                if let Err(Refused { code, message }) = self.step().await {
                    assert_ne!(code, "not_found", "{:?}: {message}", self.stream);
                }
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, follow).await.is_ok();
        let keys: BTreeSet<_> = own.keys().chain(self.held.keys()).collect();
        let differ: Vec<_> = keys
            .into_iter()
            .filter(|key| own.get(*key) != self.held.get(*key))
            .map(|key| format!("{key}: {:?}, not {:?}", self.held.get(key), own.get(key)))
            .collect();
        assert!(in_time, "{:?} at {} never held:\n{}", self.stream, self.cursor, differ.join("\n"));
    }

    async fn open(&self) -> Result<Call, Refused> {
        let Caller { client, schema, token } = &self.caller;
        let method = match self.stream {
            Stream::Deployments => "WatchDeployments",
            Stream::Sentinels => "WatchSentinels",
            Stream::NetworkPolicies => "WatchCiliumNetworkPolicies",
            Stream::Changes => "WatchDeploymentChanges",
        };
        let fields = [("region", schema.region()), ("version_last_seen", Value::U64(self.cursor))];
        let message = schema.make(&format!("{method}Request"), &fields).encode_to_vec();
        let path = format!("/ctrl.v1.ClusterService/{method}");
        client.call(Protocol::ConnectProto, true, &path, Some(token), &message).await
    }
}

impl Stream {
    pub const ALL: [Self; 4] = [Self::Deployments, Self::Sentinels, Self::NetworkPolicies, Self::Changes];

    fn message(self) -> &'static str {
        match self {
            Self::Deployments => "DeploymentState",
            Self::Sentinels => "SentinelState",
            Self::NetworkPolicies => "CiliumNetworkPolicyState",
            Self::Changes => "DeploymentChangeEvent",
        }
    }

    /// What its keys begin with.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Deployments => "deployment/",
            Self::Sentinels => "sentinel/",
            Self::NetworkPolicies => "policy/",
            Self::Changes => "",
        }
    }

    fn has(self, key: &str) -> bool {
        key.starts_with(self.kind())
    }
}

/// Version, key and content of one of the three states.
fn read_state(stream: Stream, message: &DynamicMessage) -> (u64, String, String) {
    let version = number(message, "version");
    let of = |field: &str| message.get_field_by_name(field).expect("a field").as_message().cloned();
    let named = |state: &DynamicMessage| format!("{}{}", stream.kind(), text(state, "k8s_name"));
    if message.has_field_by_name("delete") {
        return (version, named(&of("delete").expect("a message")), "gone".to_owned());
    }
    assert!(
        message.has_field_by_name("apply"),
        "such a client knows neither a bookmark nor this: {message:?}"
    );
    let apply = of("apply").expect("a message");
    let content = match stream {
        Stream::Deployments => {
            assert!(number(&apply, "port") >= 1, "they refuse an apply without a port");
            assert!(apply.has_field_by_name("autoscaling"), "they refuse an apply without bounds");
            format!("{} replicas", number(&apply, "replicas"))
        }
        Stream::Sentinels => format!("{} replicas", number(&apply, "replicas")),
        Stream::NetworkPolicies => {
            let policy = apply.get_field_by_name("policy").expect("a field");
            String::from_utf8(policy.as_bytes().expect("bytes").to_vec()).expect("JSON")
        }
        Stream::Changes => panic!("an event holds states of three kinds"),
    };
    (version, named(&apply), content)
}

fn read_event(event: &DynamicMessage) -> (u64, String, String) {
    let kinds = [
        ("deployment", Stream::Deployments),
        ("sentinel", Stream::Sentinels),
        ("cilium_network_policy", Stream::NetworkPolicies),
    ];
    let (field, stream) = kinds
        .into_iter()
        .find(|(field, _)| event.has_field_by_name(field))
        .unwrap_or_else(|| panic!("such a client knows neither a bookmark nor this: {event:?}"));
    let state = event.get_field_by_name(field).expect("a field").as_message().cloned().expect("a message");
    let (version, key, content) = read_state(stream, &state);
    assert_eq!(number(event, "version"), version, "the event has the version of its state");
    (version, key, content)
}

fn number(message: &DynamicMessage, field: &str) -> u64 {
    let value = message.get_field_by_name(field).expect("a field");
    match value.as_ref() {
        Value::U64(number) => *number,
        Value::I32(number) => u64::try_from(*number).expect("no negative number"),
        other => panic!("{field} is no number: {other:?} of {}", message.descriptor().name()),
    }
}

fn text(message: &DynamicMessage, field: &str) -> String {
    message.get_field_by_name(field).expect("a field").as_str().expect("text").to_owned()
}

fn clone_pair((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}
