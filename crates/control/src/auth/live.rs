//! All that opens something now, in memory: kept by what the tail shows, without IO.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use model::{
    id::{SentinelId, TokenId},
    name::{LabelValue, Placement},
    sentinel::{Generation, Sentinel},
    time::Millis,
    token::{Scope, Token, TokenHash},
};
use store::{Item, State};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::auth::SentinelToken;

use super::{
    identity::Bearer,
    limit::{Bucket, Rate},
};

/// How long the credential before the present one is accepted.
pub(super) const OVERLAP: Duration = Duration::from_hours(24);

/// What is known from elsewhere than the tail must have come by it within this time. What is gone is
/// remembered for as long, so that an answer that was under way cannot bring it back.
const SETTLED: Duration = Duration::from_mins(1);

/// How often one token may do what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// Open a stream.
    pub(super) opens: Rate,
    /// Make a request of the API.
    pub(super) calls: Rate,
}

pub(super) struct Live {
    rates: Rates,
    tokens: BTreeMap<TokenHash, Entry>,
    sentinels: BTreeMap<SentinelId, SentinelEntry>,
    /// The places there are; with the time, if that is known from elsewhere than the tail.
    places: BTreeMap<Placement, Option<Instant>>,
}

struct Entry {
    token: Arc<Token>,
    gone: bool,
    end: CancellationToken,
    opens: Arc<Mutex<Bucket>>,
    calls: Arc<Mutex<Bucket>>,
    used: AtomicI64,
    /// When it was looked up, or found gone: until the tail has shown it, or nobody can ask for it.
    since: Option<Instant>,
}

struct SentinelEntry {
    sentinel: Arc<Sentinel>,
    gone: bool,
    /// When what is wanted of it last changed: the credential changed then or before.
    changed: Option<Millis>,
    opens: Arc<Mutex<Bucket>>,
    /// What ends when a credential does, for those that were presented.
    ends: BTreeMap<(LabelValue, Generation), CancellationToken>,
    since: Option<Instant>,
}

/// A good bearer, what tells its end, and what is left of what it may.
pub(super) struct Found {
    pub(super) bearer: Bearer,
    pub(super) end: CancellationToken,
    pub(super) opens: Arc<Mutex<Bucket>>,
    /// Only users make requests.
    pub(super) calls: Option<Arc<Mutex<Bucket>>>,
}

/// What is known of what was presented.
pub(super) enum Standing {
    Good(Found),
    /// It was good once, or will never be.
    Ended,
    /// The tail has not shown it; the store may know more.
    Unknown,
}

/// When it is: by the wall, for what ends at a time, and by the stopwatch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) wall: Millis,
    pub(super) instant: Instant,
}

impl Live {
    pub(super) fn new(rates: Rates) -> Self {
        Self { rates, tokens: BTreeMap::new(), sentinels: BTreeMap::new(), places: BTreeMap::new() }
    }

    /// Holds everybody to other rates from now on.
    pub(super) fn change_rates(&mut self, rates: Rates) {
        self.rates = rates;
        let change = |bucket: &Mutex<Bucket>, rate| {
            bucket.lock().unwrap_or_else(PoisonError::into_inner).change_to(rate);
        };
        for entry in self.tokens.values() {
            change(&entry.opens, rates.opens);
            change(&entry.calls, rates.calls);
        }
        for entry in self.sentinels.values() {
            change(&entry.opens, rates.opens);
        }
    }

    pub(super) fn token(&self, hash: &TokenHash, now: Now) -> Standing {
        // The tree is walked by a hash, which tells nothing of the token; the last word is a slow comparison.
        let Some(entry) = self.tokens.get(hash).filter(|entry| entry.token.hash.matches(hash)) else {
            return Standing::Unknown;
        };
        if entry.gone || !entry.token.is_good(now.wall) {
            return Standing::Ended;
        }
        entry.used.fetch_max(now.wall.0, Ordering::Relaxed);
        let token = entry.token.id;
        let bearer = match &entry.token.scope {
            Scope::Agent { placement } => Bearer::Agent { token, placement: placement.clone() },
            Scope::User { role, reach } => Bearer::User { token, role: *role, reach: *reach },
        };
        let (opens, calls) = (entry.opens.clone(), Some(entry.calls.clone()));
        Standing::Good(Found { bearer, end: entry.end.clone(), opens, calls })
    }

