//! What sentinels carried, in buckets of five seconds, and the last requests for people to look at.
//!
//! A sentinel tells sums since it started, so a report that is lost costs nothing and one that is sent twice
//! counts once: what it said last is kept beside the buckets, and only what has grown since goes into them.

mod shapes;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model::{
    cluster::Sequence,
    id::{DeploymentId, EnvironmentId},
    limits,
    name::{Hostname, Line, Placement},
    time::Millis,
    traffic::{Sample, Sums},
};

use self::shapes::Cumulative;
use crate::{
    Result, Store, Taken, Value, Write, backend::Statement, json, leases::count_cell, place::placement_cells,
    value::text,
};

/// All that one life of one sentinel carried until now, and a sample of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficReport {
    pub environment: EnvironmentId,
    pub placement: Placement,
    /// Names the life: its sums began at zero.
    pub start: Line,
    pub sequence: Sequence,
    pub sums: BTreeMap<(Hostname, DeploymentId), Sums>,
    pub samples: Vec<Sample>,
}

/// How long a bucket lasts.
const BUCKET: Duration = Duration::from_secs(5);

/// How many requests are kept, over all environments.
const REQUESTS: u32 = 10_000;

/// A life that was silent for this long beyond the buckets is over. Earlier, what it tells would count twice.
const SILENCE_MAX: Duration = Duration::from_hours(24);

/// A life is named by environment, place and start: the first five parameters of everything below.
const OPEN: &str = "
  INSERT INTO traffic_senders (environment_id, platform, region, shard, start_id, sequence, seen_at, sums)
  VALUES ($1, $2, $3, $4, $5, -1, $6, '[]') ON CONFLICT (environment_id, platform, region, shard, start_id) DO NOTHING";

const ADVANCE: &str = "
  UPDATE traffic_senders SET sequence = $6, seen_at = $7
  WHERE environment_id = $1 AND platform = $2 AND region = $3 AND shard = $4 AND start_id = $5 AND sequence < $6
  RETURNING sums";

const REMEMBER: &str = "
  UPDATE traffic_senders SET sums = $6
  WHERE environment_id = $1 AND platform = $2 AND region = $3 AND shard = $4 AND start_id = $5";

const GET_BUCKET: &str = "
  SELECT sums FROM traffic
  WHERE environment_id = $1 AND platform = $2 AND region = $3 AND shard = $4 AND start_id = $5
    AND bucket_at = $6 AND hostname = $7 AND deployment_id = $8";

const PUT_BUCKET: &str = "
  INSERT INTO traffic (environment_id, platform, region, shard, start_id, bucket_at, hostname, deployment_id, sums)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
  ON CONFLICT (environment_id, bucket_at, hostname, deployment_id, platform, region, shard, start_id)
  DO UPDATE SET sums = excluded.sums";

const PUT_REQUEST: &str = "
  INSERT INTO requests (environment_id, id, at, record) VALUES ($1, $2, $3, $4)
  ON CONFLICT (environment_id, id) DO NOTHING";

const TRIM_REQUESTS: &str = "
  DELETE FROM requests WHERE (at, environment_id, id) <= (
    SELECT at, environment_id, id FROM requests ORDER BY at DESC, environment_id DESC, id DESC LIMIT 1 OFFSET $1)";

const PRUNE_BUCKETS: &str = "DELETE FROM traffic WHERE bucket_at < $1";

const PRUNE_SENDERS: &str = "DELETE FROM traffic_senders WHERE seen_at < $1";

const SINCE: &str = "
  SELECT deployment_id, sums FROM traffic
  WHERE environment_id = $1 AND bucket_at >= $2 AND hostname = COALESCE($3, hostname)";

const LAST_REQUESTS: &str = "
  SELECT id, at, record FROM requests WHERE environment_id = $1 ORDER BY at DESC, id DESC LIMIT $2";

impl Store {
    /// What each deployment of an environment answered since then, for one hostname or for all, wherever.
    ///
    /// Buckets are whole: what came up to five seconds earlier may be among it.
    pub async fn traffic(
        &self,
        environment: EnvironmentId,
        hostname: Option<&Hostname>,
        since: Millis,
    ) -> Result<BTreeMap<DeploymentId, Sums>> {
        let params = vec![text(&environment), bucket_of(since).0.into(), hostname.map(text).into()];
        let mut traffic: BTreeMap<DeploymentId, Sums> = BTreeMap::new();
        for row in self.read(SINCE, params).await? {
            let mut cells = row.cells();
            let deployment = cells.parse()?;
            traffic.entry(deployment).or_default().merge(&cells.json(shapes::decode_sums)?);
        }
        Ok(traffic)
    }

    /// The last requests of an environment that were kept, the newest first.
    pub async fn requests(&self, environment: EnvironmentId, limit: u32) -> Result<Vec<Sample>> {
        let rows = self.read(LAST_REQUESTS, vec![text(&environment), limit.into()]).await?;
        rows.iter().map(shapes::decode_request).collect()
    }
}

