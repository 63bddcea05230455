//! `krane control token`: on the store directly, for the first ones and for emergencies.

use std::{io::Write as _, time::Duration};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use control::tokens::{Created, NewToken, Tokens};
use model::{
    id::{TokenId, WorkspaceId},
    name::{Line, RegionKey, Shard},
    token::{Reach, Role, Scope, Token as Stored},
};
use runtime::{
    clock::{Clock, Timestamp},
    config::duration,
};
use serde_json::json;

use super::Opened;

const EXAMPLES: &str = "Examples:
  krane control token create --kind agent --region aws/us-east-1
  krane control token create --kind agent --region aws/us-east-1 --shard b --name build --expires 90d
  krane control token create --kind user --role deploy --workspace ws_01hf7yat0060rk4csm6mv3ee1s
  krane control token rotate tok_01hf7yat0060rk4csm6mv3ee1s --overlap 1h
  krane control token revoke tok_01hf7yat0060rk4csm6mv3ee1s";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Token {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a token; it is shown now and never again
    Create(Create),
    /// List all tokens, without what their bearers hold
    List {
        /// As JSON, one object in a line
        #[arg(long)]
        json: bool,
    },
    /// Make a successor, and let the old one end after a while
    Rotate {
        id: TokenId,
        /// How long both are good
        #[arg(long, default_value = "1h", value_parser = duration::parse, value_name = "TIME")]
        overlap: Duration,
        #[arg(long)]
        json: bool,
    },
    /// End a token now, and every stream that it opened
    Revoke { id: TokenId },
}

#[derive(Args)]
struct Create {
    #[arg(long)]
    kind: Kind,
    /// Where the agents are; the first token for a region makes it known
    #[arg(long, value_name = "PLATFORM/NAME")]
    region: Option<RegionKey>,
    /// Which of the region's clusters
    #[arg(long)]
    shard: Option<Shard>,
    /// What the user may do: admin, deploy or read
    #[arg(long)]
    role: Option<Role>,
    /// The one workspace it is for; without it, all of them
    #[arg(long)]
    workspace: Option<WorkspaceId>,
    /// What people call it
    #[arg(long)]
    name: Option<Line>,
    /// How long it is good for, like 90d; without it, until it is revoked
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    expires: Option<Duration>,
    /// As JSON, on one line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Agent,
    User,
}

impl Token {
    /// Whether what was asked makes sense.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::Create(create) => create.read().map(drop),
            Command::List { .. } | Command::Rotate { .. } | Command::Revoke { .. } => Ok(()),
        }
    }

    pub(super) async fn run(&self, opened: &Opened) -> anyhow::Result<()> {
        let tokens = Tokens::new(&opened.store, &opened.clock, &opened.random);
        match &self.command {
            Command::Create(create) => show(&tokens.create(create.read()?).await?, create.json),
            Command::List { json } => list(&tokens.list().await?, &opened.clock, *json),
            Command::Rotate { id, overlap, json } => show(&tokens.rotate(*id, *overlap).await?, *json),
            Command::Revoke { id } => {
                let ended = tokens.revoke(*id).await?;
                let said = if ended { "is revoked" } else { "was revoked before" };
                Ok(writeln!(std::io::stdout(), "{id} {said}")?)
            }
        }
    }
}

impl Create {
    fn read(&self) -> anyhow::Result<NewToken> {
        let Self { kind, region, shard, role, workspace, name, expires, .. } = self;
        let scope = match kind {
            Kind::Agent => {
                anyhow::ensure!(
                    role.is_none() && workspace.is_none(),
                    "an agent has no --role and no --workspace"
                );
                let region = region.clone().context("an agent needs a --region, like aws/us-east-1")?;
                Scope::Agent { placement: region.shard(shard.clone().unwrap_or_default()) }
            }
            Kind::User => {
                anyhow::ensure!(region.is_none() && shard.is_none(), "a user has no --region and no --shard");
                let role = role.context("a user needs a --role: admin, deploy or read")?;
                Scope::User { role, reach: workspace.map_or(Reach::All, Reach::Workspace) }
            }
        };
        let name = name.clone().unwrap_or_else(|| opens(&scope).parse().expect("a short line"));
        Ok(NewToken { name, scope, expires_in: *expires })
    }
}

fn show(Created { token, bearer }: &Created, as_json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if as_json {
        let mut shown = describe(token);
        shown["token"] = json!(bearer.reveal());
        return Ok(writeln!(out, "{shown}")?);
    }
    writeln!(out, "{} opens {}", token.id, opens(&token.scope))?;
    writeln!(out, "{}", bearer.reveal())?;
    writeln!(out, "Keep it: it is not stored, and cannot be shown again.")?;
    Ok(())
}

fn list(tokens: &[Stored], clock: &Clock, as_json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let now = model::time::Millis(clock.now().millis());
    for token in tokens {
        if as_json {
            writeln!(out, "{}", describe(token))?;
            continue;
        }
        let state = match (token.is_good(now), token.revoked_at, token.expires_at) {
            (true, _, None) => "good".to_owned(),
            (true, _, Some(at)) => format!("until {}", time(at)),
            (false, Some(at), _) => format!("revoked {}", time(at)),
            (false, None, at) => format!("expired {}", at.map(time).unwrap_or_default()),
        };
        let used = token.last_used_at.map_or("never used".to_owned(), |at| format!("used {}", time(at)));
        let (id, kind, opens) = (token.id, token.kind(), opens(&token.scope));
        writeln!(out, "{id}  {kind:<5}  {opens:<32}  {state:<32}  {used:<30}  {}", token.name)?;
    }
    Ok(())
}

fn describe(token: &Stored) -> serde_json::Value {
    json!({
        "id": token.id.to_string(),
        "name": token.name.as_str(),
        "kind": token.kind().as_str(),
        "opens": opens(&token.scope),
        "created_at": time(token.created_at),
        "expires_at": token.expires_at.map(time),
        "revoked_at": token.revoked_at.map(time),
        "last_used_at": token.last_used_at.map(time),
    })
}

fn opens(scope: &Scope) -> String {
    match scope {
        Scope::Agent { placement } => placement.to_string(),
        Scope::User { role, reach: Reach::All } => format!("{role} everywhere"),
        Scope::User { role, reach: Reach::Workspace(workspace) } => format!("{role} in {workspace}"),
    }
}

fn time(at: model::time::Millis) -> String {
    Timestamp::from_millis(at.0).to_string()
}
