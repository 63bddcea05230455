//! What a user asks of a control plane: the commands that talk to its API, from any machine.
//!
//! ```text
//! environment, contexts ─▶ Server ─▶ Client ─▶ the API ─▶ Answer ─▶ output: a table, JSON, YAML, names
//!                                       └─▶ Trouble: what happened, why, what to try
//! ```
//!
//! Data goes to standard output, everything else to standard error.

mod access;
mod check;
pub(crate) mod client;
mod completion;
pub(crate) mod context;
mod declare;
mod deploy;
mod door;
pub(crate) mod environment;
mod events;
mod follow;
pub(crate) mod get;
mod kind;
mod logs;
mod make;
mod operate;
mod output;
pub(crate) mod place;
mod server;
mod status;
mod trouble;

use std::process::ExitCode;

use clap::Subcommand;

use self::{deploy::What, environment::Environment, output::Paint, trouble::Trouble};
use crate::process::block_on_small;

/// How a command ended, for whoever looks at its exit code. Wrong usage is 2, which the parser of arguments says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Done = 0,
    /// It could not be done.
    Error = 1,
    /// The deployment failed.
    Failed = 3,
    /// The deployment was cancelled, overtaken or stopped.
    Otherwise = 4,
    /// `diff --exit-code` found something.
    Differs = 5,
    /// `check` found something wrong.
    Unwell = 6,
    /// It is still under way, and nobody wanted to wait longer.
    Late = 7,
    /// No control plane answered.
    NoServer = 8,
    /// There is no token that is good for it.
    NotAllowed = 9,
}

impl End {
    /// What an error means for whoever cannot read it.
    pub(crate) fn of(error: &anyhow::Error) -> End {
        error.downcast_ref::<Trouble>().map_or(End::Error, Trouble::end)
    }
}

impl From<End> for ExitCode {
    fn from(end: End) -> ExitCode {
        ExitCode::from(end as u8)
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Keep a control plane's address and a token for it
    Login(server::Login),
    /// Show, choose or forget control planes
    Context(server::ContextCommand),
    /// Write a commented document for an app
    Init(declare::Init),
    /// Make it so: create or update what a document says
    Apply(declare::Apply),
    /// Show what apply would change
    Diff(declare::Diff),
    /// Deploy an image, and follow it until it serves
    Deploy(deploy::Deploy),
    /// Make a deployment live
    Promote(deploy::Verb),
    /// Take the traffic back from a deployment, to the one before
    Rollback(deploy::Rollback),
    /// Stop a deployment
    Stop(deploy::Verb),
    /// Start a deployment again
    Start(deploy::Verb),
    /// Change how many instances a deployment has
    Scale(deploy::Scale),
    /// End a deployment that is on its way
    Cancel(deploy::Verb),
    /// See everything at a glance, or one deployment whole
    Status(status::Status),
    /// List things of a kind, or show one
    Get(get::Get),
    /// Make a workspace, a project, an app or an environment
    Create(make::Create),
    /// Delete one, with all that is in it
    Delete(make::Delete),
    /// Show what the instances of a deployment print
    Logs(logs::Logs),
    /// Show the newest requests of an environment
    Requests(operate::Requests),
    /// Show what happened, and what happens
    Events(events::Events),
    /// List clusters, or let one delete what it holds back
    Clusters(operate::Clusters),
    /// List tokens, make one, or end one
    Tokens(operate::Tokens),
    /// List hostnames and what answers them
    Routes(operate::Routes),
    /// Find out what is wrong, and what to do
    Check(check::Check),
    /// Print a script that completes commands in a shell
    Completion(completion::Completion),
}

/// What every command may look at.
pub(crate) struct Session {
    pub(crate) environment: Environment,
    pub(crate) paint: Paint,
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<End> {
        let environment = Environment::read();
        let session = Session { paint: Paint::of(&environment), environment };
        match self {
            Command::Login(login) => block_on_small(login.run(&session)),
            Command::Context(context) => context.run(&session),
            Command::Init(init) => init.run(),
            Command::Apply(apply) => block_on_small(apply.run(&session)),
            Command::Diff(diff) => block_on_small(diff.run(&session)),
            Command::Deploy(deploy) => block_on_small(deploy.run(&session)),
            Command::Promote(verb) => block_on_small(verb.run(&session, What::Promote)),
            Command::Rollback(rollback) => block_on_small(rollback.run(&session)),
            Command::Stop(verb) => block_on_small(verb.run(&session, What::Stop)),
            Command::Start(verb) => block_on_small(verb.run(&session, What::Start)),
            Command::Scale(scale) => block_on_small(scale.run(&session)),
            Command::Cancel(verb) => block_on_small(verb.run(&session, What::Cancel)),
            Command::Status(status) => block_on_small(status.run(&session)),
            Command::Get(get) => block_on_small(get.run(&session)),
            Command::Create(create) => block_on_small(create.run(&session)),
            Command::Delete(delete) => block_on_small(delete.run(&session)),
            Command::Logs(logs) => block_on_small(logs.run(&session)),
            Command::Requests(requests) => block_on_small(requests.run(&session)),
            Command::Events(events) => block_on_small(events.run(&session)),
            Command::Clusters(clusters) => block_on_small(clusters.run(&session)),
            Command::Tokens(tokens) => block_on_small(tokens.run(&session)),
            Command::Routes(routes) => block_on_small(routes.run(&session)),
            Command::Check(check) => block_on_small(check.run(&session)),
            Command::Completion(completion) => completion.run(),
        }
    }
}
