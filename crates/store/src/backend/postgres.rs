//! PostgreSQL: pooled connections, pipelined commits, and one connection beside them for the bell.

mod bell;
mod tls;
mod values;

use std::{sync::Arc, time::Duration};

use deadpool_postgres::{
    Client, Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime,
};
use futures_util::{TryStreamExt, future::maybe_done, pin_mut, poll};
use runtime::shutdown::Tasks;
use tokio::runtime::Handle;
use tokio_postgres::{Config, Statement as Prepared, error::SqlState};

pub(crate) use self::bell::Ear;
use self::{bell::Bell, tls::Tls};
use super::{PostgresConfig, Statement, Surroundings};
use crate::{Error, Result, Row, Value, clock, schema};

/// How long a caller may wait for a connection before it hears that the database is busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// Held while the schema is brought up to date; any number will do, if nobody else uses it.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(7308324465861)";

/// What the database sits on: another server, another timeline or another table is another history.
const FOUNDATION: &str = "
  SELECT 'postgres/' || (SELECT system_identifier FROM pg_control_system())
    || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
    || '/' || 'clock'::regclass::oid";

/// A write awaits nothing but itself. Whoever stops in the middle of one, as a process that is suspended does, must not hold
/// its locks against all others for as long as it sleeps.
const ASLEEP: &str = "SET idle_in_transaction_session_timeout = '10s'";

/// Whether the clock's row still lies in the table that it recorded. A backup that is restored in place comes with
/// a new table, and the connections that were there before go on as if nothing had happened.
const SOUND: &str = "SELECT foundation LIKE '%/' || tableoid FROM clock";

pub(crate) struct Postgres {
    pool: Pool,
    bell: Bell,
    pipelined: bool,
    tasks: Tasks,
}

/// A transaction that owns its connection; its BEGIN travels with its first statement.
pub(crate) struct Transaction {
    client: Option<Client>,
    begun: bool,
    pipelined: bool,
    tasks: Tasks,
}

/// One message of a pipeline.
enum Step<'a> {
    Control(&'static str),
    Run(Prepared, &'a [Value]),
}

impl Postgres {
    pub(crate) async fn open(config: &PostgresConfig, surroundings: &Surroundings) -> Result<Self> {
        let (server, tls) = tls::of(config)?;
        migrate(&server, &tls, surroundings).await?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_config(server.clone(), tls.clone(), recycling))
            .max_size(config.connections_max)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(PATIENCE))
            .create_timeout(Some(PATIENCE))
            .post_create(foundation_hook(surroundings.clone()))
            .build()
            .map_err(|error| Error::broken(error.to_string()))?;
        let bell = Bell::hang(server, tls, surroundings);
        Ok(Self { pool, bell, pipelined: config.pipelined, tasks: surroundings.tasks.clone() })
    }

    pub(crate) async fn begin(&self) -> Result<Transaction> {
        let client = self.pool.get().await.map_err(unavailable)?;
        let (pipelined, tasks) = (self.pipelined, self.tasks.clone());
        Ok(Transaction { client: Some(client), begun: false, pipelined, tasks })
    }

    pub(crate) async fn read(&self, Statement { sql, params }: &Statement) -> Result<Vec<Row>> {
        let client = self.pool.get().await.map_err(unavailable)?;
        let prepared = client.prepare_cached(sql).await.map_err(translate)?;
        rows(&client, &prepared, params).await
    }

    pub(crate) async fn snapshot(
        &self,
        first: Statement,
        then: impl FnOnce(&[Row]) -> Result<Vec<Statement>>,
    ) -> Result<(Vec<Row>, Vec<Vec<Row>>)> {
        let mut transaction = self.begin().await?;
        let first = [first, Statement { sql: SOUND, params: vec![] }];
        let steps = transaction.prepare(&first).await?;
        let mut replies = transaction.send(SNAPSHOT, steps).await?;
        let sound = replies.pop().unwrap_or_default();
        let seen = replies.pop().unwrap_or_default();
        if sound.first().map(|row| row.get(0)).transpose()? != Some(true) {
            // Whoever connects anew asks what this is now, and begins a history.
            self.pool.retain(|_, _| false);
            drop(transaction.client.take().map(Client::take));
            return Err(Error::Busy("another database was put in the place of this one".into()));
        }
        let rest = then(&seen)?;
        Ok((seen, transaction.finish(&rest).await?))
    }

    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    pub(crate) fn listen(&self) -> Ear {
        self.bell.listen()
    }

    pub(crate) async fn describe(&self) -> Result<String> {
        let client = self.pool.get().await.map_err(unavailable)?;
        let version = client.query_one("SHOW server_version", &[]).await.map_err(translate)?;
        Ok(format!("PostgreSQL {}", version.get::<_, String>(0)))
    }
}

