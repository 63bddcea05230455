//! `krane clusters`, `krane tokens`, `krane routes` and `krane requests`: what is looked after less often.

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Value, json};

use super::{
    End, Session,
    access::Access,
    client::{self, Content},
    door,
    get::{Shown, list, show},
    kind::{Kind, cell},
    output::{self, Format, confirm, print, say},
    place::{Where, id},
};

const CLUSTERS_EXAMPLES: &str = "Examples:
  krane clusters
  krane clusters confirm aws.us-east-1.default --kind deployment --hash 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae --yes";

#[derive(Args)]
#[command(after_help = CLUSTERS_EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Clusters {
    #[command(subcommand)]
    command: Option<ClustersVerb>,
    #[command(flatten)]
    table: Table,
}

/// How a list is shown.
#[derive(Args)]
struct Table {
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    access: Access,
}

#[derive(Subcommand)]
enum ClustersVerb {
    /// Let a cluster delete what it holds back, named by the hash of the list
    Confirm {
        /// The cluster
        id: String,
        /// Of what kind the list is: deployment, sentinel or networkpolicy
        #[arg(long)]
        kind: String,
        /// The hash of the list that you looked at; `krane get cluster` shows it
        #[arg(long)]
        hash: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        access: Access,
    },
}

impl Clusters {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let Some(ClustersVerb::Confirm { id, kind, hash, yes, access }) = self.command else {
            return self.table.print(session, "cluster", &[]).await;
        };
        confirm(&format!("Let {id} delete the {kind}s of the list {hash}?"), yes)?;
        let (client, _) = access.open(session)?;
        let path = format!("/v1/clusters/{}/confirm", client::encode(&id));
        client.post(&path, Content::Json(json!({ "kind": kind, "hash": hash }))).await?;
        say(&format!("{id} may delete them; its agent hears of it with its next heartbeat"));
        Ok(End::Done)
    }
}

impl Table {
    async fn print(&self, session: &Session, kind: &str, filters: &[(&str, &str)]) -> anyhow::Result<End> {
        let (client, _) = self.access.open(session)?;
        let kind = Kind::find(kind).expect("it is in the table");
        let items = list(&client, kind.path, filters).await?;
        print(&show(kind, &Shown::All(&items), self.output)?)?;
        Ok(End::Done)
    }
}

const TOKENS_EXAMPLES: &str = "Examples:
  krane tokens
  krane tokens create --name ci --role deploy --expires-in 7776000
  krane tokens create --name agent --cluster aws/us-east-1:default
  krane tokens revoke tok_01hf7yat0060rk4csm6mv3ee1s --yes";

#[derive(Args)]
#[command(after_help = TOKENS_EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Tokens {
    #[command(subcommand)]
    command: Option<TokensVerb>,
    #[command(flatten)]
    table: Table,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Admin,
    Deploy,
    Read,
}

#[derive(Subcommand)]
enum TokensVerb {
    /// Make a token; it is shown now and never again
    Create {
        /// What it is for
        #[arg(long)]
        name: String,
        /// For a user: what they may do
        #[arg(long, conflicts_with = "cluster", required_unless_present = "cluster")]
        role: Option<Role>,
        /// For a user: the id of the one workspace that it opens
        #[arg(long, value_name = "ID", conflicts_with = "cluster")]
        workspace: Option<String>,
        /// For an agent: which cluster it speaks for
        #[arg(long, value_name = "PLATFORM/NAME:SHARD")]
        cluster: Option<String>,
        /// Seconds that it is good for; without it, until it is revoked
        #[arg(long, value_name = "SECONDS")]
        expires_in: Option<u64>,
        #[command(flatten)]
        access: Access,
    },
    /// End a token now
    Revoke {
        id: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        access: Access,
    },
}

