//! `krane version`.

use std::io::Write as _;

/// Prints name and version, for people and scripts alike.
pub(crate) fn print() -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "krane {}", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
