//! `krane login` and `krane context`: which control planes there are, and which one is meant.

use std::{
    io::{self, IsTerminal as _, Read as _, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::{
    End, Session,
    client::Client,
    context::{ContextFile, Entry},
    output::{self, confirm, print, say},
};

const LOGIN_EXAMPLES: &str =
    "The token is asked for, or read from KRANE_TOKEN or standard input; it is never an argument,
for arguments can be seen by everybody on the machine.

Examples:
  krane login http://127.0.0.1:8080
  krane login https://krane.example.com --name work --workspace acme --project shop
  krane login https://krane.internal --roots /etc/krane/authority.pem";

#[derive(Args)]
#[command(after_help = LOGIN_EXAMPLES)]
pub(crate) struct Login {
    /// Where the control plane is
    url: String,
    /// What to call it
    #[arg(long, default_value = "default")]
    name: String,
    /// The workspace of apps that are named without one
    #[arg(long)]
    workspace: Option<String>,
    /// The project of apps that are named without one
    #[arg(long)]
    project: Option<String>,
    /// A PEM file with the authorities to trust instead of the public ones
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
}

const CONTEXT_EXAMPLES: &str = "Examples:
  krane context
  krane context use work
  krane context remove old --yes";

#[derive(Args)]
#[command(after_help = CONTEXT_EXAMPLES)]
pub(crate) struct ContextCommand {
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// List the contexts; the one in use has a star
    List,
    /// Use this one from now on
    Use { name: String },
    /// Forget one, with its token
    Remove {
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

impl Login {
    /// Nothing is kept unless the control plane takes the token.
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let file = ContextFile::find(&session.environment)?;
        let token = match session.environment.get("KRANE_TOKEN") {
            Some(token) => token.to_owned(),
            None => read_token()?,
        };
        let entry = Entry {
            token: Some(token),
            workspace: self.workspace,
            project: self.project,
            roots: self.roots,
            ..Entry::new(self.url.trim_end_matches('/'))
        };
        Client::new(&entry)?.get("/v1/workspaces?limit=1").await?;
        file.change(|contexts| {
            contexts.put(&self.name, entry.clone());
            Ok(())
        })?;
        say(&format!(
            "logged in to {}; the context {} is kept in {}",
            entry.url,
            self.name,
            file.path().display()
        ));
        Ok(End::Done)
    }
}

fn read_token() -> anyhow::Result<String> {
    let mut token = String::new();
    if io::stdin().is_terminal() {
        let _silence = Silence::begin()?;
        write!(io::stderr().lock(), "token (it is not shown): ")?;
        io::stdin().read_line(&mut token)?;
        say("");
    } else {
        io::stdin().take(4096).read_to_string(&mut token).context("the token cannot be read")?;
    }
    let token = token.trim().to_owned();
    anyhow::ensure!(!token.is_empty(), "there is no token: pipe it in, or set KRANE_TOKEN");
    Ok(token)
}

/// A terminal that does not show what is typed, until this goes.
struct Silence(Termios);

impl Silence {
    fn begin() -> anyhow::Result<Silence> {
        let before = tcgetattr(io::stdin()).context("the terminal does not say how it is set")?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &silent).context("the terminal cannot be silenced")?;
        Ok(Silence(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // Nobody is left to tell that it stays silent.
        let _told = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

impl ContextCommand {
    pub(super) fn run(self, session: &Session) -> anyhow::Result<End> {
        let file = ContextFile::find(&session.environment)?;
        match self.command.unwrap_or(Verb::List) {
            Verb::List => {
                let contexts = file.load()?;
                let row = |(name, entry): (&String, &Entry)| {
                    let mark = if contexts.current.as_ref() == Some(name) { "*" } else { "" };
                    let of = |text: &Option<String>| text.clone().unwrap_or_default();
                    vec![
                        mark.to_owned(),
                        name.clone(),
                        entry.url.clone(),
                        of(&entry.workspace),
                        of(&entry.project),
                    ]
                };
                let rows: Vec<_> = contexts.contexts.iter().map(row).collect();
                if rows.is_empty() {
                    say("there is no context yet; make one with: krane login URL");
                }
                print(&output::table(&["", "NAME", "URL", "WORKSPACE", "PROJECT"], &rows))?;
            }
            Verb::Use { name } => {
                file.change(|contexts| contexts.select(&name))?;
                say(&format!("using {name}"));
            }
            Verb::Remove { name, yes } => {
                file.load()?.get(&name)?;
                confirm(&format!("Forget the context {name} and its token?"), yes)?;
                file.change(|contexts| contexts.remove(&name))?;
                say(&format!("{name} is forgotten; its token is good until it is revoked"));
            }
        }
        Ok(End::Done)
    }
}
