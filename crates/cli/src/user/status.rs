//! `krane status`: everything at a glance, or one deployment whole.

use clap::Args;
use serde_json::{Value, json};

use super::{
    End, Session,
    access::Access,
    client,
    context::Entry,
    door,
    follow::{Goal, follow, lines},
    get::list,
    kind::{Kind, cell},
    output::{self, Colour, Format, Paint, print},
};

const EXAMPLES: &str = "Examples:
  krane status
  krane status dep_01hf7yat0060rk4csm6mv3ee1s
  krane status dep_01hf7yat0060rk4csm6mv3ee1s --follow
  krane status -o json";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Status {
    /// One deployment, with its steps, regions and reasons
    id: Option<String>,
    /// Wait until it is ready, or never will be
    #[arg(short, long, requires = "id")]
    follow: bool,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    access: Access,
}

/// What is shown at a glance: a title, and what of which kind.
const GLANCE: &[(&str, &str)] = &[("CLUSTERS", "cluster"), ("DEPLOYMENTS", "deployment")];
/// Lines of one section at a glance.
const NEWEST: usize = 10;

impl Status {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let (client, entry) = self.access.open(session)?;
        let Some(id) = &self.id else {
            return self.glance(&client, &entry, session.paint).await;
        };
        if self.follow {
            return follow((&client, &entry), session, id, (Goal::Ready, None)).await;
        }
        let detail = client.get(&format!("/v1/deployments/{}", client::encode(id))).await?;
        print(&match self.output {
            Format::Json => output::json(&detail)?,
            Format::Yaml => output::yaml(&detail)?,
            Format::Name => format!("{}\n", cell(detail.get("id"))),
            Format::Table | Format::Wide => {
                let tries = door::to_deployment(&client, &entry, &detail).await?;
                let tries = tries.iter().map(|one| format!("  {}", one.line()));
                let shown = lines(&detail, session.paint.printed()).into_iter().chain(tries);
                format!("{}\n", shown.collect::<Vec<_>>().join("\n"))
            }
        })?;
        Ok(End::Done)
    }

    async fn glance(&self, client: &client::Client, entry: &Entry, paint: Paint) -> anyhow::Result<End> {
        let mut whole = json!({});
        let mut text = String::new();
        for (title, name) in GLANCE {
            let kind = Kind::find(name).expect("it is in the table");
            // A token of one workspace may not see the clusters.
            let mut items = match list(client, kind.path, &[]).await {
                Ok(items) => items,
                Err(error) if is_forbidden(&error) => continue,
                Err(error) => return Err(error),
            };
            items.truncate(NEWEST);
            let rows: Vec<_> = items.iter().map(|item| kind.row(item, self.output == Format::Wide)).collect();
            text += &paint.data(Colour::Bold, title);
            text += "\n";
            text += &output::table(&kind.titles(self.output == Format::Wide), &rows);
            text += "\n";
            whole[kind.plural] = Value::Array(items);
        }
        let tries = door::usual(client, entry).await?;
        whole["requests"] = tries.iter().map(door::Try::json).collect();
        if !tries.is_empty() {
            text += &paint.data(Colour::Bold, "REQUESTS");
            let lines: Vec<String> = tries.iter().take(NEWEST).map(door::Try::line).collect();
            text += "\n";
            text += &lines.join("\n");
        }
        print(&match self.output {
            Format::Json => output::json(&whole)?,
            Format::Yaml => output::yaml(&whole)?,
            Format::Table | Format::Wide => format!("{}\n", text.trim_end()),
            Format::Name => {
                let items = GLANCE
                    .iter()
                    .filter_map(|(_, name)| whole[Kind::find(name)?.plural].as_array())
                    .flatten();
                items.map(|item| format!("{}\n", cell(item.get("id")))).collect::<Vec<_>>().concat()
            }
        })?;
        Ok(End::Done)
    }
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    error.downcast_ref::<super::trouble::Trouble>().is_some_and(|trouble| trouble.is("forbidden"))
}