    /// What is known of a sentinel's token, whose mac is ours.
    pub(super) fn sentinel(&mut self, token: &SentinelToken, now: Now) -> Standing {
        let Some(entry) = self.sentinels.get_mut(&token.sentinel) else { return Standing::Unknown };
        if entry.gone {
            return Standing::Ended;
        }
        if token.generation > entry.sentinel.desired.credential {
            return Standing::Unknown;
        }
        let credential = (token.key.clone(), token.generation);
        if !entry.is_good(&credential, now.wall) {
            return Standing::Ended;
        }
        let end = entry.ends.entry(credential).or_default().clone();
        let Sentinel { id, environment, placement, .. } = &*entry.sentinel;
        let bearer = Bearer::Sentinel { id: *id, environment: *environment, placement: placement.clone() };
        Standing::Good(Found { bearer, end, opens: entry.opens.clone(), calls: None })
    }

    pub(super) fn knows(&self, placement: &Placement) -> bool {
        self.places.contains_key(placement)
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Placement> {
        self.places.keys()
    }

    pub(super) fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Takes what the tail shows; all there is, or what changed.
    pub(super) fn take(&mut self, is_init: bool, items: &[Arc<Item>], now: Now) {
        if is_init {
            self.places.retain(|_, since| since.is_some());
            let listed: BTreeSet<&str> = items.iter().map(|item| item.key.as_str()).collect();
            for entry in self.tokens.values_mut() {
                entry.gone |= entry.since.is_none() && !listed.contains(entry.token.id.to_string().as_str());
            }
            for (id, entry) in &mut self.sentinels {
                entry.gone |= entry.since.is_none() && !listed.contains(id.to_string().as_str());
            }
        }
        for item in items {
            match &item.state {
                State::Token(token) => self.put_token(token, item.gone, None, now),
                State::Sentinel(sentinel) => {
                    let changed = item.change.and_then(|change| i64::try_from(change.millis()).ok());
                    self.put_sentinel(sentinel, item.gone, changed.map(Millis), None, now);
                }
                State::Cluster(cluster) if item.gone => drop(self.places.remove(&cluster.placement)),
                State::Cluster(cluster) => drop(self.places.insert(cluster.placement.clone(), None)),
                _ => {}
            }
        }
        self.end_what_is_over(now);
    }

    /// Takes a token that was found in the store, unless the tail was faster. Its place is known with it.
    pub(super) fn add_token(&mut self, token: &Arc<Token>, place: Option<&Placement>, now: Now) {
        if let Some(place) = place {
            self.places.entry(place.clone()).or_insert(Some(now.instant));
        }
        if !self.tokens.contains_key(&token.hash) {
            self.put_token(token, false, Some(now.instant), now);
        }
    }

    /// Takes a sentinel that was found in the store, unless the tail knows it as new.
    pub(super) fn add_sentinel(&mut self, sentinel: &Arc<Sentinel>, now: Now) {
        let known = self.sentinels.get(&sentinel.id);
        if known.is_none_or(|known| known.sentinel.desired.credential < sentinel.desired.credential) {
            self.places.entry(sentinel.placement.clone()).or_insert(Some(now.instant));
            self.put_sentinel(sentinel, false, Some(now.wall), Some(now.instant), now);
        }
    }

    /// Ends what has expired, and forgets what nobody can ask for any more.
    pub(super) fn end_what_is_over(&mut self, now: Now) {
        let is_settled = |since: Instant| now.instant.saturating_duration_since(since) >= SETTLED;
        self.places.retain(|_, since| !since.is_some_and(is_settled));
        self.tokens.retain(|_, entry| {
            if entry.gone || !entry.token.is_good(now.wall) {
                entry.end.cancel();
            }
            if entry.gone && entry.since.is_none() {
                entry.since = Some(now.instant);
            }
            let is_over = entry.since.is_some_and(is_settled);
            if is_over {
                entry.end.cancel();
            }
            !is_over
        });
        self.sentinels.retain(|_, entry| {
            entry.end_what_is_over(now.wall);
            if entry.gone && entry.since.is_none() {
                entry.since = Some(now.instant);
            }
            let is_over = entry.since.is_some_and(is_settled);
            if is_over {
                entry.ends.values().for_each(CancellationToken::cancel);
            }
            !is_over
        });
    }

    /// The tokens that were used since they were last asked for, with the time of their last use.
    pub(super) fn take_used(&self) -> Vec<(TokenId, Millis)> {
        let used = self.tokens.values().map(|entry| (entry.token.id, entry.used.swap(0, Ordering::Relaxed)));
        used.filter(|(_, at)| *at > 0).map(|(id, at)| (id, Millis(at))).collect()
    }

    fn put_token(&mut self, token: &Arc<Token>, gone: bool, since: Option<Instant>, now: Now) {
        let entry = self.tokens.entry(token.hash).or_insert_with(|| Entry {
            token: token.clone(),
            gone,
            end: CancellationToken::new(),
            opens: Arc::new(Mutex::new(Bucket::full(self.rates.opens, now.instant))),
            calls: Arc::new(Mutex::new(Bucket::full(self.rates.calls, now.instant))),
            used: AtomicI64::new(0),
            since,
        });
        entry.token = token.clone();
        entry.gone = gone;
        entry.since = since;
        if !gone && token.is_good(now.wall) && entry.end.is_cancelled() {
            entry.end = CancellationToken::new();
        }
    }

    fn put_sentinel(
        &mut self,
        sentinel: &Arc<Sentinel>,
        gone: bool,
        changed: Option<Millis>,
        since: Option<Instant>,
        now: Now,
    ) {
        let entry = self.sentinels.entry(sentinel.id).or_insert_with(|| SentinelEntry {
            sentinel: sentinel.clone(),
            gone,
            changed,
            opens: Arc::new(Mutex::new(Bucket::full(self.rates.opens, now.instant))),
            ends: BTreeMap::new(),
            since,
        });
        entry.sentinel = sentinel.clone();
        entry.gone = gone;
        entry.changed = changed;
        entry.since = since;
        entry.end_what_is_over(now.wall);
    }
}

impl SentinelEntry {
    /// Whether a credential counts: the present one, or for a while the one before it.
    ///
    /// The row says when it last changed, not when its credential did. So the one before is accepted for a day
    /// after the last change of any kind, on every replica alike; a row that says nothing grants no day.
    fn is_good(&self, (key, generation): &(LabelValue, Generation), now: Millis) -> bool {
        let desired = &self.sentinel.desired;
        if self.gone {
            return false;
        }
        if *generation == desired.credential && *key == desired.key {
            return true;
        }
        let is_previous =
            *generation == desired.credential || desired.credential.previous() == Some(*generation);
        let overlap = i64::try_from(OVERLAP.as_millis()).expect("a day in milliseconds");
        is_previous && self.changed.is_some_and(|changed| now.0 < changed.0.saturating_add(overlap))
    }

    fn end_what_is_over(&mut self, now: Millis) {
        let ends = std::mem::take(&mut self.ends);
        for (credential, end) in ends {
            if self.is_good(&credential, now) {
                self.ends.insert(credential, end);
            } else {
                end.cancel();
            }
        }
    }
}

impl Found {
    /// Whether it may open one more stream now.
    pub(super) fn may_open(&self, now: Instant) -> bool {
        self.opens.lock().unwrap_or_else(PoisonError::into_inner).take(now)
    }

    /// Whether it may make one more request now.
    pub(super) fn may_call(&self, now: Instant) -> bool {
        let take =
            |calls: &Arc<Mutex<Bucket>>| calls.lock().unwrap_or_else(PoisonError::into_inner).take(now);
        self.calls.as_ref().is_none_or(take)
    }
}

#[cfg(test)]
mod tests;
