//! What the control plane does by itself, over many commits: state machines in the store that any replica can go on with.
//!
//! ```text
//! due, or something of its topics changed ─▶ claim ─▶ facts ─▶ decide (pure) ─┬▶ commit, named, by the claim's epoch ─▶ facts …
//!                                                                            └▶ wait: let go until then, or until news
//! ```
//!
//! One loop runs all kinds. A replica holds a workflow only while it has something to do for it, so that nothing has to be
//! renewed while it waits; whoever hears the news first goes on. A replica that ends in the middle is replaced by
//! whoever looks after its claim ran out, and one that slept finds another epoch and writes nothing.

mod book;
mod delete;
mod deploy;
mod hand;
mod health;
mod network;
mod retire;
mod rollout;
pub(crate) mod state;
mod switch;

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use model::{
    id::{EnvironmentId, WorkflowId},
    name::LabelValue,
    time::Millis,
    watch::Cursor,
    workflow::WorkflowKind,
};
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use store::{State, Store, Tail, Topic, Workflow};

pub use self::hand::{Points, Side};
use self::{
    book::Book,
    hand::{Decision, Halt, Hand, Next, Shared},
};
use crate::{config::DeployConfig, event::Events};

/// How many workflows are gone on with at a time.
const TURNS: usize = 8;

/// How long a workflow rests whose turn failed.
const TROUBLED: Duration = Duration::from_secs(1);

/// How many commits a turn makes before others have theirs.
const COMMITS: usize = 256;

/// Workflows that are listed in one read.
const PAGE: u32 = 500;

/// Starts the loop; it ends with the tasks.
#[expect(clippy::too_many_arguments, reason = "each is a part of the process, named by its type")]
pub fn start(
    store: &Store,
    tail: &Tail,
    config: &DeployConfig,
    key: &LabelValue,
    clock: &Clock,
    random: &Random,
    points: Points,
    tasks: &Tasks,
) {
    let shared = Arc::new(Shared {
        store: store.clone(),
        tail: tail.clone(),
        config: config.clone(),
        key: key.clone(),
        clock: clock.clone(),
        events: Events::new(clock, random),
        holder: format!("{:016x}", random.u64()),
        points,
    });
    let stopping = tasks.token();
    tasks.spawn("workflows", async move {
        stopping.run_until_cancelled(Engine::new(shared).run()).await;
    });
}

/// What came of a turn.
enum Turned {
    /// Nothing more to do until then, or until one of the topics changes beyond the cursor.
    Waits {
        until: Millis,
        topics: Vec<Topic>,
        cursor: Cursor,
    },
    /// It is over, or somebody else's.
    Over,
    Held,
    Troubled,
    /// A test ended this replica.
    Killed,
}

struct Engine {
    shared: Arc<Shared>,
    book: Book,
    turns: FuturesUnordered<BoxFuture<'static, (WorkflowId, Turned)>>,
    news: FuturesUnordered<BoxFuture<'static, WorkflowId>>,
}

impl Engine {
    fn new(shared: Arc<Shared>) -> Engine {
        Engine {
            shared,
            book: Book::default(),
            turns: FuturesUnordered::new(),
            news: FuturesUnordered::new(),
        }
    }

    async fn run(mut self) {
        let tail = self.shared.tail.clone();
        let Ok(mut events) = tail.subscribe(vec![Topic::Events], tail.position().cursor()).await else {
            return;
        };
        // A third of a claim, so that what somebody left in the middle is found soon after its claim ran out.
        let look = self.shared.config.claim / 3;
        self.list().await;
        loop {
            self.begin_turns();
            let now = self.now();
            let rest =
                self.book.next_due(self.turns.len() < TURNS).map_or(look, |due| due.since(now).min(look));
            tokio::select! {
                biased;
                Some((id, turned)) = self.turns.next() => {
                    if !self.settle(id, turned) {
                        return;
                    }
                }
                Some(id) = self.news.next() => {
                    let now = self.now();
                    self.book.heard(id, now);
                }
                picture = events.next() => {
                    let Some(picture) = picture else { return };
                    self.list().await;
                    let environments = picture.items.iter().filter_map(|item| match &item.state {
                        State::Event(event) => event.subject.environment,
                        _ => None,
                    });
                    let now = self.now();
                    environments.for_each(|environment| self.book.stirred(environment, now));
                }
                () = self.shared.clock.sleep(rest.max(Duration::from_millis(1))) => self.list().await,
            }
        }
    }

    /// Reads which workflows there are. One that cannot be read now is read with the next look.
    async fn list(&mut self) {
        let mut open = Vec::new();
        loop {
            let after = open.last().map(|open: &store::OpenWorkflow| open.workflow.id);
            match self.shared.store.open_workflows(after, PAGE).await {
                Ok(page) => {
                    let is_last = page.len() < PAGE as usize;
                    open.extend(page);
                    if is_last {
                        break;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "workflows could not be listed");
                    return;
                }
            }
        }
        let now = self.now();
        self.book.listed(&open, now);
    }

