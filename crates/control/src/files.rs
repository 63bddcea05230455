//! Files and directories that nobody else may look into.

use std::{
    fs::{DirBuilder, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// A file or directory that could not be made private.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}", path.display())]
pub struct FileError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Makes a directory that holds keys and tokens, and closes it to others if it was there before.
pub fn make_private(directory: &Path) -> Result<(), FileError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|source| error("make", directory, source))?;
    let closed = std::fs::set_permissions(directory, Permissions::from_mode(0o700));
    closed.map_err(|source| error("close to others", directory, source))
}

/// Writes a secret to a file that only we can read, in place of what was there.
pub fn write_private(path: &Path, text: &str) -> Result<(), FileError> {
    // Beside it and then over it: a crash leaves the old file or the new one, and no reader sees half. Two of us that begin
    // at the same time do not take each other's file away.
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let written = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        // It may have been there before, open to others.
        file.set_permissions(Permissions::from_mode(0o600))?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    written().map_err(|source| error("write", path, source))
}

/// Reads a secret; nothing, if there is no such file.
pub fn read_private(path: &Path) -> Result<Option<String>, FileError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(error("read", path, source)),
    }
}

fn error(doing: &'static str, path: &Path, source: io::Error) -> FileError {
    FileError { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_closed_to_others_even_if_it_was_open_before() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("a/b");
        make_private(&directory).unwrap();
        let file = directory.join("secret");
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        std::fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();

        make_private(&directory).unwrap();
        write_private(&file, "new").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
        assert_eq!(read_private(&file).unwrap().as_deref(), Some("new"));
        assert_eq!(read_private(&directory.join("nothing")).unwrap(), None);
    }
}