impl Write {
    /// Takes many reports at once; says of each what became of it, in the order they were given in.
    ///
    /// Of several of one life the newest counts, for it holds what the others told. Lives are locked in their
    /// order, and a bucket belongs to one life. Nothing of this is watched.
    pub async fn take_traffic(&mut self, reports: &[TrafficReport], at: Millis) -> Result<Vec<Taken>> {
        let mut taken = vec![Taken::Old; reports.len()];
        let newest = newest(reports);
        let open = newest.iter().flat_map(|nth| reports[*nth].open(at)).collect();
        let replies = self.run_all(open).await?;
        let (mut grown, mut writes) = (Vec::new(), Vec::new());
        for (nth, replies) in newest.into_iter().zip(replies.chunks(2)) {
            let Some(row) = replies[1].first() else { continue };
            let seen = row.cells().json(shapes::decode_cumulative)?;
            let report = &reports[nth];
            let growth = growth(report, &seen);
            taken[nth] = if growth.is_empty() { Taken::Same } else { Taken::Changed };
            if !growth.is_empty() {
                writes.push(report.remember(seen));
            }
            grown.extend(growth.into_iter().map(|(of, sums)| (report.bucket(of, at), sums)));
            writes.extend(report.samples.iter().map(|sample| put_request(report.environment, sample, at)));
        }
        writes.extend(self.add_to_buckets(grown).await?);
        if reports.iter().any(|report| !report.samples.is_empty()) {
            writes.push(Statement { sql: TRIM_REQUESTS, params: vec![REQUESTS.into()] });
        }
        self.run_all(writes).await?;
        Ok(taken)
    }

    /// Reads the buckets, and says how they are to be with this added. Whoever asks holds the locks of the lives.
    async fn add_to_buckets(&mut self, grown: Vec<(Vec<Value>, Sums)>) -> Result<Vec<Statement>> {
        let get = |(key, _): &(Vec<Value>, Sums)| Statement { sql: GET_BUCKET, params: key.clone() };
        let replies = self.run_all(grown.iter().map(get).collect()).await?;
        let mut puts = Vec::with_capacity(grown.len());
        for ((mut params, mut sums), rows) in grown.into_iter().zip(replies) {
            if let Some(row) = rows.first() {
                sums.merge(&row.cells().json(shapes::decode_sums)?);
            }
            params.push(json::encode(&shapes::StoredSums::of(&sums)));
            puts.push(Statement { sql: PUT_BUCKET, params });
        }
        Ok(puts)
    }

    /// Forgets what was carried before then.
    pub async fn prune_traffic(&mut self, before: Millis) -> Result<()> {
        let silent_since = before.0.saturating_sub(millis(SILENCE_MAX));
        let statements = [(PRUNE_BUCKETS, before.0), (PRUNE_SENDERS, silent_since)];
        let statements = statements.map(|(sql, before)| Statement { sql, params: vec![before.into()] });
        self.run_all(statements.into()).await.map(drop)
    }
}

/// The newest report of each life, by its place in the batch and in the order of lives.
fn newest(reports: &[TrafficReport]) -> Vec<usize> {
    let mut newest: BTreeMap<_, usize> = BTreeMap::new();
    for (nth, report) in reports.iter().enumerate() {
        let of = newest.entry((report.environment, &report.placement, &report.start)).or_insert(nth);
        if report.sequence > reports[*of].sequence {
            *of = nth;
        }
    }
    newest.into_values().collect()
}

/// What a report tells beyond what was told before; only where that is anything.
fn growth(report: &TrafficReport, seen: &Cumulative) -> Cumulative {
    let nothing = Sums::default();
    let grown = |(of, sums): (&(Hostname, DeploymentId), &Sums)| {
        (of.clone(), sums.growth_since(seen.get(of).unwrap_or(&nothing)))
    };
    report.sums.iter().map(grown).filter(|(_, sums)| !sums.is_empty()).collect()
}

impl TrafficReport {
    /// The cells that name the life.
    fn life(&self) -> Vec<Value> {
        let [platform, region, shard] = placement_cells(&self.placement);
        vec![text(&self.environment), platform, region, shard, text(&self.start)]
    }

    /// Makes sure that the life is known, then locks it for this report if that is news.
    fn open(&self, at: Millis) -> [Statement; 2] {
        let with = |cells: &[Value]| [&self.life(), cells].concat();
        [
            Statement { sql: OPEN, params: with(&[at.0.into()]) },
            Statement { sql: ADVANCE, params: with(&[count_cell(self.sequence.0), at.0.into()]) },
        ]
    }

    /// Keeps what was told, also of what this report leaves out, as long as that is not too much.
    fn remember(&self, mut seen: Cumulative) -> Statement {
        seen.extend(self.sums.clone());
        if seen.len() > limits::TRAFFIC_SUMS {
            let told: BTreeSet<_> = self.sums.keys().collect();
            seen.retain(|of, _| told.contains(of));
        }
        let sums = json::encode(&shapes::encode_cumulative(&seen));
        Statement { sql: REMEMBER, params: [self.life(), vec![sums]].concat() }
    }

    /// The key of the bucket of now.
    fn bucket(&self, (hostname, deployment): (Hostname, DeploymentId), at: Millis) -> Vec<Value> {
        [self.life(), vec![bucket_of(at).0.into(), text(&hostname), text(&deployment)]].concat()
    }
}

/// A request is never later than now: a clock that is ahead would keep its own for ever.
fn put_request(environment: EnvironmentId, sample: &Sample, now: Millis) -> Statement {
    let record = json::encode(&shapes::StoredRequest::of(sample));
    let at = sample.at.0.min(now.0);
    Statement { sql: PUT_REQUEST, params: vec![text(&environment), text(&sample.id), at.into(), record] }
}

fn bucket_of(Millis(at): Millis) -> Millis {
    Millis(at.saturating_sub(at.rem_euclid(millis(BUCKET))))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("our durations are days at most")
}