impl Tokens {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        match self.command {
            None => self.table.print(session, "token", &[]).await,
            Some(TokensVerb::Create { name, role, workspace, cluster, expires_in, access }) => {
                let mut body = json!({ "name": name });
                if let Some(role) = role {
                    let role = role.to_possible_value().expect("none is hidden");
                    body["role"] = json!(role.get_name());
                }
                if let Some(workspace) = workspace {
                    body["workspace_id"] = json!(workspace);
                }
                if let Some(cluster) = cluster {
                    body["kind"] = json!("agent");
                    body["place"] = json!(cluster);
                }
                if let Some(seconds) = expires_in {
                    body["expires_in"] = json!(seconds);
                }
                let (client, _) = access.open(session)?;
                let made = client.post("/v1/tokens", Content::Json(body)).await?;
                say(&format!(
                    "{} is made. Keep this: it is not stored, and cannot be shown again.",
                    cell(made.get("id"))
                ));
                print(&format!("{}\n", cell(made.get("secret"))))?;
                Ok(End::Done)
            }
            Some(TokensVerb::Revoke { id, yes, access }) => {
                confirm(&format!("End {id} and everything that it opened?"), yes)?;
                let (client, _) = access.open(session)?;
                let path = format!("/v1/tokens/{}", client::encode(&id));
                client.ask(Method::DELETE, &path, Content::Nothing).await?;
                say(&format!("{id} is revoked"));
                Ok(End::Done)
            }
        }
    }
}

const ROUTES_EXAMPLES: &str = "Examples:
  krane routes
  krane routes -o wide
  krane routes --curl";

#[derive(Args)]
#[command(after_help = ROUTES_EXAMPLES)]
pub(crate) struct Routes {
    /// Print a request for each hostname and region instead
    #[arg(long)]
    curl: bool,
    #[command(flatten)]
    table: Table,
}

impl Routes {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        if !self.curl {
            return self.table.print(session, "route", &[]).await;
        }
        let (client, entry) = self.table.access.open(session)?;
        let (routes, sentinels) =
            (list(&client, "/v1/routes", &[]).await?, list(&client, "/v1/sentinels", &[]).await?);
        let tries = door::tries(&entry, &routes, &sentinels);
        let all = json!({ "data": tries.iter().map(door::Try::json).collect::<Vec<_>>() });
        print(&match self.table.output {
            Format::Json => output::json(&all)?,
            Format::Yaml => output::yaml(&all)?,
            Format::Name | Format::Table | Format::Wide => {
                tries.iter().map(|one| format!("{}\n", one.line())).collect::<Vec<_>>().concat()
            }
        })?;
        Ok(End::Done)
    }
}

const REQUESTS_EXAMPLES: &str = "Examples:
  krane requests --app shop/web
  krane requests --app shop/web --env preview --limit 20 -o json";

#[derive(Args)]
#[command(after_help = REQUESTS_EXAMPLES)]
pub(crate) struct Requests {
    #[command(flatten)]
    place: Where,
    /// How many, the newest
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    #[command(flatten)]
    table: Table,
}

impl Requests {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let (client, entry) = self.table.access.open(session)?;
        let environment = id(&self.place.find(&client, &entry).await?)?;
        let limit = self.limit.to_string();
        let query = [("environment_id", Some(environment.as_str())), ("limit", Some(limit.as_str()))];
        let page = client.get(&client::path("/v1/requests", &query)).await?;
        let items = page["data"].as_array().cloned().unwrap_or_default();
        print(&match self.table.output {
            Format::Json => output::json(&page)?,
            Format::Yaml => output::yaml(&page)?,
            Format::Name => {
                items.iter().map(|item| format!("{}\n", cell(item.get("id")))).collect::<Vec<_>>().concat()
            }
            Format::Table | Format::Wide => output::table(
                &["AT", "STATUS", "METHOD", "HOSTNAME", "PATH", "MS", "BLAME"],
                &items.iter().map(request).collect::<Vec<_>>(),
            ),
        })?;
        Ok(End::Done)
    }
}

fn request(item: &Value) -> Vec<String> {
    let millis = item["duration_us"].as_u64().unwrap_or_default().div_ceil(1000);
    let of = |name: &str| cell(item.get(name));
    vec![of("at"), of("status"), of("method"), of("hostname"), of("path"), millis.to_string(), of("blame")]
}
