//! `krane status`: everything at a glance, or one deployment whole.

use clap::Args;
use serde_json::{Value, json};

use super::{
    End, Session,
    access::Access,
    client,
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
/// Deployments that are shown at a glance.
const NEWEST: usize = 10;

impl Status {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let (client, _) = self.access.open(session)?;
        let Some(id) = &self.id else {
            return self.glance(&client, session.paint).await;
        };
        if self.follow {
            return follow(&client, session, id, Goal::Ready).await;
        }
        let detail = client.get(&format!("/v1/deployments/{}", client::encode(id))).await?;
        print(&match self.output {
            Format::Json => output::json(&detail)?,
            Format::Yaml => output::yaml(&detail)?,
            Format::Name => format!("{}\n", cell(detail.get("id"))),
            Format::Table | Format::Wide => {
                format!("{}\n", lines(&detail, session.paint.printed()).join("\n"))
            }
        })?;
        Ok(End::Done)
    }

    async fn glance(&self, client: &client::Client, paint: Paint) -> anyhow::Result<End> {
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
