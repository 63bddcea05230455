//! A door in front of a listener, which can be shut with all who went through it.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

pub struct Door {
    address: SocketAddr,
    is_shut: Arc<AtomicBool>,
    inside: Arc<Mutex<Vec<TcpStream>>>,
    listening: Option<JoinHandle<()>>,
}

impl Door {
    /// Leads to `target`, at this address or at a free one.
    pub fn open(at: Option<SocketAddr>, target: SocketAddr) -> Door {
        let listener =
            TcpListener::bind(at.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)))).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let (is_shut, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (shut, through) = (is_shut.clone(), inside.clone());
        let listening = std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shut.load(Ordering::Acquire) {
                    return;
                }
                // Whoever is behind it may not be there yet.
                let Ok(server) = TcpStream::connect(target) else { continue };
                let mut through = through.lock().expect("nobody panicked");
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) =
                        (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    std::thread::spawn(move || {
                        drop(io::copy(&mut from, &mut to));
                        drop(to.shutdown(Shutdown::Write));
                    });
                }
                through.extend([client, server]);
            }
        });
        Door { address, is_shut, inside, listening: Some(listening) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Nobody comes in any more, and whoever was inside is out.
    pub fn shut(&mut self) {
        self.is_shut.store(true, Ordering::Release);
        // It waits for one more.
        drop(TcpStream::connect(self.address));
        if let Some(listening) = self.listening.take() {
            listening.join().expect("it ended well");
        }
        for stream in self.inside.lock().expect("nobody panicked").drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shut();
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}
