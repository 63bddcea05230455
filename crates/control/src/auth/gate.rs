//! The gate: whom a bearer stands for, by what the tail shows, and by the store if the tail may be behind.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use connectrpc::ConnectError;
use http::HeaderMap;
use model::{
    id::SentinelId,
    name::Placement,
    time::Millis,
    token::{Scope, TokenHash},
    watch::Cursor,
};
use runtime::{clock::Clock, random::Random};
use store::{Store, Surroundings, Tail, Topic};
use tokio::time::Instant;
use wire::auth::{Bearer as Presentation, CredentialKeys, Presented, SentinelToken};

use super::{
    Identity, Shape,
    limit::{Bucket, Rate},
    live::{Found, Live, Now, Rates, Standing},
};
use crate::{config::LimitsConfig, metrics::AuthMetrics};

/// How often it is looked whether something has expired: what is open then ends within two seconds.
const TICK: Duration = Duration::from_millis(500);

/// How often the last uses of tokens are written.
const TOUCH: Duration = Duration::from_mins(1);

/// How many unknown tokens are looked for in the store in a second.
const LOOKUPS: u32 = 50;

/// How long, and of how many, it is remembered that the store does not know them.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
const UNKNOWN_MAX: usize = 10_000;

/// Shared by everything that lets somebody in.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    store: Store,
    tail: Tail,
    keys: Arc<CredentialKeys>,
    clock: Clock,
    random: Random,
    /// How long a call may take, and a stream to begin.
    call: Mutex<Duration>,
    metrics: AuthMetrics,
    live: RwLock<Live>,
    lookups: Mutex<Lookups>,
}

/// What keeps strangers from keeping the store busy.
struct Lookups {
    bucket: Bucket,
    unknown: BTreeMap<Sought, Instant>,
}

/// What a lookup is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sought {
    Token(TokenHash),
    Sentinel(SentinelId),
}

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no such path for anybody.
    Path,
    NoToken,
    Garbage,
    Unknown,
    Ended,
    /// A good token of the wrong kind.
    Kind,
    /// A user's token whose role or reach is not enough.
    Role,
    /// Too many streams in too short a time.
    Opens,
    /// Too many requests in too short a time.
    Requests,
    /// The store could not be asked.
    Busy,
    /// There was no answer in time.
    Late,
}

/// Whether a lookup may be made.
enum Leave {
    Granted,
    /// It was made a moment ago, in vain.
    Known,
    TooMany,
}

/// How often one token may do what.
fn rates(limits: &LimitsConfig) -> Rates {
    Rates {
        opens: Rate::new(limits.opens_per_minute, Duration::from_mins(1), limits.opens_burst),
        calls: Rate::new(limits.requests_per_minute, Duration::from_mins(1), limits.requests_burst),
    }
}

impl Gate {
    /// Learns all that opens something, and goes on learning.
    pub fn start(
        store: &Store,
        tail: &Tail,
        keys: &Arc<CredentialKeys>,
        limits: &LimitsConfig,
        surroundings: &Surroundings,
        metrics: &AuthMetrics,
    ) -> Self {
        let Surroundings { clock, random, tasks } = surroundings;
        let rates = rates(limits);
        let lookups = Rate::new(LOOKUPS, Duration::from_secs(1), LOOKUPS);
        let bucket = Bucket::full(lookups, clock.instant());
        let gate = Self(Arc::new(Inner {
            store: store.clone(),
            tail: tail.clone(),
            keys: keys.clone(),
            clock: clock.clone(),
            random: random.clone(),
            call: Mutex::new(limits.call),
            metrics: metrics.clone(),
            live: RwLock::new(Live::new(rates)),
            lookups: Mutex::new(Lookups { bucket, unknown: BTreeMap::new() }),
        }));
        // Twice: the first look says which places there are, the second looks into them.
        gate.learn();
        gate.learn();
        let (following, stopping) = (gate.clone(), tasks.token());
        tasks.spawn_essential("gate", async move {
            stopping.run_until_cancelled(following.follow()).await;
            Ok::<(), store::Error>(())
        });
        let (touching, stopping) = (gate.clone(), tasks.token());
        tasks.spawn("token uses", async move {
            stopping.run_until_cancelled(touching.touch()).await;
        });
        gate
    }

