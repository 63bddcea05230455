//! What every process of `krane dev` takes while nobody asks anything of it.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use super::dev::{Dev, of_directory};

/// What a process had at one moment.
#[derive(Debug, Clone, Copy)]
struct Taken {
    /// Bytes of memory that are really there.
    memory: u64,
    /// Processor time since it began.
    processor: Duration,
    threads: u64,
    files: usize,
}

/// How long everything may take to come to rest once it runs.
const SETTLES: Duration = Duration::from_secs(15);

/// How much more memory may be there at the end: pages that were touched for the first time, and no more for ten minutes
/// than for one.
const MEMORY_MORE: u64 = 4 << 20;

/// Files and threads that come and go with a connection that is made again, or a thread that waits for a disk.
const FILES_MORE: usize = 4;
const THREADS_MORE: u64 = 8;

/// The part of one core that one process may use with nothing to do, in percent.
const PROCESSOR_PERCENT: f64 = 10.0;

/// Bytes that may be written to the state directory in a minute: leases are renewed, and that is all.
const WRITTEN: u64 = 1 << 20;

/// Watches everything for this long; whoever grows, works or goes away fails it.
pub fn nothing_grows(home: &Path, lasts: Duration) {
    let dev = Dev::start(home, &[]);
    assert_eq!(dev.sentinels().len(), 2);
    std::thread::sleep(SETTLES);
    let (first, disk) = (all(&dev), size(home));
    let began = Instant::now();
    let mut most = first.clone();
    while began.elapsed() < lasts {
        std::thread::sleep(Duration::from_secs(5).min(lasts));
        for (who, now) in all(&dev) {
            most.entry(who).and_modify(|most| most.memory = most.memory.max(now.memory));
        }
    }
    let (last, took) = (all(&dev), began.elapsed());
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>8} {:>6} {:>6}",
        "process", "RSS MiB", "most", "last", "CPU %", "threads", "files"
    );
    let mut wrong = Vec::new();
    for (who, before) in &first {
        let Some(after) = last.get(who) else {
            wrong.push(format!("{who} has ended"));
            continue;
        };
        let percent =
            after.processor.saturating_sub(before.processor).as_secs_f64() / took.as_secs_f64() * 100.0;
        println!(
            "{who:<34} {:>9.1} {:>9.1} {:>9.1} {percent:>8.2} {:>6} {:>6}",
            mebibytes(before.memory),
            mebibytes(most[who].memory),
            mebibytes(after.memory),
            after.threads,
            after.files
        );
        let grown = [
            (after.memory > before.memory + MEMORY_MORE, "memory"),
            (after.files > before.files + FILES_MORE, "open files"),
            (after.threads > before.threads + THREADS_MORE, "threads"),
            (percent > PROCESSOR_PERCENT, "processor"),
        ];
        wrong
            .extend(grown.iter().filter(|(is_wrong, _)| *is_wrong).map(|(_, what)| format!("{who}: {what}")));
    }
    wrong.extend(last.keys().filter(|who| !first.contains_key(*who)).map(|who| format!("{who} is new")));
    let written = size(home).saturating_sub(disk);
    println!("on disk {:.1} MiB, {written} bytes more after {took:.0?}", mebibytes(disk));
    let minutes = took.as_secs().div_ceil(60).max(1);
    if written > WRITTEN * minutes {
        wrong.push(format!("{written} bytes were written"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("; "));
    dev.interrupt();
}

#[expect(clippy::cast_precision_loss, reason = "it is looked at")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Every process, by its number and its command.
fn all(dev: &Dev) -> BTreeMap<String, Taken> {
    let pids = std::iter::once(dev.child.id()).chain(of_directory(&dev.home));
    pids.filter_map(|pid| Some((name(pid)?, taken(pid)?))).collect()
}

fn name(pid: u32) -> Option<String> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<String> =
        words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    // A keeper names what it keeps behind two hyphens.
    let inner = words.iter().skip_while(|word| *word != "--").nth(2).cloned().unwrap_or_default();
    Some(format!("{pid} {} {inner}", words.get(1)?).trim().to_owned())
}

fn taken(pid: u32) -> Option<Taken> {
    let memory = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let of = |field: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may have anything in it: the state is the first, user and system time are 12 and 13.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Taken {
        memory: of("VmRSS")? * 1024,
        processor: Duration::from_millis(ticks * 10),
        threads: of("Threads")?,
        files: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count(),
    })
}

/// Bytes of all files below a directory.
fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
