//! `krane get`: a table of things of one kind, or one of them.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use serde_json::{Value, json};

use super::{
    End, Session,
    access::Access,
    client::{self, Client},
    kind::{KINDS, Kind, id},
    output::{self, Format, print},
};

/// How often a watch looks again.
const AGAIN: Duration = Duration::from_secs(1);
/// Things on one page of a list.
const PAGE: &str = "100";

const EXAMPLES: &str = "Examples:
  krane get deployments
  krane get deployments --where status=ready -o wide
  krane get deployment dep_01hf7yat0060rk4csm6mv3ee1s -o yaml
  krane get clusters --watch";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Get {
    /// What kind of thing
    #[arg(value_parser = kind)]
    kind: &'static Kind,
    /// One of them, by its id
    id: Option<String>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Go on, and print what is new or different
    #[arg(short, long, conflicts_with = "id")]
    watch: bool,
    /// Only those for which this holds, as the API filters them: `status=ready`
    #[arg(long = "where", value_name = "NAME=VALUE", conflicts_with = "id")]
    filters: Vec<String>,
    #[command(flatten)]
    access: Access,
}

fn kind(word: &str) -> Result<&'static Kind, String> {
    let known = || KINDS.iter().map(|kind| kind.plural).collect::<Vec<_>>().join(", ");
    Kind::find(word).ok_or_else(|| format!("there is no such kind; there are {}", known()))
}

impl Get {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let (client, _) = self.access.open(session)?;
        if let Some(id) = &self.id {
            let item = client.get(&format!("{}/{}", self.kind.path, client::encode(id))).await?;
            print(&show(self.kind, &Shown::One(&item), self.output)?)?;
        } else if self.watch {
            self.watch(&client).await?;
        } else {
            let items = self.list(&client).await?;
            print(&show(self.kind, &Shown::All(&items), self.output)?)?;
        }
        Ok(End::Done)
    }

    /// All pages of the list.
    async fn list(&self, client: &Client) -> anyhow::Result<Vec<Value>> {
        let mut filters = Vec::new();
        for filter in &self.filters {
            let pair = filter.split_once('=');
            filters.push(pair.ok_or_else(|| anyhow::anyhow!("--where is NAME=VALUE, not {filter:?}"))?);
        }
        list(client, self.kind.path, &filters).await
    }

    /// Prints a line for whatever is new or has changed, until it is interrupted.
    async fn watch(&self, client: &Client) -> anyhow::Result<()> {
        let clock = runtime::clock::Clock::system();
        let is_wide = self.output == Format::Wide;
        let mut seen: BTreeMap<String, Value> = BTreeMap::new();
        let mut titles = true;
        loop {
            let items = self.list(client).await?;
            let news: Vec<Value> =
                items.iter().filter(|item| seen.get(&id(item)) != Some(item)).cloned().collect();
            for item in &news {
                let text = match self.output {
                    Format::Table | Format::Wide if titles => {
                        show(self.kind, &Shown::All(&news[..1]), self.output)?
                    }
                    Format::Table | Format::Wide => {
                        format!("{}\n", self.kind.row(item, is_wide).join("  "))
                    }
                    Format::Json => format!("{item}\n"),
                    Format::Yaml => format!("---\n{}", output::yaml(item)?),
                    Format::Name => format!("{}\n", id(item)),
                };
                titles = false;
                print(&text)?;
            }
            seen = items.into_iter().map(|item| (id(&item), item)).collect();
            clock.sleep(AGAIN).await;
        }
    }
}

/// Everything that a list of the API has, page by page.
pub(crate) async fn list(
    client: &Client,
    path: &str,
    filters: &[(&str, &str)],
) -> anyhow::Result<Vec<Value>> {
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut query: Vec<(&str, Option<&str>)> =
            filters.iter().map(|(name, value)| (*name, Some(*value))).collect();
        query.push(("limit", Some(PAGE)));
        query.push(("cursor", cursor.as_deref()));
        let mut page = client.get(&client::path(path, &query)).await?;
        if let Value::Array(data) = page["data"].take() {
            items.extend(data);
        }
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(items),
        }
    }
}

pub(crate) enum Shown<'a> {
    One(&'a Value),
    All(&'a [Value]),
}

pub(crate) fn show(kind: &Kind, shown: &Shown<'_>, format: Format) -> anyhow::Result<String> {
    let (items, whole) = match shown {
        Shown::One(item) => (std::slice::from_ref(*item), (*item).clone()),
        Shown::All(items) => (*items, json!({ "data": items })),
    };
    Ok(match format {
        Format::Table | Format::Wide => {
            let is_wide = format == Format::Wide;
            let rows: Vec<_> = items.iter().map(|item| kind.row(item, is_wide)).collect();
            output::table(&kind.titles(is_wide), &rows)
        }
        Format::Json => output::json(&whole)?,
        Format::Yaml => output::yaml(&whole)?,
        Format::Name => items.iter().map(|item| format!("{}\n", id(item))).collect::<Vec<_>>().concat(),
    })
}