    /// Holds everybody to other limits from now on: how often one may ask, and how long a call may take.
    pub fn change_limits(&self, limits: &LimitsConfig) {
        self.write().change_rates(rates(limits));
        *self.0.call.lock().unwrap_or_else(PoisonError::into_inner) = limits.call;
    }

    pub fn knows(&self, placement: &Placement) -> bool {
        self.read().knows(placement)
    }

    /// Whom the headers' token stands for; how often it may ask depends on what for.
    pub(super) async fn identify(
        &self,
        headers: &HeaderMap,
        shape: Option<Shape>,
    ) -> Result<Identity, Refusal> {
        let header = headers.get(http::header::AUTHORIZATION).ok_or(Refusal::NoToken)?;
        let bearer = header.to_str().ok().and_then(Presentation::from_header).ok_or(Refusal::Garbage)?;
        let found = match bearer.presented().ok_or(Refusal::Garbage)? {
            Presented::Stored { hash, .. } => self.token(&hash).await?,
            Presented::Sentinel(token) => self.sentinel(&token).await?,
        };
        let now = self.0.clock.instant();
        match shape {
            Some(Shape::Stream) if !found.may_open(now) => return Err(Refusal::Opens),
            Some(Shape::Request) if !found.may_call(now) => return Err(Refusal::Requests),
            _ => {}
        }
        Ok(Identity::new(self.clone(), found.bearer, found.end))
    }

    /// Resolves when a call that begins now has taken too long.
    pub(super) async fn patience(&self) {
        let call = *self.0.call.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.clock.sleep(call).await;
    }

    pub(super) fn random(&self) -> &Random {
        &self.0.random
    }

    pub(super) fn count(&self, refusal: Refusal) {
        self.0.metrics.refusals.get_or_create(&[("reason", refusal.as_str())]).inc();
    }

    async fn token(&self, hash: &TokenHash) -> Result<Found, Refusal> {
        if let Some(known) = settled(self.read().token(hash, self.now())) {
            return known;
        }
        self.ask(Sought::Token(*hash))?;
        let store = &self.0.store;
        let Some(token) = store.token_by_hash(hash).await.map_err(|error| busy(&error))? else {
            self.remember(Sought::Token(*hash));
            return Err(Refusal::Unknown);
        };
        let place = match &token.scope {
            Scope::Agent { placement } => store.cluster(placement).await.ok().map(|found| found.placement),
            Scope::User { .. } => None,
        };
        let now = self.now();
        let mut live = self.write();
        live.add_token(&Arc::new(token), place.as_ref(), now);
        settled(live.token(hash, now)).unwrap_or(Err(Refusal::Unknown))
    }

    /// A mac that is not ours costs no look anywhere.
    async fn sentinel(&self, token: &SentinelToken) -> Result<Found, Refusal> {
        if !self.0.keys.verify(token) {
            return Err(Refusal::Unknown);
        }
        if let Some(known) = settled(self.write().sentinel(token, self.now())) {
            return known;
        }
        self.ask(Sought::Sentinel(token.sentinel))?;
        let sentinel = match self.0.store.sentinel(token.sentinel).await {
            Ok((sentinel, _)) if sentinel.desired.state == model::deployment::DesiredState::Running => {
                sentinel
            }
            Ok(_) | Err(store::Error::NotFound(_)) => {
                self.remember(Sought::Sentinel(token.sentinel));
                return Err(Refusal::Unknown);
            }
            Err(error) => return Err(busy(&error)),
        };
        let now = self.now();
        let mut live = self.write();
        live.add_sentinel(&Arc::new(sentinel), now);
        settled(live.sentinel(token, now)).unwrap_or(Err(Refusal::Unknown))
    }

    fn ask(&self, sought: Sought) -> Result<(), Refusal> {
        let leave =
            self.0.lookups.lock().unwrap_or_else(PoisonError::into_inner).ask(sought, self.0.clock.instant());
        match leave {
            Leave::Granted => {
                self.0.metrics.lookups.inc();
                Ok(())
            }
            Leave::Known => Err(Refusal::Unknown),
            Leave::TooMany => Err(Refusal::Busy),
        }
    }

