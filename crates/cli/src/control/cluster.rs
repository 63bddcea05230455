//! `krane control cluster`: what is known of clusters, and what an operator may confirm there.

use std::io::Write as _;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use control::event::Events;
use model::{
    cluster::{Cluster as Known, ListHash},
    kind::Kind,
    name::{Placement, RegionChoice},
};
use runtime::clock::Timestamp;
use serde_json::json;
use store::Cause;

use super::Opened;

const EXAMPLES: &str = "Examples:
  krane control cluster list
  krane control cluster confirm aws/us-east-1 --kind deployment --hash 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
  krane control cluster confirm aws/us-east-1:b --kind sentinel --hash 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Cluster {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List clusters, with the deletions that they hold back
    List {
        /// As JSON, one object in a line
        #[arg(long)]
        json: bool,
    },
    /// Let a cluster make the deletions that it holds back
    Confirm {
        /// The region, and its shard if that is not the default
        #[arg(value_name = "REGION[:SHARD]")]
        place: RegionChoice,
        /// deployment, sentinel or networkpolicy
        #[arg(long)]
        kind: Kind,
        /// The list's hash, as `cluster list` shows it: another list is not confirmed by it
        #[arg(long)]
        hash: ListHash,
    },
}

impl Cluster {
    pub(super) async fn run(&self, opened: &Opened) -> anyhow::Result<()> {
        match &self.command {
            Command::List { json } => list(&opened.store.clusters().await?, *json),
            Command::Confirm { place, kind, hash } => {
                let RegionChoice { region, shard } = place.clone();
                confirm(opened, &region.shard(shard.unwrap_or_default()), *kind, *hash).await
            }
        }
    }
}

async fn confirm(opened: &Opened, place: &Placement, kind: Kind, hash: ListHash) -> anyhow::Result<()> {
    let Opened { store, clock, random, .. } = opened;
    let draft = Events::new(clock, random).draft();
    let cause = Cause { change: Some(draft.change()), at: draft.at() };
    let confirmed = store.retry(async || {
        let mut write = store.begin().await?;
        let confirmed = write.confirm_held_back(place, kind, hash, &cause).await?;
        if confirmed {
            write.put_event(&draft.confirmed(place, kind, hash)).await?;
        }
        write.commit().await?;
        Ok(confirmed)
    });
    let confirmed = confirmed.await.context("nothing was confirmed")?;
    let said = if confirmed { "is confirmed" } else { "was confirmed before" };
    Ok(writeln!(std::io::stdout(), "{place} {kind} {hash} {said}")?)
}

fn list(clusters: &[Known], as_json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for cluster in clusters {
        if as_json {
            writeln!(out, "{}", describe(cluster))?;
            continue;
        }
        let version = cluster.agent_version.as_ref().map_or("no agent yet", |version| version.as_str());
        let (place, reach, epoch) = (&cluster.placement, cluster.reachability, cluster.epoch.0);
        writeln!(out, "{place:<32}  {reach:<12}  term {epoch:<6}  {version}")?;
        for held in &cluster.held_back {
            let state = if held.is_confirmed() { "confirmed" } else { "to be confirmed" };
            writeln!(out, "  holds back {} {}s, {}  {state}", held.count, held.kind, held.hash)?;
        }
    }
    Ok(())
}

fn describe(cluster: &Known) -> serde_json::Value {
    let held = cluster.held_back.iter().map(|held| {
        json!({
            "kind": held.kind.as_str(),
            "hash": held.hash.to_string(),
            "count": held.count,
            "confirmed": held.is_confirmed(),
        })
    });
    json!({
        "place": cluster.placement.to_string(),
        "reachability": cluster.reachability.as_str(),
        "can_schedule": cluster.can_schedule,
        "uid": cluster.uid.as_ref().map(ToString::to_string),
        "epoch": cluster.epoch.0,
        "lease_expires_at": cluster.lease_expires_at.map(|at| Timestamp::from_millis(at.0).to_string()),
        "agent_version": cluster.agent_version.as_ref().map(ToString::to_string),
        "held_back": held.collect::<Vec<_>>(),
    })
}
