//! `cargo xtask chaos dev`: `krane dev` for minutes with nothing to do, and what each of its processes takes.

#![allow(clippy::disallowed_methods, reason = "this run is about real time")]

#[path = "../tests/support/dev.rs"]
mod dev;
#[path = "../tests/idle/watch.rs"]
mod watch;

use std::time::Duration;

fn main() {
    let said = std::env::args().skip_while(|argument| argument != "--minutes").nth(1);
    let minutes = said.map_or(10, |text| text.parse().expect("a number"));
    let directory = tempfile::tempdir().expect("a directory");
    watch::nothing_grows(&directory.path().join("state"), Duration::from_mins(minutes));
}