impl Transaction {
    pub(crate) async fn batch(&mut self, statements: &[Statement]) -> Result<Vec<Vec<Row>>> {
        let steps = self.prepare(statements).await?;
        self.send(BEGIN, steps).await
    }

    pub(crate) async fn commit(mut self, last: &[Statement]) -> Result<Vec<Vec<Row>>> {
        if self.pipelined {
            return self.finish(last).await;
        }
        let mut replies = Vec::new();
        for statement in last {
            replies.extend(self.batch(std::slice::from_ref(statement)).await?);
        }
        self.finish(&[]).await?;
        Ok(replies)
    }

    pub(crate) async fn rollback(mut self) -> Result<()> {
        if self.begun {
            reply(self.client()?, Step::Control("ROLLBACK")).await?;
            self.begun = false;
        }
        Ok(())
    }

    /// Runs the statements and commits, all in one round trip.
    async fn finish(mut self, last: &[Statement]) -> Result<Vec<Vec<Row>>> {
        let mut steps = self.prepare(last).await?;
        steps.push(Step::Control("COMMIT"));
        let replies = self.send(BEGIN, steps).await;
        // Even a COMMIT after a failed statement ends the transaction: it rolls back, and says OK.
        self.begun = false;
        Ok(replies?.into_iter().take(last.len()).collect())
    }

    async fn prepare<'a>(&self, statements: &'a [Statement]) -> Result<Vec<Step<'a>>> {
        let mut steps = Vec::with_capacity(statements.len() + 1);
        for Statement { sql, params } in statements {
            let prepared = self.client()?.prepare_cached(sql).await.map_err(translate)?;
            steps.push(Step::Run(prepared, params));
        }
        Ok(steps)
    }

    /// Sends the steps, behind a BEGIN if there was none yet.
    async fn send(&mut self, begin: &'static str, mut steps: Vec<Step<'_>>) -> Result<Vec<Vec<Row>>> {
        let first = !std::mem::replace(&mut self.begun, true);
        if first {
            steps.insert(0, Step::Control(begin));
        }
        let replies = pipeline(self.client()?, steps).await;
        replies.into_iter().skip(first.into()).collect()
    }

    fn client(&self) -> Result<&Client> {
        self.client.as_ref().ok_or_else(|| Error::broken("the transaction is over"))
    }
}

/// Said out loud, because a server may be set to another default: the clock needs this one.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Every statement sees the same: two in READ COMMITTED would miss what is committed between them.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// The pool would hand an open transaction to the next caller, so it is rolled back first.
impl Drop for Transaction {
    fn drop(&mut self) {
        let Some(client) = self.client.take_if(|_| self.begun) else { return };
        if self.tasks.is_stopping() || Handle::try_current().is_err() {
            // Nobody is there to wait for a rollback; closing the connection is one.
            drop(Client::take(client));
            return;
        }
        self.tasks.spawn("roll back", async move {
            if client.batch_execute("ROLLBACK").await.is_err() {
                drop(Client::take(client));
            }
        });
    }
}

/// Sends every step before it waits for any.
async fn pipeline(client: &Client, steps: Vec<Step<'_>>) -> Vec<Result<Vec<Row>>> {
    let mut sent: Vec<_> = steps.into_iter().map(|step| Box::pin(maybe_done(reply(client, step)))).collect();
    // The order on the wire is the order of first polls, which `join_all` does not promise.
    for reply in &mut sent {
        let _ = poll!(reply.as_mut());
    }
    let mut replies = Vec::with_capacity(sent.len());
    for reply in &mut sent {
        reply.as_mut().await;
        replies.extend(reply.as_mut().take_output());
    }
    replies
}