    fn remember(&self, sought: Sought) {
        let mut lookups = self.0.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        lookups.remember(sought, self.0.clock.instant());
    }

    /// Follows everything that opens something, and ends what is over.
    async fn follow(&self) {
        let Inner { tail, clock, .. } = &*self.0;
        let mut ticked = clock.instant();
        loop {
            let topics = self.topics();
            let Ok(mut changes) = tail.subscribe(topics.clone(), Cursor::default()).await else {
                clock.sleep(TICK).await;
                continue;
            };
            while topics == self.topics() {
                let due = (ticked + TICK).saturating_duration_since(clock.instant());
                tokio::select! {
                    biased;
                    () = clock.sleep(due) => {
                        self.write().end_what_is_over(self.now());
                        ticked = clock.instant();
                    }
                    picture = changes.next() => {
                        let Some(picture) = picture else { return };
                        self.take(picture.is_init, &picture.items);
                    }
                }
            }
        }
    }

    /// Takes what the image holds now.
    fn learn(&self) {
        let picture = self.0.tail.picture(&self.topics(), Cursor::default());
        self.take(picture.is_init, &picture.items);
    }

    fn take(&self, is_init: bool, items: &[Arc<store::Item>]) {
        let mut live = self.write();
        live.take(is_init, items, self.now());
        self.0.metrics.tokens.set(i64::try_from(live.tokens()).unwrap_or(i64::MAX));
    }

    /// Sentinels are by place, so the places come first.
    fn topics(&self) -> Vec<Topic> {
        let live = self.read();
        let sentinels = live.places().cloned().map(Topic::Sentinels);
        [Topic::Tokens, Topic::Clusters].into_iter().chain(sentinels).collect()
    }

    /// Writes when tokens were last used, all of them in one write.
    async fn touch(&self) {
        loop {
            self.0.clock.sleep(TOUCH).await;
            let used = self.read().take_used();
            if used.is_empty() {
                continue;
            }
            let written = self.0.store.retry(async || {
                let mut write = self.0.store.begin().await?;
                write.touch_tokens(&used).await?;
                write.commit().await
            });
            if let Err(error) = written.await {
                tracing::warn!(%error, "when tokens were last used could not be written");
            }
        }
    }

    fn now(&self) -> Now {
        Now { wall: Millis(self.0.clock.now().millis()), instant: self.0.clock.instant() }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Live> {
        self.0.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Live> {
        self.0.live.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lookups {
    fn ask(&mut self, sought: Sought, now: Instant) -> Leave {
        let is_fresh = |at: &Instant| now.saturating_duration_since(*at) < UNKNOWN_FOR;
        if self.unknown.get(&sought).is_some_and(is_fresh) {
            return Leave::Known;
        }
        if self.bucket.take(now) { Leave::Granted } else { Leave::TooMany }
    }

    fn remember(&mut self, sought: Sought, now: Instant) {
        if self.unknown.len() >= UNKNOWN_MAX {
            self.unknown.retain(|_, at| now.saturating_duration_since(*at) < UNKNOWN_FOR);
        }
        // With so few lookups a second there is always room; if not, forgetting costs one lookup.
        if self.unknown.len() < UNKNOWN_MAX {
            self.unknown.insert(sought, now);
        }
    }
}

/// An answer, unless the store must be asked.
fn settled(standing: Standing) -> Option<Result<Found, Refusal>> {
    match standing {
        Standing::Good(found) => Some(Ok(found)),
        Standing::Ended => Some(Err(Refusal::Ended)),
        Standing::Unknown => None,
    }
}

fn busy(error: &store::Error) -> Refusal {
    tracing::warn!(%error, "a token could not be looked up");
    Refusal::Busy
}

impl Refusal {
    fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::NoToken => "no_token",
            Self::Garbage => "garbage",
            Self::Unknown => "unknown",
            Self::Ended => "ended",
            Self::Kind => "kind",
            Self::Role => "role",
            Self::Opens => "opens",
            Self::Requests => "requests",
            Self::Busy => "busy",
            Self::Late => "late",
        }
    }
}

impl Refusal {
    /// What the caller is told.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Path => "nobody may call this",
            Self::NoToken => "there is no token in the authorization header",
            Self::Garbage => "the authorization header holds no token of ours",
            Self::Unknown => "the token is not known",
            Self::Ended => "the token has expired or was revoked",
            Self::Kind => "this is not for tokens of that kind",
            Self::Role => "this is not for tokens of that role",
            Self::Opens => "this token opens streams too often",
            Self::Requests => "this token makes too many requests",
            Self::Busy => "the token cannot be looked up now, try again",
            Self::Late => "the call was not complete in time, try again",
        }
    }
}

