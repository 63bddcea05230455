//! The last table on disk: what a sentinel starts with when nobody can tell it anything.
//!
//! ```text
//! krane routes 1\n   SHA-256 of the rest   head: where, when, how many   then length and bytes of each object
//! ```
//!
//! A file is written beside the old one and takes its place whole. One that is damaged, of another version or of
//! another place is refused: it is better to know nothing than to route by something untrue.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use model::{
    id::{EnvironmentId, HistoryId},
    name::Placement,
    watch::{Cursor, Event, Key, Reader, Standing, Version},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use wire::{
    follow::Held,
    route::{Routed, pack, unpack},
};

/// Where the routes of one environment in one place are kept.
#[derive(Debug, Clone)]
pub struct Disk {
    directory: PathBuf,
    environment: EnvironmentId,
    placement: Placement,
}

/// Why what is on disk cannot be used, or nothing can be put there.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("cannot {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a file of routes that this version reads", path.display())]
    Unknown { path: PathBuf },
    #[error("{} is damaged: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{} has the routes of {found}", path.display())]
    Elsewhere { path: PathBuf, found: String },
}

/// What a file says of itself. The text after the magic is its length-prefixed JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    environment: String,
    placement: String,
    history: String,
    version: u64,
    count: usize,
}

const MAGIC: &[u8] = b"krane routes 1\n";
const DIGEST: usize = 32;
const NAME: &str = "routes";

impl Disk {
    pub fn new(directory: impl Into<PathBuf>, environment: EnvironmentId, placement: Placement) -> Disk {
        Disk { directory: directory.into(), environment, placement }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// Keeps what a reader holds. A reader that has never heard everything has nothing worth keeping, and one in the
    /// middle of a picture will have: its cursor has passed what its table does not show yet.
    pub async fn keep(&self, reader: &Reader<Held<Routed>>) -> Result<(), DiskError> {
        let Some(bytes) = self.write(reader) else { return Ok(()) };
        let (directory, path) = (self.directory.clone(), self.path());
        let written = tokio::task::spawn_blocking(move || replace(&directory, &path, &bytes)).await;
        // Only a runtime that is going down refuses, and then the file of before is as good.
        written.unwrap_or(Ok(()))
    }

    /// What was kept; nothing if nothing ever was.
    pub fn load(&self) -> Result<Option<Reader<Held<Routed>>>, DiskError> {
        let path = self.path();
        match fs::read(&path) {
            Ok(bytes) => self.read(&path, &bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DiskError::Io { doing: "read", path, source }),
        }
    }

    fn write(&self, reader: &Reader<Held<Routed>>) -> Option<Vec<u8>> {
        let Cursor { history, version } = reader.is_whole().then(|| reader.cursor())?;
        let known = reader.iter().filter_map(|(_, standing)| match standing {
            Standing::Known { version, state: Ok(routed) } => Some(pack(routed, *version)),
            // What cannot be read is asked for again: without it the census will not agree.
            Standing::Known { state: Err(_), .. } | Standing::Gone { .. } | Standing::Absent { .. } => None,
        });
        let objects: Vec<Vec<u8>> = known.collect();
        let head = Head {
            environment: self.environment.to_string(),
            placement: self.placement.to_string(),
            history: history?.to_string(),
            version: version.get(),
            count: objects.len(),
        };
        let head = serde_json::to_vec(&head).expect("texts and numbers");
        let mut body = Vec::new();
        for part in std::iter::once(&head).chain(&objects) {
            let length = u32::try_from(part.len()).expect("an object is far smaller than four gigabytes");
            body.extend_from_slice(&length.to_be_bytes());
            body.extend_from_slice(part);
        }
        Some([MAGIC, &Sha256::digest(&body)[..], &body].concat())
    }

    fn read(&self, path: &Path, bytes: &[u8]) -> Result<Reader<Held<Routed>>, DiskError> {
        let damaged = |reason: &str| DiskError::Damaged { path: path.into(), reason: reason.to_owned() };
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| DiskError::Unknown { path: path.into() })?;
        let (digest, mut body) = rest.split_at_checked(DIGEST).ok_or_else(|| damaged("it is cut off"))?;
        if Sha256::digest(body)[..] != *digest {
            return Err(damaged("its checksum is another"));
        }
        let head = take(&mut body).ok_or_else(|| damaged("it has no head"))?;
        let head: Head = serde_json::from_slice(head).map_err(|error| damaged(&error.to_string()))?;
        let is_ours =
            head.environment == self.environment.to_string() && head.placement == self.placement.to_string();
        if !is_ours {
            let found = format!("{} in {}", head.environment, head.placement);
            return Err(DiskError::Elsewhere { path: path.into(), found });
        }
        let history: HistoryId = head.history.parse().map_err(|_| damaged("its history is no id"))?;
        let mut known: Vec<(Key, Version, Held<Routed>)> = Vec::with_capacity(head.count.min(body.len()));
        while let Some(object) = take(&mut body) {
            match unpack(object, self.environment) {
                Ok(Event::Apply(change)) => known.push((change.key, change.version, Ok(change.state))),
                Ok(_) => return Err(damaged("it has something else than an object")),
                Err(invalid) => return Err(damaged(&invalid.to_string())),
            }
        }
        if known.len() != head.count || !body.is_empty() {
            return Err(damaged("it has another number of objects than it says"));
        }
        let cursor = Cursor { history: Some(history), version: Version::new(head.version) };
        Ok(Reader::restored(cursor, known))
    }
}

/// The next part, if there is one that is whole.
fn take<'a>(body: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = body.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (part, rest) = rest.split_at_checked(length)?;
    *body = rest;
    Some(part)
}

/// Writes beside the file, then puts it in its place: whoever reads sees the old one or the new one.
fn replace(directory: &Path, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let beside = directory.join(format!("{NAME}.new"));
    let failed = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| DiskError::Io { doing, path, source }
    };
    fs::create_dir_all(directory).map_err(failed("make", directory))?;
    let mut file = fs::File::create(&beside).map_err(failed("create", &beside))?;
    file.write_all(bytes).map_err(failed("write", &beside))?;
    file.sync_all().map_err(failed("flush", &beside))?;
    fs::rename(&beside, path).map_err(failed("replace", path))
}