async fn reply(client: &Client, step: Step<'_>) -> Result<Vec<Row>> {
    match step {
        Step::Control(sql) => client.batch_execute(sql).await.map(|()| Vec::new()).map_err(translate),
        Step::Run(prepared, params) => rows(client, &prepared, params).await,
    }
}

async fn rows(client: &tokio_postgres::Client, prepared: &Prepared, params: &[Value]) -> Result<Vec<Row>> {
    let stream = client.query_raw(prepared, params).await.map_err(translate)?;
    pin_mut!(stream);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await.map_err(translate)? {
        let cells = (0..row.len()).map(|column| row.try_get(column).map_err(translate));
        rows.push(Row(cells.collect::<Result<_>>()?));
    }
    Ok(rows)
}

/// Steps run in one transaction under a lock, on a connection that no reader uses.
async fn migrate(server: &Config, tls: &Tls, surroundings: &Surroundings) -> Result<()> {
    let (mut client, connection) = server.connect(tls.clone()).await.map_err(translate)?;
    let work = async {
        let transaction = client.transaction().await.map_err(translate)?;
        transaction.batch_execute(MIGRATION_LOCK).await.map_err(translate)?;
        transaction.batch_execute(schema::CREATE).await.map_err(translate)?;
        let applied = transaction.query_one(schema::APPLIED, &[]).await.map_err(translate)?;
        for migration in schema::pending(schema::POSTGRES, applied.get(0))? {
            transaction.batch_execute(migration.sql).await.map_err(translate)?;
            let now = surroundings.clock.now().millis();
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&migration.version, &migration.name, &now];
            transaction.execute(schema::RECORD, &params).await.map_err(translate)?;
        }
        transaction.commit().await.map_err(translate)
    };
    tokio::select! {
        done = work => done,
        // Without its connection nothing moves, so this ends first only if the server hangs up.
        lost = connection => Err(lost.err().map_or_else(|| Error::Busy("the server hung up".into()), translate)),
    }
}

/// Asks every new connection what it sits on: a failover happens under a running process.
fn foundation_hook(surroundings: Surroundings) -> Hook {
    let surroundings = Arc::new(surroundings);
    Hook::async_fn(move |client, _| {
        let surroundings = surroundings.clone();
        Box::pin(async move {
            let found = async {
                client.batch_execute(ASLEEP).await.map_err(translate)?;
                let foundation = client.query_one(FOUNDATION, &[]).await.map_err(translate)?;
                for Statement { sql, params } in clock::found(&surroundings, foundation.get(0)) {
                    let prepared = client.prepare(sql).await.map_err(translate)?;
                    rows(client, &prepared, &params).await?;
                }
                Ok(())
            };
            found.await.map_err(|error: Error| HookError::message(error.to_string()))
        })
    })
}

fn unavailable(error: PoolError) -> Error {
    match error {
        PoolError::Backend(error) => translate(error),
        error => Error::Busy(error.to_string()),
    }
}

pub(crate) fn translate(error: tokio_postgres::Error) -> Error {
    let text = match (error.as_db_error(), std::error::Error::source(&error)) {
        (Some(said), _) => said.to_string(),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    };
    // No answer of the server, but of the way to it: refused, reset, gone.
    let is_lost = |error: &tokio_postgres::Error| {
        error.is_closed()
            || std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
    };
    match error.code() {
        Some(&SqlState::UNIQUE_VIOLATION | &SqlState::FOREIGN_KEY_VIOLATION | &SqlState::CHECK_VIOLATION) => {
            Error::Conflict(text)
        }
        Some(
            &SqlState::T_R_DEADLOCK_DETECTED
            | &SqlState::T_R_SERIALIZATION_FAILURE
            | &SqlState::LOCK_NOT_AVAILABLE
            | &SqlState::ADMIN_SHUTDOWN
            | &SqlState::CRASH_SHUTDOWN
            | &SqlState::CANNOT_CONNECT_NOW
            | &SqlState::TOO_MANY_CONNECTIONS,
        ) => Error::Busy(text),
        Some(&SqlState::DISK_FULL) => Error::Full(text),
        None if is_lost(&error) => Error::Busy(text),
        _ => Error::Broken(text),
    }
}
