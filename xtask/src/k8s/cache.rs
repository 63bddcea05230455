//! What is made once and kept: directories under the user's cache, named by a checksum of what they were made from.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::keeper::PAUSE;
use crate::stop::Stop;

/// Several trees may be at work with several versions each; beyond this the least used goes.
const ENTRIES_MAX: usize = 4;

/// How much of a checksum is in a name.
const NAME_BYTES: usize = 12;

/// Outside of `target`, so that a clean build and a second clone find it again.
pub(super) fn dir() -> Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let Some(cache) = cache else {
        bail!("there is no place for a cache: neither XDG_CACHE_HOME nor HOME is set")
    };
    Ok(cache.join("krane"))
}

/// The entry of that key, made now if it is not there. Of several that want it at once one makes it.
pub(super) fn entry(
    kind: &str,
    key: &str,
    stop: &Stop,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    entry_in(&dir()?.join(kind), key, stop, make)
}

fn entry_in(shelf: &Path, key: &str, stop: &Stop, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let found = shelf.join(key);
    if found.is_dir() {
        touch(&found);
        return Ok(found);
    }
    fs::create_dir_all(shelf).with_context(|| format!("make {}", shelf.display()))?;
    let lock = lock(&shelf.join("lock"), stop)?;
    if !found.is_dir() {
        let making = shelf.join("making");
        remove(&making)?;
        fs::create_dir(&making).with_context(|| format!("make {}", making.display()))?;
        make(&making)?;
        fs::rename(&making, &found).with_context(|| format!("put {} in its place", found.display()))?;
        prune(shelf, &found)?;
    }
    drop(lock);
    Ok(found)
}

/// The name of an entry that is made from these; each has a name of its own, so that what moved is another thing.
pub(super) fn key<'a>(parts: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut hash = Sha256::new();
    for (name, bytes) in parts {
        for text in [name.as_bytes(), bytes] {
            hash.update(u64::try_from(text.len()).expect("a length has 64 bits").to_be_bytes());
            hash.update(text);
        }
    }
    hex(&hash.finalize()[..NAME_BYTES])
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// Held until dropped, and by nobody else meanwhile; a process that dies gives it back.
fn lock(path: &Path, stop: &Stop) -> Result<File> {
    let file = File::create(path).with_context(|| format!("make {}", path.display()))?;
    let mut told = false;
    loop {
        stop.check()?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error).context("lock the cache"),
        }
        if !told {
            eprintln!("xtask: waiting for another xtask that holds {}", path.display());
            told = true;
        }
        thread::sleep(PAUSE);
    }
}

pub(super) fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))?;
    }
    Ok(())
}

/// Says that an entry is in use. One that belongs to somebody else is not ours to date.
fn touch(entry: &Path) {
    let _ = File::open(entry).and_then(|dir| dir.set_modified(SystemTime::now()));
}

fn prune(shelf: &Path, keep: &Path) -> Result<()> {
    let mut entries: Vec<(SystemTime, PathBuf)> = fs::read_dir(shelf)
        .context("read the cache")?
        .flatten()
        .filter_map(|entry| {
            let data = entry.metadata().ok().filter(fs::Metadata::is_dir)?;
            (entry.path() != keep).then_some((data.modified().ok()?, entry.path()))
        })
        .collect();
    entries.sort_by(|left, right| right.cmp(left));
    entries.iter().skip(ENTRIES_MAX - 1).try_for_each(|(_, path)| remove(path))
}

#[cfg(test)]
mod tests {
    use super::{ENTRIES_MAX, entry_in, key};
    use crate::stop::Stop;
    use anyhow::bail;
    use std::fs;
    use std::path::PathBuf;

    fn shelf(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("krane-cache-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn an_entry_is_made_once_and_found_again() {
        let (shelf, stop) = (shelf("once"), Stop::never());
        let made = entry_in(&shelf, "a", &stop, |dir| Ok(fs::write(dir.join("file"), "text")?)).unwrap();
        assert_eq!(fs::read_to_string(made.join("file")).unwrap(), "text");
        let found = entry_in(&shelf, "a", &stop, |_| bail!("it is there")).unwrap();
        assert_eq!(found, made);
        fs::remove_dir_all(&shelf).unwrap();
    }

    #[test]
    fn an_entry_that_failed_half_way_is_made_anew() {
        let (shelf, stop) = (shelf("half"), Stop::never());
        let half = entry_in(&shelf, "a", &stop, |dir| {
            fs::write(dir.join("half"), "")?;
            bail!("the disk is full")
        });
        assert_eq!(half.unwrap_err().to_string(), "the disk is full");
        let made = entry_in(&shelf, "a", &stop, |_| Ok(())).unwrap();
        assert_eq!(fs::read_dir(made).unwrap().count(), 0);
        fs::remove_dir_all(&shelf).unwrap();
    }

    #[test]
    fn the_cache_does_not_grow_without_end() {
        let (shelf, stop) = (shelf("bound"), Stop::never());
        for number in 0..2 * ENTRIES_MAX {
            entry_in(&shelf, &number.to_string(), &stop, |_| Ok(())).unwrap();
        }
        let kept = fs::read_dir(&shelf).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
        assert_eq!(kept, ENTRIES_MAX);
        assert!(shelf.join((2 * ENTRIES_MAX - 1).to_string()).is_dir(), "the newest stays");
        fs::remove_dir_all(&shelf).unwrap();
    }

    #[test]
    fn a_key_tells_contents_names_and_their_edges_apart() {
        let keys = [
            key([("a", &b"bc"[..])]),
            key([("ab", &b"c"[..])]),
            key([("a", &b"b"[..]), ("c", &b""[..])]),
            key([("a", &b"bd"[..])]),
        ];
        for (at, one) in keys.iter().enumerate() {
            assert!(!keys[at + 1..].contains(one), "{keys:?}");
        }
        assert_eq!(keys[0], key([("a", &b"bc"[..])]));
    }
}
