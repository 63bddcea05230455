//! `krane deploy` and what else is asked of deployments; each is followed until it has happened.

use std::time::Duration;

use clap::{Args, ValueEnum};
use runtime::config::duration;
use serde_json::{Value, json};

use super::{
    End, Session,
    access::Access,
    client::{self, Content},
    context::Entry,
    follow::{Goal, follow},
    output::{Format, confirm, json as pretty, print, say, yaml},
    place::{Where, id},
};

const DEPLOY_EXAMPLES: &str =
    "Exit codes: 0 it is ready, 3 it failed, 4 it was cancelled or overtaken, 7 it took longer than --timeout, 8 no control plane
answered, 9 the token does not allow it, 2 the command line was wrong, 1 anything else.

Examples:
  krane deploy --app shop/web --image registry.example.com/shop/web:1.4.2
  krane deploy --app shop/web --env preview --image web:pr-7 --branch feature --detach
  krane deploy --app shop/web --image web:2 --strategy canary --timeout 30m";

#[derive(Args)]
#[command(after_help = DEPLOY_EXAMPLES)]
pub(crate) struct Deploy {
    #[command(flatten)]
    place: Where,
    /// What runs
    #[arg(long)]
    image: String,
    /// How traffic moves to it, this time
    #[arg(long)]
    strategy: Option<Strategy>,
    /// Where it runs this time, instead of where the environment says; may be given more than once
    #[arg(long = "region", value_name = "PLATFORM/NAME")]
    regions: Vec<String>,
    /// The git branch that it was built from
    #[arg(long)]
    branch: Option<String>,
    /// The git commit that it was built from
    #[arg(long, value_name = "SHA")]
    commit: Option<String>,
    #[command(flatten)]
    way: Way,
}

#[derive(Clone, Copy, ValueEnum)]
enum Strategy {
    Immediate,
    #[value(name = "blue_green", alias = "blue-green")]
    BlueGreen,
    Canary,
}

/// How a verb is done.
#[derive(Args)]
struct Way {
    /// Do not wait for it
    #[arg(long)]
    detach: bool,
    /// How long to wait, as 90s or 5m; it goes on by itself all the same
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "detach")]
    timeout: Option<Duration>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    access: Access,
}

const VERB_EXAMPLES: &str =
    "Exit codes: 0 it is done, 3 it failed, 4 it ended otherwise, 7 it took longer than --timeout, 8 no control plane answered,
9 the token does not allow it, 2 the command line was wrong, 1 anything else.

Examples:
  krane promote dep_01hf7yat0060rk4csm6mv3ee1s
  krane rollback dep_01hf7yat0060rk4csm6mv3ee1s --yes
  krane rollback dep_01hf7yat0060rk4csm6mv3ee1s --to dep_01hf7yat0060rk4csm6mv3ee1s --yes
  krane stop dep_01hf7yat0060rk4csm6mv3ee1s --yes
  krane start dep_01hf7yat0060rk4csm6mv3ee1s --detach
  krane cancel dep_01hf7yat0060rk4csm6mv3ee1s --yes";

/// A verb of a deployment that takes nothing but its id.
#[derive(Args)]
#[command(after_help = VERB_EXAMPLES)]
pub(crate) struct Verb {
    /// The deployment
    id: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    way: Way,
}

#[derive(Args)]
#[command(after_help = VERB_EXAMPLES)]
pub(crate) struct Rollback {
    #[command(flatten)]
    verb: Verb,
    /// The deployment that becomes live, instead of the one before
    #[arg(long, value_name = "ID")]
    to: Option<String>,
}

const SCALE_EXAMPLES: &str = "Examples:
  krane scale dep_01hf7yat0060rk4csm6mv3ee1s --min 3
  krane scale dep_01hf7yat0060rk4csm6mv3ee1s --min 2 --max 10 --cpu 70
  krane scale dep_01hf7yat0060rk4csm6mv3ee1s --min 5 --region aws/us-east-1";