impl From<Refusal> for ConnectError {
    fn from(refusal: Refusal) -> Self {
        let said = refusal.message();
        match refusal {
            Refusal::Path | Refusal::Kind | Refusal::Role => ConnectError::permission_denied(said),
            Refusal::NoToken | Refusal::Garbage | Refusal::Unknown | Refusal::Ended => {
                ConnectError::unauthenticated(said)
            }
            Refusal::Opens | Refusal::Requests => ConnectError::resource_exhausted(said),
            Refusal::Busy | Refusal::Late => ConnectError::unavailable(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookups(now: Instant) -> Lookups {
        let bucket = Bucket::full(Rate::new(LOOKUPS, Duration::from_secs(1), LOOKUPS), now);
        Lookups { bucket, unknown: BTreeMap::new() }
    }

    fn stranger(number: u8) -> Sought {
        Sought::Token(TokenHash([number; 32]))
    }

    #[test]
    fn strangers_cost_fifty_lookups_a_second_together() {
        let start = Clock::system().instant();
        let mut lookups = lookups(start);
        let granted = |lookups: &mut Lookups, now| {
            let asked = (0..=u8::MAX).map(|number| lookups.ask(stranger(number), now));
            asked.filter(|leave| matches!(leave, Leave::Granted)).count()
        };
        assert_eq!(granted(&mut lookups, start), 50);
        assert_eq!(granted(&mut lookups, start), 0);
        assert_eq!(granted(&mut lookups, start + Duration::from_secs(1)), 50);
    }

    #[test]
    fn a_stranger_is_remembered_for_a_second() {
        let start = Clock::system().instant();
        let mut lookups = lookups(start);
        assert!(matches!(lookups.ask(stranger(1), start), Leave::Granted));
        lookups.remember(stranger(1), start);
        let soon = start + Duration::from_millis(999);
        assert!(matches!(lookups.ask(stranger(1), soon), Leave::Known));
        assert!(matches!(lookups.ask(stranger(2), soon), Leave::Granted));
        assert!(matches!(lookups.ask(stranger(1), start + UNKNOWN_FOR), Leave::Granted));
    }

    #[test]
    fn what_is_remembered_of_strangers_has_a_bound() {
        let start = Clock::system().instant();
        let mut lookups = lookups(start);
        for number in 0..UNKNOWN_MAX as u64 + 10 {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&number.to_be_bytes());
            lookups.remember(Sought::Token(TokenHash(hash)), start);
        }
        assert_eq!(lookups.unknown.len(), UNKNOWN_MAX);
        lookups.remember(stranger(9), start + UNKNOWN_FOR);
        assert_eq!(lookups.unknown.len(), 1, "what is old makes room");
    }

    #[test]
    fn every_refusal_has_its_code() {
        use connectrpc::ErrorCode::{PermissionDenied, ResourceExhausted, Unauthenticated, Unavailable};
        for (refusal, code) in [
            (Refusal::Path, PermissionDenied),
            (Refusal::NoToken, Unauthenticated),
            (Refusal::Garbage, Unauthenticated),
            (Refusal::Unknown, Unauthenticated),
            (Refusal::Ended, Unauthenticated),
            (Refusal::Kind, PermissionDenied),
            (Refusal::Opens, ResourceExhausted),
            (Refusal::Busy, Unavailable),
            (Refusal::Late, Unavailable),
        ] {
            assert_eq!(ConnectError::from(refusal).code, code, "{refusal:?}");
        }
    }
}
