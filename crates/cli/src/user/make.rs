//! `krane create` and `krane delete`: what deployments live in, by the names that people use.
//!
//! ```text
//! acme ─ workspace    acme/shop ─ project    acme/shop/web ─ app    acme/shop/web/preview ─ environment
//! ```
//!
//! What is left out at the front comes from the context.

use clap::{Args, ValueEnum};
use http::Method;
use serde_json::{Value, json};

use super::{
    End, Session,
    access::Access,
    client::{self, Client, Content},
    context::Entry,
    get::{Shown, show},
    kind::{Kind, cell},
    output::{Format, confirm, print, say},
    place::{id, only},
};

/// The levels, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Level {
    #[value(alias = "workspaces", alias = "ws")]
    Workspace,
    #[value(alias = "projects", alias = "proj")]
    Project,
    #[value(alias = "apps")]
    App,
    #[value(alias = "environments", alias = "env")]
    Environment,
}

const LEVELS: [Level; 4] = [Level::Workspace, Level::Project, Level::App, Level::Environment];

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Workspace => "workspace",
            Level::Project => "project",
            Level::App => "app",
            Level::Environment => "environment",
        }
    }

    /// What its ids begin with.
    fn prefix(self) -> &'static str {
        match self {
            Level::Workspace => "ws_",
            Level::Project => "proj_",
            Level::App => "app_",
            Level::Environment => "env_",
        }
    }

    fn kind(self) -> &'static Kind {
        Kind::find(self.name()).expect("it is in the table")
    }
}

const CREATE_EXAMPLES: &str =
    "`krane apply` makes projects, apps and environments by itself; a workspace is made here.

Examples:
  krane create workspace acme
  krane create project acme/shop --name Shop
  krane create app shop/web
  krane create environment shop/web/preview -o name";

#[derive(Args)]
#[command(after_help = CREATE_EXAMPLES)]
pub(crate) struct Create {
    /// What is made
    kind: Level,
    /// Its name, with what it is in: acme/shop/web/preview is an environment
    path: Path,
    /// What people call it; the same as its name if it is left out
    #[arg(long)]
    name: Option<String>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    access: Access,
}

const DELETE_EXAMPLES: &str =
    "All that is in it goes with it; an environment that is protected, and what that is in, stays.

Examples:
  krane delete environment shop/web/preview
  krane delete app acme/shop/web --yes
  krane delete workspace ws_01hf7yat0060rk4csm6mv3ee1s --yes";

#[derive(Args)]
#[command(after_help = DELETE_EXAMPLES)]
pub(crate) struct Delete {
    /// What goes
    kind: Level,
    /// Its name, with what it is in, or its id
    path: Path,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    access: Access,
}

/// Names from the outermost that was said to the innermost.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Path(Vec<String>);

impl std::str::FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Path, String> {
        let names: Vec<String> = text.split('/').map(str::to_owned).collect();
        if names.len() > LEVELS.len() || names.iter().any(String::is_empty) {
            return Err("it is workspace/project/app/environment, or the end of that".to_owned());
        }
        Ok(Path(names))
    }
}

impl Path {
    /// The name at each level down to this one, with what the context adds at the front.
    fn names(&self, level: Level, entry: &Entry) -> anyhow::Result<Vec<(Level, String)>> {
        let levels = &LEVELS[..=level as usize];
        anyhow::ensure!(
            self.0.len() <= levels.len(),
            "{} is too long for a {}: it is {}",
            self.0.join("/"),
            level.name(),
            levels.iter().map(|level| level.name()).collect::<Vec<_>>().join("/")
        );
        let missing = levels.len() - self.0.len();
        let usual = |level: Level| match level {
            Level::Workspace => entry.workspace.clone(),
            Level::Project => entry.project.clone(),
            Level::App | Level::Environment => None,
        };
        let mut names = Vec::new();
        for (nth, one) in levels.iter().enumerate() {
            let name = if nth < missing { usual(*one) } else { Some(self.0[nth - missing].clone()) };
            let name = name.ok_or_else(|| {
                anyhow::anyhow!(
                    "which {}? say it in front, as in {}; a context can keep it: krane login URL --workspace NAME --project NAME",
                    one.name(),
                    levels.iter().map(|level| level.name()).collect::<Vec<_>>().join("/")
                )
            })?;
            names.push((*one, name));
        }
        Ok(names)
    }