#[derive(Args)]
#[command(after_help = SCALE_EXAMPLES)]
pub(crate) struct Scale {
    /// The deployment
    id: String,
    /// The fewest instances in a region
    #[arg(long)]
    min: u32,
    /// The most; the same as the fewest if it is left out
    #[arg(long)]
    max: Option<u32>,
    /// Percent of its cpu that an instance may use before another is added
    #[arg(long)]
    cpu: Option<u32>,
    /// Only in these regions; may be given more than once
    #[arg(long = "region", value_name = "PLATFORM/NAME")]
    regions: Vec<String>,
    #[command(flatten)]
    way: Way,
}

/// Which verb it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Promote,
    Stop,
    Start,
    Cancel,
}

impl Deploy {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let (client, entry) = self.way.access.open(session)?;
        let environment = self.place.find(&client, &entry).await?;
        let mut body =
            json!({ "environment_id": id(&environment)?, "image": self.image, "git": {}, "settings": {} });
        for (name, value) in [("branch", &self.branch), ("sha", &self.commit)] {
            if let Some(value) = value {
                body["git"][name] = json!(value);
            }
        }
        if let Some(strategy) = self.strategy {
            let kind = strategy.to_possible_value().expect("none is hidden");
            body["settings"]["strategy"] = json!({ "kind": kind.get_name() });
        }
        if !self.regions.is_empty() {
            body["settings"]["regions"] = json!(self.regions);
        }
        let made = client.post("/v1/deployments", Content::Json(body)).await?;
        self.way.go_on((&client, &entry), session, &made, Goal::Ready).await
    }
}

impl Verb {
    pub(super) async fn run(self, session: &Session, what: What) -> anyhow::Result<End> {
        let (word, goal, question) = match what {
            What::Promote => ("promote", Goal::Live, None),
            What::Start => ("start", Goal::Ready, None),
            What::Stop => ("stop", Goal::Stopped, Some("Stop every instance of")),
            What::Cancel => ("cancel", Goal::Over, Some("Cancel")),
        };
        self.ask(session, word, goal, question, Content::Nothing).await
    }

    async fn ask(
        &self,
        session: &Session,
        word: &str,
        goal: Goal,
        question: Option<&str>,
        content: Content,
    ) -> anyhow::Result<End> {
        if let Some(question) = question {
            confirm(&format!("{question} {}?", self.id), self.yes)?;
        }
        let (client, entry) = self.way.access.open(session)?;
        let path = format!("/v1/deployments/{}/{word}", client::encode(&self.id));
        let about = client.post(&path, content).await?;
        self.way.go_on((&client, &entry), session, &about, goal).await
    }
}

impl Rollback {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let body = self.to.as_ref().map_or_else(|| json!({}), |to| json!({ "to": to }));
        let question = Some("Take the traffic back from");
        self.verb.ask(session, "rollback", Goal::Live, question, Content::Json(body)).await
    }
}

impl Scale {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let (client, entry) = self.way.access.open(session)?;
        let mut scaling = json!({ "min": self.min, "max": self.max.unwrap_or(self.min) });
        if let Some(cpu) = self.cpu {
            scaling["cpu"] = json!(cpu);
        }
        let body = if self.regions.is_empty() {
            json!({ "scaling": scaling })
        } else {
            let one = |region: &String| json!({ "region": region, "scaling": scaling });
            json!({ "regions": self.regions.iter().map(one).collect::<Vec<_>>() })
        };
        let path = format!("/v1/deployments/{}/scale", client::encode(&self.id));
        let about = client.post(&path, Content::Json(body)).await?;
        self.way.go_on((&client, &entry), session, &about, Goal::Scaled).await
    }
}

impl Way {
    /// Says what was begun, and follows it unless nobody wants to wait.
    async fn go_on(
        &self,
        (client, entry): (&client::Client, &Entry),
        session: &Session,
        about: &Value,
        goal: Goal,
    ) -> anyhow::Result<End> {
        let id = id(about)?;
        let end = if self.detach {
            say(&format!("{id} is under way; follow it with: krane status {id} --follow"));
            End::Done
        } else {
            follow((client, entry), session, &id, (goal, self.timeout)).await?
        };
        match self.output {
            Format::Table | Format::Wide => {}
            Format::Name => print(&format!("{id}\n"))?,
            Format::Json | Format::Yaml => {
                let now = client.get(&format!("/v1/deployments/{}", client::encode(&id))).await?;
                print(&if self.output == Format::Json { pretty(&now)? } else { yaml(&now)? })?;
            }
        }
        Ok(end)
    }
}
