//! `krane events`: what happened, and what happens.

use std::time::Duration;

use clap::Args;
use http_body_util::BodyExt as _;
use runtime::clock::Clock;
use serde_json::Value;

use super::{
    End, Session,
    access::Access,
    client::{self, Client},
    kind::cell,
    output::{Format, print, say, yaml},
};

/// How long to wait before a stream that ended is asked for again.
const AGAIN: Duration = Duration::from_secs(1);
/// Bytes of one event, at most.
const EVENT_BYTES: usize = 1024 * 1024;

const EXAMPLES: &str = "Examples:
  krane events
  krane events -f
  krane events --deployment dep_01hf7yat0060rk4csm6mv3ee1s --limit 20
  krane events -f -o json";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Events {
    /// Go on, and print what happens
    #[arg(short, long)]
    follow: bool,
    /// Only of this deployment
    #[arg(long, value_name = "ID")]
    deployment: Option<String>,
    /// Only of this kind: deployment.failed, cluster.unreachable, …
    #[arg(long)]
    kind: Option<String>,
    /// How many of those that happened before
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    access: Access,
}

impl Events {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let (client, _) = self.access.open(session)?;
        let limit = self.limit.to_string();
        let mut page = client.get(&self.path(&[("limit", Some(&limit))])).await?;
        let mut events = match page["data"].take() {
            Value::Array(events) => events,
            _ => Vec::new(),
        };
        events.reverse();
        for event in &events {
            print(&self.show(event)?)?;
        }
        if self.follow {
            let last = events.last().and_then(|event| event["number"].as_u64());
            self.tail(&client, last.map(|last| last.to_string())).await?;
        }
        Ok(End::Done)
    }

    fn path(&self, more: &[(&str, Option<&str>)]) -> String {
        let mut query = vec![("deployment_id", self.deployment.as_deref()), ("kind", self.kind.as_deref())];
        query.extend_from_slice(more);
        client::path("/v1/events", &query)
    }

    /// Prints events as they happen. A stream that ends goes on behind the last event that was seen.
    async fn tail(&self, client: &Client, mut last: Option<String>) -> anyhow::Result<()> {
        let clock = Clock::system();
        let mut is_first = true;
        loop {
            match client.stream(&self.path(&[]), last.as_deref()).await {
                Ok(body) => self.read(body, &mut last).await?,
                Err(trouble) if is_first => return Err(trouble.into()),
                Err(trouble) => say(&format!("{trouble}; trying again")),
            }
            is_first = false;
            clock.sleep(AGAIN).await;
        }
    }

    /// Reads one stream to its end.
    async fn read(&self, mut body: hyper::body::Incoming, last: &mut Option<String>) -> anyhow::Result<()> {
        let mut buffer: Vec<u8> = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(bytes) = frame.into_data() else { continue };
            buffer.extend_from_slice(&bytes);
            anyhow::ensure!(buffer.len() <= EVENT_BYTES, "an event is larger than any that we know of");
            while let Some(end) = buffer.windows(2).position(|pair| pair == b"\n\n") {
                let message: Vec<u8> = buffer.drain(..end + 2).collect();
                let Some(message) = Message::parse(&String::from_utf8_lossy(&message)) else { continue };
                *last = message.id.or(last.take());
                print(&self.show(&message.event)?)?;
            }
        }
        Ok(())
    }

    fn show(&self, event: &Value) -> anyhow::Result<String> {
        Ok(match self.output {
            Format::Json => format!("{event}\n"),
            Format::Yaml => format!("---\n{}", yaml(event)?),
            Format::Name => format!("{}\n", cell(event.get("id"))),
            Format::Table | Format::Wide => format!("{}\n", line(event)),
        })
    }
}

/// One message of a stream of server-sent events.
struct Message {
    id: Option<String>,
    event: Value,
}

impl Message {
    /// Nothing, if it is only there to keep the connection.
    fn parse(text: &str) -> Option<Message> {
        let of = |name: &str| {
            let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let values: Vec<&str> = values.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect();
            (!values.is_empty()).then(|| values.join("\n"))
        };
        let event = serde_json::from_str(&of("data")?).ok()?;
        Some(Message { id: of("id"), event })
    }
}

/// When, what, to whom, and what else there is to say.
fn line(event: &Value) -> String {
    let subjects = ["deployment_id", "sentinel_id", "cluster_id", "token_id", "environment_id"];
    let subject = subjects.iter().find_map(|name| event[*name].as_str()).unwrap_or("-");
    let fields = event["fields"].as_object().into_iter().flatten();
    let fields: Vec<String> = fields.map(|(name, value)| format!("{name}={}", cell(Some(value)))).collect();
    format!("{}  {:<22}  {subject}  {}", cell(event.get("at")), cell(event.get("kind")), fields.join(" "))
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_has_its_number_and_its_event() {
        let message =
            Message::parse("id: 7\nevent: deployment.ready\ndata: {\"kind\":\"deployment.ready\"}\n\n")
                .unwrap();
        assert_eq!(
            (message.id.as_deref(), &message.event),
            (Some("7"), &json!({ "kind": "deployment.ready" }))
        );
        assert!(Message::parse(": keep-alive\n\n").is_none());
    }

    #[test]
    fn a_line_says_when_what_and_to_whom() {
        let event = json!({
            "at": "2026-11-18T00:00:00.000Z", "kind": "deployment.failed", "deployment_id": "dep_1",
            "fields": { "reason": "no such image" },
        });
        assert_eq!(
            line(&event),
            "2026-11-18T00:00:00.000Z  deployment.failed       dep_1  reason=no such image"
        );
    }
}
