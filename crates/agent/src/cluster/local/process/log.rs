//! What a pod prints, in files that do not grow without end: the newest under its own name, older ones numbered.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

/// Where output is kept, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPlace {
    pub path: PathBuf,
    /// How large one file grows.
    pub size_max: u64,
    /// How many files there are, the newest included.
    pub files_max: u32,
}

/// The file that is written to.
pub struct Log {
    place: LogPlace,
    file: File,
    written: u64,
}

/// As much as Kubernetes takes of a log for the message of how a container ended.
const TAIL_BYTES: u64 = 2048;

impl Log {
    /// Begins a file of its own: what an earlier run said is older.
    pub fn begin(place: LogPlace) -> io::Result<Log> {
        rotate(&place)?;
        let file = File::create(&place.path)?;
        Ok(Log { place, file, written: 0 })
    }

    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.written >= self.place.size_max {
                rotate(&self.place)?;
                self.file = File::create(&self.place.path)?;
                self.written = 0;
            }
            let room = usize::try_from(self.place.size_max - self.written).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.file.write_all(now)?;
            self.written += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }
}

/// Makes room for a new file: each that is there becomes one older, and the oldest goes.
fn rotate(place: &LogPlace) -> io::Result<()> {
    let oldest = place.files_max.saturating_sub(1);
    if oldest == 0 {
        return Ok(());
    }
    for age in (0..oldest).rev() {
        match fs::rename(aged(&place.path, age), aged(&place.path, age + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The file that is so many rotations old.
fn aged(path: &Path, age: u32) -> PathBuf {
    if age == 0 {
        return path.to_owned();
    }
    let mut name = OsString::from(path);
    name.push(format!(".{age}"));
    name.into()
}

/// The last words of what was printed since the last start, as far as they are known.
pub fn tail(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    // Last words are a kindness: that they cannot be read must not hide how the container ended.
    let bytes = read().unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(directory: &Path) -> Vec<(String, u64)> {
        let files = fs::read_dir(directory).unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())
        });
        let mut sizes: Vec<_> = files.collect();
        sizes.sort();
        sizes
    }

    #[test]
    fn whatever_is_printed_takes_no_more_than_its_files() {
        let home = tempfile::tempdir().unwrap();
        let place = LogPlace { path: home.path().join("a.log"), size_max: 100, files_max: 3 };
        let mut log = Log::begin(place.clone()).unwrap();
        for _ in 0..1000 {
            log.write(b"0123456").unwrap();
        }
        let names = |last| vec![("a.log".to_owned(), last), ("a.log.1".into(), 100), ("a.log.2".into(), 100)];
        assert_eq!(sizes(home.path()), names(100), "7000 bytes are 70 whole files");
        log.write(&[b'x'; 250]).unwrap();
        assert_eq!(sizes(home.path()), names(50), "one that is larger than a file");

        let mut log = Log::begin(place.clone()).unwrap();
        log.write(b"only this\n").unwrap();
        assert_eq!(sizes(home.path())[..2], [("a.log".to_owned(), 10), ("a.log.1".to_owned(), 50)]);
        assert_eq!(tail(&place.path), "only this", "what an earlier run said is not said again");
    }

    #[test]
    fn a_single_file_begins_again() {
        let home = tempfile::tempdir().unwrap();
        let mut log =
            Log::begin(LogPlace { path: home.path().join("a.log"), size_max: 10, files_max: 1 }).unwrap();
        log.write(b"0123456789abc").unwrap();
        assert_eq!(sizes(home.path()), [("a.log".to_owned(), 3)]);
    }

    #[test]
    fn the_tail_is_short_and_always_text() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.log");
        assert_eq!(tail(&path), "", "of nothing");
        fs::write(&path, [vec![b'a'; 5000], vec![0xff, b'\n']].concat()).unwrap();
        let last = tail(&path);
        assert!(last.ends_with("aa\u{fffd}") && last.chars().count() == 2047, "{last}");
    }
}
