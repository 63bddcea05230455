//! How much one client may have at a time: connections, and requests under way.
//!
//! A client is an address. One that speaks to us directly is looked up once for each connection; one behind a trusted
//! peer is who that peer says, and is looked up for each request.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All clients that have something open.
#[derive(Debug)]
pub struct Clients {
    connections_max: usize,
    requests_max: usize,
    all: Mutex<BTreeMap<IpAddr, Arc<Usage>>>,
}

/// What one client has open.
#[derive(Debug)]
struct Usage {
    connections: AtomicUsize,
    requests: Arc<Semaphore>,
}

/// One client, for as long as somebody looks at it.
#[derive(Debug)]
pub struct Held {
    clients: Arc<Clients>,
    address: IpAddr,
    /// Taken out when this is dropped.
    usage: Option<Arc<Usage>>,
}

/// A connection of a client that counts until it is dropped.
#[derive(Debug)]
pub struct Connected(Held);

impl Clients {
    /// Zero is no limit.
    pub fn new(connections_max: usize, requests_max: usize) -> Clients {
        let unlimited = |most: usize| if most == 0 { Semaphore::MAX_PERMITS } else { most };
        Clients {
            connections_max: unlimited(connections_max),
            requests_max: unlimited(requests_max).min(Semaphore::MAX_PERMITS),
            all: Mutex::default(),
        }
    }

    pub fn hold(self: &Arc<Clients>, address: IpAddr) -> Held {
        let made = || {
            Arc::new(Usage {
                connections: AtomicUsize::new(0),
                requests: Arc::new(Semaphore::new(self.requests_max)),
            })
        };
        let usage = Arc::clone(self.all().entry(address).or_insert_with(made));
        Held { clients: Arc::clone(self), address, usage: Some(usage) }
    }

    /// One more connection of a client, or nothing if it has as many as it may.
    pub fn connect(self: &Arc<Clients>, address: IpAddr) -> Option<Connected> {
        let held = self.hold(address);
        let before = held.usage().connections.fetch_add(1, Ordering::Relaxed);
        let connected = Connected(held);
        (before < self.connections_max).then_some(connected)
    }

    /// How many clients have something open.
    pub fn len(&self) -> usize {
        self.all().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Arc<Usage>>> {
        // Nothing under this lock can panic half way.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn usage(&self) -> &Usage {
        self.usage.as_ref().expect("it is there until the end")
    }

    /// A place among the client's requests, if there is one now.
    pub fn try_request(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.usage().requests).try_acquire_owned().ok()
    }

    /// A place among the client's requests, as soon as there is one.
    pub async fn request(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.usage().requests).acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }
}

impl Connected {
    pub fn client(&self) -> &Held {
        &self.0
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.usage().connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = self.clients.all();
        // Given back under the lock: of two that let go at once, the second sees that it is the last.
        drop(self.usage.take());
        let is_unused = all.get(&self.address).is_some_and(|usage| Arc::strong_count(usage) == 1);
        if is_unused {
            all.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_client_has_so_many_connections_and_others_have_theirs() {
        let clients = Arc::new(Clients::new(2, 0));
        let first = clients.connect(address(1)).unwrap();
        let _second = clients.connect(address(1)).unwrap();
        assert!(clients.connect(address(1)).is_none());
        assert!(clients.connect(address(2)).is_some(), "another client has its own");
        drop(first);
        assert!(clients.connect(address(1)).is_some(), "what ended makes room");
    }

    #[test]
    fn a_client_has_so_many_requests_under_way() {
        let clients = Arc::new(Clients::new(0, 1));
        let (one, same) = (clients.hold(address(1)), clients.hold(address(1)));
        let place = one.try_request().unwrap();
        assert!(same.try_request().is_none());
        assert!(clients.hold(address(2)).try_request().is_some());
        drop(place);
        assert!(same.try_request().is_some());
    }

    #[test]
    fn who_has_nothing_open_is_forgotten() {
        let clients = Arc::new(Clients::new(1, 1));
        let connected = clients.connect(address(1)).unwrap();
        assert!(clients.connect(address(1)).is_none());
        let held = clients.hold(address(1));
        assert_eq!(clients.len(), 1);
        drop(connected);
        assert_eq!(clients.len(), 1);
        drop(held);
        assert!(clients.is_empty());
    }
}
