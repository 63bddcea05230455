//! The way from an agent to a control plane: one address that leads now here, now there, and may break off in the
//! middle of what is said.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::Uri;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// An address that stays while what is behind it changes. Whoever is connected when it changes is cut off.
pub struct Door {
    pub url: String,
    way: watch::Sender<Way>,
    cuts: Arc<AtomicUsize>,
    opening: JoinHandle<()>,
    carrying: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

#[derive(Debug, Clone)]
struct Way {
    to: SocketAddr,
    /// What the client never gets to read: the connection ends right before it.
    cut_before: Option<Arc<[u8]>>,
}

impl Door {
    /// A door to the control plane at this URL.
    pub async fn to(url: &str) -> Door {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let way = watch::Sender::new(Way { to: address_of(url), cut_before: None });
        let (cuts, carrying) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (ways, counted, carried) = (way.subscribe(), cuts.clone(), carrying.clone());
        let opening = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let (ways, counted) = (ways.clone(), counted.clone());
                let connection = tokio::spawn(carry(client, ways, counted));
                let mut all = carried.lock().unwrap_or_else(PoisonError::into_inner);
                all.retain(|connection: &JoinHandle<()>| !connection.is_finished());
                all.push(connection);
            }
        });
        Door { url: format!("http://{address}"), way, cuts, opening, carrying }
    }

    pub fn lead_to(&self, url: &str) {
        self.way.send_replace(Way { to: address_of(url), cut_before: None });
    }

    /// The same, but every connection ends where the control plane says this.
    pub fn lead_to_and_cut(&self, url: &str, before: &str) {
        self.cuts.store(0, Ordering::Relaxed);
        self.way.send_replace(Way { to: address_of(url), cut_before: Some(before.as_bytes().into()) });
    }

    /// How many connections were cut in the middle.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::Relaxed)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.opening.abort();
        for connection in self.carrying.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            connection.abort();
        }
    }
}

fn address_of(url: &str) -> SocketAddr {
    let uri: Uri = url.parse().expect("a URL");
    uri.authority().expect("it names a server").as_str().parse().expect("by its address")
}

/// Carries bytes until either side ends, the way changes, or the client would read what it must not.
async fn carry(mut client: TcpStream, mut ways: watch::Receiver<Way>, cuts: Arc<AtomicUsize>) {
    let Way { to, cut_before } = ways.borrow_and_update().clone();
    // A control plane that is not there refuses; the client sees its connection closed.
    let Ok(mut server) = TcpStream::connect(to).await else { return };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (mut up, mut down) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    // What may be the beginning of it, held until more has come.
    let mut held = Vec::new();
    loop {
        tokio::select! {
            biased;
            _changed = ways.changed() => return,
            read = client.read(&mut up) => {
                let Some(count) = some(read) else { return };
                if server.write_all(&up[..count]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut down) => {
                let Some(count) = some(read) else { return };
                held.extend_from_slice(&down[..count]);
                let found = cut_before.as_deref().and_then(|text| position(&held, text));
                let ready = found.unwrap_or_else(|| safe(&held, cut_before.as_deref().unwrap_or_default()));
                if client.write_all(&held[..ready]).await.is_err() {
                    return;
                }
                held.drain(..ready);
                if found.is_some() {
                    cuts.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
    }
}

fn position(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

/// How much can be handed on: all but an end that the text may begin with.
fn safe(bytes: &[u8], text: &[u8]) -> usize {
    let longest = text.len().saturating_sub(1).min(bytes.len());
    let begun = (1..=longest).rev().find(|&length| bytes.ends_with(&text[..length]));
    bytes.len() - begun.unwrap_or_default()
}

/// How much was read, if the connection still lives.
fn some(read: std::io::Result<usize>) -> Option<usize> {
    read.ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_the_beginning_of_the_text_is_held() {
        for (bytes, text, ready) in [
            ("abc", "", 3),
            ("abc", "x", 3),
            ("abde", "def", 2),
            ("ded", "def", 2),
            ("", "def", 0),
            ("def", "def", 3),
        ] {
            assert_eq!(safe(bytes.as_bytes(), text.as_bytes()), ready, "{text} in {bytes}");
        }
        assert_eq!(position(b"abdefg", b"def"), Some(2));
    }
}