    /// Its id, if that is what was said.
    fn id(&self, level: Level) -> Option<&str> {
        match self.0.as_slice() {
            [one] => Some(one.as_str()).filter(|text| text.starts_with(level.prefix())),
            _ => None,
        }
    }
}

/// What has all of these names, each in the one before.
async fn find(client: &Client, names: &[(Level, String)]) -> anyhow::Result<Option<Value>> {
    let mut above: Vec<(&str, String)> = Vec::new();
    let mut found = None;
    for (level, name) in names {
        let item = only(client, level.name(), level.kind().path, &above, name).await?;
        let field = match level {
            Level::Workspace => "workspace_id",
            Level::Project => "project_id",
            Level::App | Level::Environment => "app_id",
        };
        above = vec![(field, id(&item)?)];
        found = Some(item);
    }
    Ok(found)
}

impl Create {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let (client, entry) = self.access.open(session)?;
        let names = self.path.names(self.kind, &entry)?;
        let Some(((_, slug), above)) = names.split_last() else { anyhow::bail!("it has no name") };
        let mut body = json!({ "slug": slug });
        if let (Some((level, _)), Some(item)) = (above.last(), find(&client, above).await?) {
            body[format!("{}_id", level.name())] = json!(id(&item)?);
        }
        if let Some(name) = &self.name {
            anyhow::ensure!(
                self.kind != Level::Environment,
                "an environment has no other name: leave out --name"
            );
            body["name"] = json!(name);
        }
        let made = client.post(self.kind.kind().path, Content::Json(body)).await?;
        print(&show(self.kind.kind(), &Shown::One(&made), self.output)?)?;
        Ok(End::Done)
    }
}

impl Delete {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let (client, entry) = self.access.open(session)?;
        let gone = match self.path.id(self.kind) {
            Some(id) => id.to_owned(),
            None => match find(&client, &self.path.names(self.kind, &entry)?).await? {
                Some(item) => id(&item)?,
                None => anyhow::bail!("it has no name"),
            },
        };
        let (kind, path) = (self.kind.name(), self.path.0.join("/"));
        confirm(&format!("Delete the {kind} {path} ({gone}) and all that is in it?"), self.yes)?;
        let path = format!("{}/{}", self.kind.kind().path, client::encode(&gone));
        let answer = client.ask(Method::DELETE, &path, Content::Nothing).await?;
        match answer.get("workflow_id") {
            Some(_) => say(&format!(
                "{gone} is being deleted: its routes are gone, and it follows once all that runs of it has ended ({})",
                cell(answer.get("workflow_id"))
            )),
            None => say(&format!("{gone} is deleted")),
        }
        Ok(End::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str, level: Level, entry: &Entry) -> Result<String, String> {
        let names = path.parse::<Path>()?.names(level, entry).map_err(|error| error.to_string())?;
        Ok(names.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join("/"))
    }

    #[test]
    fn what_is_left_out_at_the_front_comes_from_the_context() {
        let known =
            Entry { workspace: Some("acme".into()), project: Some("shop".into()), ..Entry::new("http://a") };
        assert_eq!(names("web", Level::App, &known).unwrap(), "acme/shop/web");
        assert_eq!(names("site/web", Level::App, &known).unwrap(), "acme/site/web");
        assert_eq!(names("web/preview", Level::Environment, &known).unwrap(), "acme/shop/web/preview");
        assert_eq!(names("other", Level::Workspace, &known).unwrap(), "other");
        let unknown = Entry::new("http://a");
        assert!(names("web", Level::App, &unknown).unwrap_err().contains("which workspace?"));
        assert!(names("preview", Level::Environment, &known).unwrap_err().contains("which app?"));
        assert!(names("a/b", Level::Workspace, &known).unwrap_err().contains("too long for a workspace"));
        assert!(names("a//b", Level::App, &known).is_err());
    }

    #[test]
    fn an_id_is_known_by_how_it_begins() {
        let path: Path = "env_01hf7yat0060rk4csm6mv3ee1s".parse().unwrap();
        assert!(path.id(Level::Environment).is_some() && path.id(Level::App).is_none());
    }
}