    fn begin_turns(&mut self) {
        let now = self.now();
        while self.turns.len() < TURNS
            && let Some(id) = self.book.take_due(now)
        {
            let shared = self.shared.clone();
            self.turns.push(Box::pin(async move {
                let turned = turn(&shared, id).await;
                (id, turned)
            }));
        }
    }

    /// Notes what came of a turn; says whether to go on.
    fn settle(&mut self, id: WorkflowId, turned: Turned) -> bool {
        let now = self.now();
        match turned {
            Turned::Waits { until, topics, cursor } => {
                self.book.rests(id, until);
                let tail = self.shared.tail.clone();
                self.news.push(Box::pin(async move {
                    match tail.subscribe(topics, cursor).await {
                        Ok(mut news) => drop(news.next().await),
                        Err(error) => tracing::warn!(%error, "a workflow cannot hear the news"),
                    }
                    id
                }));
            }
            Turned::Over => self.book.over(id),
            Turned::Held => self.book.rests(id, now.after(self.shared.config.claim / 3)),
            Turned::Troubled => self.book.rests(id, now.after(TROUBLED)),
            Turned::Killed => return false,
        }
        true
    }

    fn now(&self) -> Millis {
        Millis(self.shared.clock.now().millis())
    }
}

/// Takes a workflow, does all that is to be done for it now, and lets it go.
async fn turn(shared: &Shared, id: WorkflowId) -> Turned {
    let claimed = shared.store.retry(async || {
        let mut write = shared.store.begin().await?;
        let claimed = write.claim_workflow(id, &shared.holder, shared.config.claim).await?;
        write.commit().await?;
        Ok(claimed)
    });
    let (workflow, claim) = match claimed.await {
        Ok(Some(claimed)) => claimed,
        Ok(None) => return Turned::Held,
        Err(error) => return troubled(id, &error),
    };
    let mut hand = Hand { shared, claim, workflow };
    match go_on(&mut hand).await {
        Ok(turned) => turned,
        Err(Halt::Lost) => Turned::Held,
        Err(Halt::Killed) => Turned::Killed,
        Err(Halt::Store(error)) => {
            let rest = hand.now().after(TROUBLED);
            if let Err(error) = release(&hand, rest).await {
                tracing::debug!(%error, "a claim is left to run out");
            }
            troubled(id, &error)
        }
    }
}

fn troubled(id: WorkflowId, error: &store::Error) -> Turned {
    tracing::warn!(workflow = %id, %error, "a workflow could not go on; it will be tried again");
    Turned::Troubled
}

async fn go_on(hand: &mut Hand<'_>) -> Result<Turned, Halt> {
    let tail = &hand.shared.tail;
    for _ in 0..COMMITS {
        // What was committed before, by whomever, must be in the image that the next decision looks at.
        tail.reach_head().await.map_err(Halt::Store)?;
        let cursor = tail.position().cursor();
        let act = match hand.decide().await {
            Ok(Decision::Wait(until)) => {
                let topics = topics(hand).await.map_err(Halt::Store)?;
                release(hand, until).await.map_err(Halt::Store)?;
                return Ok(Turned::Waits { until, topics, cursor });
            }
            Ok(Decision::Act(act)) => act,
            Err(Halt::Store(store::Error::NotFound(_))) => hand::Act::Abandon,
            Err(halt) => return Err(halt),
        };
        let made = match hand.commit(&act).await {
            Err(Halt::Store(store::Error::NotFound(_))) => hand.commit(&hand::Act::Abandon).await?,
            made => made?,
        };
        match made {
            Next::Step { .. } | Next::Again => {}
            Next::End { .. } => return Ok(Turned::Over),
        }
    }
    let now = hand.now();
    release(hand, now).await.map_err(Halt::Store)?;
    Ok(Turned::Troubled)
}

async fn release(hand: &Hand<'_>, until: Millis) -> store::Result<()> {
    let store = &hand.shared.store;
    let released = store.retry(async || {
        let mut write = store.begin().await?;
        write.release_workflow(&hand.claim, until).await?;
        write.commit().await
    });
    released.await.map(drop)
}

/// Everything whose change may be what a workflow waits for.
async fn topics(hand: &Hand<'_>) -> store::Result<Vec<Topic>> {
    let Workflow { kind, state, .. } = &hand.workflow;
    let environments: Vec<EnvironmentId> = match kind {
        WorkflowKind::Deploy | WorkflowKind::Switch | WorkflowKind::Retire | WorkflowKind::Rollout => {
            book::environment_of(state).into_iter().collect()
        }
        WorkflowKind::Delete => {
            let state: state::Delete = state::decode(state)?;
            state.emptied.keys().filter_map(|id| id.parse().ok()).collect()
        }
    };
    let mut topics = vec![Topic::Clusters];
    for id in environments {
        topics.extend([Topic::Routes(id), Topic::SentinelReports(id)]);
        for place in hand.shared.store.places_of_environment(id).await? {
            topics.extend([Topic::Routing(id, place.clone()), Topic::NetworkPolicyReports(place)]);
        }
    }
    topics.sort();
    topics.dedup();
    Ok(topics)
}
