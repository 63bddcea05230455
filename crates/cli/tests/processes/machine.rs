//! What runs on this machine, as the kernel tells it.

use std::{fs, path::Path, time::Duration};

/// Far longer than anything takes; a test that waits for it has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A word that no other process has among its arguments: a number that one can sleep for.
pub fn mark() -> String {
    format!("9{}.5", runtime::random::Random::system().u64() >> 16)
}

/// The processes that have this among their arguments; what has ended has none.
pub fn running(mark: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("Linux").flatten();
    let numbered = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let marked = numbered.filter(|pid| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
    });
    marked.collect()
}

/// Waits until so many processes have this among their arguments.
pub async fn until_running(mark: &str, count: usize) -> Vec<u32> {
    until(&format!("{count} of {mark} run"), || {
        let pids = running(mark);
        (pids.len() == count).then_some(pids)
    })
    .await
}

/// Waits until there is an answer.
pub async fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = tokio::time::Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How much lies in a directory, and below.
pub fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(about) if about.is_dir() => size(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

pub fn kill(signal: &str, pid: u32) {
    let killed = std::process::Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(killed.expect("kill is there").success());
}
