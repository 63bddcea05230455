//! Routes: which deployments answer for a hostname of an environment.
//!
//! A live hostname is unique over the store. To move one, remove it there first and then put it here, in one
//! commit.

mod lists;

use std::sync::{Arc, LazyLock};

use model::{
    id::EnvironmentId,
    name::Hostname,
    route::{Route, Target, Targets},
};
use serde::{Deserialize, Serialize};

pub use self::lists::RouteFilter;
use crate::{
    Cause, Result, Row, Store, Value, Write,
    feed::{self, GRAVE, Item, State, Stream, Topic},
    json,
    projects::{after_cell, one},
    table::{Columns, Group, Patch, Table},
    value::{Cells, text},
};

const WATCHED: usize = 0;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "routes",
        key: &["environment_id", "hostname"],
        constant: &[],
        groups: &[Group {
            version: Some("version"),
            compared: &["targets", "previous", "follows", "affinity", "gone"],
            carried: &["gone_at", "change_id"],
            patched: &[],
        }],
    })
});

static REMOVE: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(WATCHED, &["gone"], &["gone_at", "change_id"]));

pub(crate) const REMOVALS: &[&str] = &["DELETE FROM routes WHERE gone AND version <= $1"];

const GET: &str = "
  SELECT environment_id, hostname, targets, previous, follows, affinity FROM routes
  WHERE hostname = $1 AND NOT gone";
const LIST: &str = "
  SELECT environment_id, hostname, targets, previous, follows, affinity FROM routes
  WHERE environment_id = $1 AND hostname > $2 AND NOT gone ORDER BY hostname LIMIT $3";

/// A target as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTarget {
    deployment: String,
    weight: u32,
}

impl Store {
    /// The live route of a hostname, whosever it is.
    pub async fn route(&self, hostname: &Hostname) -> Result<Route> {
        one(&self.read(GET, vec![text(hostname)]).await?, hostname, |row| decode(&mut row.cells()))
    }

    pub async fn routes(
        &self,
        environment: EnvironmentId,
        after: Option<&Hostname>,
        limit: u32,
    ) -> Result<Vec<Route>> {
        let params = vec![text(&environment), after_cell(after), limit.into()];
        self.read(LIST, params).await?.iter().map(|row| decode(&mut row.cells())).collect()
    }
}

impl Write {
    /// Makes a route so; a hostname that another environment has is a conflict.
    pub async fn put_route(&mut self, route: &Route, cause: &Cause) -> Result<bool> {
        Ok(self.put_routes(std::slice::from_ref(route), cause).await?.contains(&true))
    }

    /// Makes many routes so, in one round trip and in the order of their keys; says of each, in the order
    /// they were given in, whether anything changed.
    pub async fn put_routes(&mut self, routes: &[Route], cause: &Cause) -> Result<Vec<bool>> {
        let mut order: Vec<usize> = (0..routes.len()).collect();
        order.sort_by_key(|nth| (routes[*nth].environment, &routes[*nth].hostname));
        let rows = order.iter().map(|nth| encode(&routes[*nth], cause)).collect();
        let changed = self.put_all(&TABLE, rows).await?;
        let mut answers = vec![false; routes.len()];
        order.into_iter().zip(changed).for_each(|(nth, changed)| answers[nth] = changed);
        Ok(answers)
    }

    /// Takes a hostname from its environment.
    pub async fn remove_route(
        &mut self,
        environment: EnvironmentId,
        hostname: &Hostname,
        cause: &Cause,
    ) -> Result<bool> {
        let values = vec![true.into(), cause.at.0.into(), cause.change_cell()];
        let row = (vec![text(&environment), text(hostname)], values);
        Ok(self.patch_all(&TABLE, &REMOVE, vec![row]).await?.contains(&true))
    }

    /// The live route of a hostname, whosever it is, as it is in this write.
    pub async fn route(&mut self, hostname: &Hostname) -> Result<Option<Route>> {
        self.run(GET, vec![text(hostname)]).await?.first().map(|row| decode(&mut row.cells())).transpose()
    }

    /// The routes of an environment as they are in this write.
    pub async fn routes(
        &mut self,
        environment: EnvironmentId,
        after: Option<&Hostname>,
        limit: u32,
    ) -> Result<Vec<Route>> {
        let params = vec![text(&environment), after_cell(after), limit.into()];
        self.run(LIST, params).await?.iter().map(|row| decode(&mut row.cells())).collect()
    }
}

fn encode(route: &Route, cause: &Cause) -> Vec<Value> {
    let shape =
        |target: &Target| StoredTarget { deployment: target.deployment.to_string(), weight: target.weight };
    vec![
        text(&route.environment),
        text(&route.hostname),
        json::encode(&route.targets.iter().map(shape).collect::<Vec<_>>()),
        route.previous.as_ref().map(text).into(),
        route.follows.as_str().into(),
        route.affinity.as_str().into(),
        false.into(),
        Value::Null,
        cause.change_cell(),
    ]
}

fn decode(cells: &mut Cells<'_>) -> Result<Route> {
    Ok(Route {
        environment: cells.parse()?,
        hostname: cells.parse()?,
        targets: cells.json(decode_targets)?,
        previous: cells.parse_some()?,
        follows: cells.parse()?,
        affinity: cells.parse()?,
    })
}

fn decode_targets(stored: Vec<StoredTarget>) -> Result<Targets, String> {
    let target = |StoredTarget { deployment, weight }: StoredTarget| {
        let deployment = deployment.parse().map_err(|error: model::id::Error| error.to_string())?;
        Ok(Target { deployment, weight })
    };
    let targets = stored.into_iter().map(target).collect::<Result<_, String>>()?;
    Targets::new(targets).map_err(|error| error.to_string())
}

/// The stream of routes.
pub(crate) fn stream() -> Stream {
    let columns = "r.environment_id, r.hostname, r.targets, r.previous, r.follows, r.affinity";
    let query = Stream::query(columns, "routes r", "r.version", Some("r.gone"), Some("r.change_id"));
    Stream { table: &TABLE, group: WATCHED, grave: GRAVE, queries: vec![query], decode: decode_stream }
}

fn decode_stream(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let item = |row: &Row| {
        let mut cells = row.cells();
        let route = Arc::new(decode(&mut cells)?);
        let at = feed::at(&mut cells)?;
        let topic = Topic::Routes(route.environment);
        Ok(feed::item(topic, &route.hostname, at, State::Route(route.clone())))
    };
    replies[0].iter().map(item).collect()
}
