//! All the SQL: one store over SQLite and PostgreSQL, whose history no reader can miss a change of.
//!
//! ```text
//! begin ─▶ Write: puts … ─▶ commit: tick the clock, stamp the rows ─▶ ring ─▶ Tail ─▶ Image ─▶ streams
//! ```
//!
//! A [`Write`] notes every versioned row it changes; its commit, the only one there is, takes the next
//! numbers from the clock row as the last lock and writes them onto those rows. So commit order is version
//! order, and a read of one snapshot `after` a version misses nothing (`docs/watch.md`).

mod apply_errors;
mod audit;
pub mod backend;
mod clock;
mod clusters;
mod deployments;
mod environments;
mod error;
mod events;
mod feed;
mod idempotency;
mod instances;
mod inventory;
mod json;
mod keys;
mod leases;
mod listing;
mod network_policies;
mod path;
mod place;
mod projects;
mod reports;
mod rollouts;
mod routes;
mod schema;
mod sentinels;
mod table;
mod tail;
mod tokens;
mod topology;
mod traffic;
mod turns;
mod usage;
mod value;
mod workflows;
mod write;

use std::sync::Arc;

use model::watch::{Cursor, Picture};

pub use self::{
    apply_errors::{ApplyReport, ApplySubject, ApplyTaken, ApplyTurn},
    audit::{Audit, AuditFilter},
    backend::{Config, Durability, Moment, PostgresConfig, SqliteConfig, Surroundings, Trouble, Wake},
    deployments::{DeploymentFilter, Placed},
    environments::EnvironmentFilter,
    error::{Error, Result},
    events::EventFilter,
    feed::{
        ClusterState, EnvironmentPolicies, Item, NetworkPolicyReport, Routing, SentinelReport, State, Topic,
    },
    idempotency::{Once, OnceKey},
    instances::{Report, Reported},
    inventory::{Inventory, Names},
    keys::{KeyHash, Keyspace, StoredKey},
    leases::{Begun, Expired, Lease, Renewal, Renewed, Served},
    network_policies::{ListedPolicy, NetworkPolicyFilter},
    path::Path,
    place::Cause,
    projects::{Root, Stored},
    reports::Taken,
    routes::RouteFilter,
    sentinels::{SentinelStatus, SentinelSubject},
    tail::{Image, Subscription, Tail},
    traffic::TrafficReport,
    turns::{Turn, Turned},
    value::{Row, Value},
    workflows::{OpenWorkflow, Workflow, WorkflowClaim},
    write::{Commit, Stamped, Write},
};
use crate::backend::Backend;

/// A shared handle to an open store.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    backend: Arc<Backend>,
    surroundings: Surroundings,
}

impl Store {
    /// Opens the database, brings its schema up to date, and makes sure of its history.
    pub async fn open(config: &Config, surroundings: Surroundings) -> Result<Self> {
        let backend = Arc::new(Backend::open(config, &surroundings).await?);
        Ok(Self(Arc::new(Inner { backend, surroundings })))
    }

    /// The database's name and version, for people.
    pub async fn describe(&self) -> Result<String> {
        self.backend().describe().await
    }

    /// What changed after the cursor, over all tables, from one snapshot; everything, if that cannot be told.
    pub async fn changes(&self, cursor: Cursor) -> Result<Picture<Topic, State>> {
        feed::read(self.backend(), cursor).await
    }

    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.0.backend
    }

    pub(crate) fn surroundings(&self) -> &Surroundings {
        &self.0.surroundings
    }

    pub(crate) async fn read(&self, sql: &'static str, params: Vec<Value>) -> Result<Vec<Row>> {
        self.backend().read(sql, params).await
    }
}
