//! The ports of this machine that pods are given: never one to two, and held against others until it is used.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use runtime::random::Random;
use tokio::net::TcpSocket;

/// The ports that there are to give. Clones give of the same.
#[derive(Clone)]
pub struct Ports(Arc<Mutex<Table>>);

struct Table {
    range: RangeInclusive<u16>,
    next: u16,
    given: BTreeMap<u16, Use>,
}

enum Use {
    /// Nobody uses it yet, and while the socket is there nobody else can.
    New { _held: TcpSocket },
    /// Whoever it was given to will use it again.
    Rests { _held: Option<TcpSocket> },
    /// Whoever it was given to listens there, or will at any moment.
    Used,
}

impl Ports {
    /// Begins anywhere, so that two of us on one machine seldom meet.
    pub fn new(range: RangeInclusive<u16>, random: &Random) -> Ports {
        let count = u64::from(range.end() - range.start()) + 1;
        let offset = u16::try_from(random.below(count)).expect("a range of ports is small");
        let next = range.start() + offset;
        Ports(Arc::new(Mutex::new(Table { range, next, given: BTreeMap::new() })))
    }

    /// A port that nobody has, held until it is used; none, if there is none.
    pub fn take(&self) -> Option<u16> {
        let mut table = self.table();
        table.take().or_else(|| {
            // What was given to a pod that never came to run.
            table.given.retain(|_, used| !matches!(used, Use::New { .. }));
            table.take()
        })
    }

    /// This very port, if nobody has it.
    pub fn claim(&self, port: u16) -> bool {
        let mut table = self.table();
        let is_free = table.range.contains(&port) && !table.given.contains_key(&port) && is_free(port);
        if is_free {
            table.given.insert(port, Use::Used);
        }
        is_free
    }

    /// Lets the port go, so that whom it was given to can listen there; says whether nobody else does.
    pub fn release(&self, port: u16) -> bool {
        let mut table = self.table();
        table.given.insert(port, Use::Used);
        is_free(port)
    }

    /// Holds it again until it is released, if it can be: one that was used a moment ago often cannot.
    pub fn hold(&self, port: u16) {
        self.table().given.insert(port, Use::Rests { _held: hold(port) });
    }

    pub fn give_back(&self, port: u16) {
        self.table().given.remove(&port);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while it holds the table.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn take(&mut self) -> Option<u16> {
        for _ in self.range.clone() {
            let port = self.next;
            self.next = if port == *self.range.end() { *self.range.start() } else { port + 1 };
            if self.given.contains_key(&port) || !is_free(port) {
                continue;
            }
            let Some(held) = hold(port) else { continue };
            self.given.insert(port, Use::New { _held: held });
            return Some(port);
        }
        None
    }
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Whether one could listen there, whichever way. Connections of whoever did before do not count.
fn is_free(port: u16) -> bool {
    TcpListener::bind(address(port)).is_ok() && UdpSocket::bind(address(port)).is_ok()
}

/// Takes the port without listening: whoever connects is refused, as by one that does not run yet.
fn hold(port: u16) -> Option<TcpSocket> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind(address(port)).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many ports in a row that are free now, as far as one can tell.
    fn ports(count: u16) -> (Ports, RangeInclusive<u16>) {
        let random = Random::system();
        loop {
            let first = 10_000 + u16::try_from(random.below(9000)).unwrap();
            let range = first..=first + count - 1;
            if range.clone().all(is_free) {
                return (Ports::new(range.clone(), &random), range);
            }
        }
    }

    #[test]
    fn no_port_is_given_twice_until_it_is_given_back() {
        let (ports, range) = ports(3);
        let mut all: Vec<u16> = (0..3).map(|_| ports.take().unwrap()).collect();
        all.iter().for_each(|port| assert!(ports.release(*port)));
        assert_eq!(ports.take(), None);
        ports.give_back(all[1]);
        assert_eq!(ports.take(), Some(all[1]));
        all.sort_unstable();
        assert_eq!(all, range.collect::<Vec<_>>());
    }

    #[test]
    fn a_port_is_held_until_it_is_released_and_somebody_elses_is_not_given() {
        let (ports, range) = ports(2);
        let stranger = TcpListener::bind(address(*range.start())).unwrap();
        let port = ports.take().unwrap();
        assert_eq!(port, *range.end(), "the other is taken");
        assert!(TcpListener::bind(address(port)).is_err(), "held");
        assert!(std::net::TcpStream::connect(address(port)).is_err(), "and yet nobody answers");
        assert!(ports.release(port));
        let own = TcpListener::bind(address(port)).unwrap();
        assert!(!ports.release(port), "somebody listens");
        drop(own);
        ports.hold(port);
        assert!(TcpListener::bind(address(port)).is_err(), "held again");
        ports.release(port);
        assert!(!ports.claim(*range.start()), "a stranger has it");
        drop(stranger);
        assert!(ports.claim(*range.start()));
        assert!(!ports.claim(*range.start()), "it is given");
    }

    #[test]
    fn what_never_came_to_run_does_not_use_up_the_ports() {
        let (ports, _) = ports(2);
        let (one, other) = (ports.take().unwrap(), ports.take().unwrap());
        ports.release(one);
        ports.hold(one);
        assert_eq!(ports.take(), Some(other));
        assert_eq!(ports.take(), Some(other), "the one that runs keeps its own");
    }
}
