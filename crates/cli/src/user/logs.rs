//! `krane logs`: what the instances of a deployment print.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use runtime::clock::Clock;
use serde_json::Value;

use super::{
    End, Session,
    access::Access,
    client::{self, Client},
    kind::cell,
    output::{print, say},
};

/// How often a followed file is looked at.
const AGAIN: Duration = Duration::from_millis(200);
/// Bytes of one file that are shown when it is opened.
const TAIL_BYTES: u64 = 64 * 1024;

const EXAMPLES: &str = "What runs on this machine (krane dev) is shown; for what runs in Kubernetes, the command that shows it is printed.

Examples:
  krane logs dep_01hf7yat0060rk4csm6mv3ee1s
  krane logs dep_01hf7yat0060rk4csm6mv3ee1s -f
  krane logs dep_01hf7yat0060rk4csm6mv3ee1s --region local/eu";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Logs {
    /// The deployment
    id: String,
    /// Go on, and print what comes
    #[arg(short, long)]
    follow: bool,
    /// Only of this region
    #[arg(long, value_name = "PLATFORM/NAME")]
    region: Option<String>,
    #[command(flatten)]
    access: Access,
}

/// A file that is being read.
struct Source {
    /// What its lines begin with.
    name: String,
    path: PathBuf,
    seen: u64,
}

impl Logs {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let (client, entry) = self.access.open(session)?;
        let detail = client.get(&format!("/v1/deployments/{}", client::encode(&self.id))).await?;
        let wanted = |instance: &&Value| {
            self.region.as_ref().is_none_or(|region| instance["region"] == Value::String(region.clone()))
        };
        let instances: Vec<&Value> =
            detail["instances"].as_array().into_iter().flatten().filter(wanted).collect();
        anyhow::ensure!(
            !instances.is_empty(),
            "no instance of {} is known there; see: krane status {0}",
            self.id
        );
        let Some(directory) = &entry.directory else {
            return self.kubernetes(&client, &detail, &instances).await;
        };
        let mut sources: Vec<Source> = Vec::new();
        for instance in instances {
            let (region, name) = (cell(instance.get("region")), cell(instance.get("name")));
            match find(directory, &name) {
                Some(path) => sources.push(Source { name: format!("{region} {name}"), path, seen: 0 }),
                None => say(&format!("{name} in {region} has printed nothing that is still kept")),
            }
        }
        for source in &mut sources {
            print(&source.read(TAIL_BYTES)?)?;
        }
        if self.follow {
            tail(&mut sources).await?;
        }
        Ok(End::Done)
    }

    /// The commands that show it, for whoever has access to the clusters.
    async fn kubernetes(&self, client: &Client, detail: &Value, instances: &[&Value]) -> anyhow::Result<End> {
        let workspace = cell(detail.get("workspace_id"));
        let workspace = client.get(&format!("/v1/workspaces/{}", client::encode(&workspace))).await?;
        let namespace = cell(workspace.get("namespace"));
        say("it runs in Kubernetes; with access to the cluster of its region:");
        let follow = if self.follow { " -f" } else { "" };
        for instance in instances {
            let (region, name) = (cell(instance.get("region")), cell(instance.get("name")));
            print(&format!("kubectl logs -n {namespace} {name}{follow}  # {region}\n"))?;
        }
        Ok(End::Done)
    }
}

/// Prints what comes, until it is interrupted.
async fn tail(sources: &mut [Source]) -> anyhow::Result<()> {
    let clock = Clock::system();
    loop {
        clock.sleep(AGAIN).await;
        for source in &mut *sources {
            print(&source.read(u64::MAX)?)?;
        }
    }
}

/// The newest file of a pod's output, in whichever of the local clusters it is.
fn find(directory: &Path, pod: &str) -> Option<PathBuf> {
    let clusters = std::fs::read_dir(directory.join("local")).ok()?;
    let pods = clusters.flatten().filter_map(|cluster| std::fs::read_dir(cluster.path().join("pods")).ok());
    // Namespace, name and uid; none of them has the mark between them.
    let is_it =
        |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().split('_').nth(1) == Some(pod);
    pods.flatten().flatten().find(is_it).map(|entry| entry.path().join("log"))
}

impl Source {
    /// What came since the last look, each line with its pod; of very much, the end.
    fn read(&mut self, most: u64) -> anyhow::Result<String> {
        let Ok(mut file) = File::open(&self.path) else { return Ok(String::new()) };
        let size = file.metadata()?.len();
        if size < self.seen {
            // It was begun anew.
            self.seen = 0;
        }
        let from = self.seen.max(size.saturating_sub(most));
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(size - from).read_to_end(&mut bytes)?;
        // Half a line waits for its other half.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.seen = from + whole as u64;
        let text = String::from_utf8_lossy(&bytes[..whole]);
        Ok(text.lines().map(|line| format!("{}  {line}\n", self.name)).collect::<Vec<_>>().concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_that_are_new_are_shown() {
        let home = tempfile::tempdir().unwrap();
        let pod = home.path().join("local/north/pods/ns_web-1_uid");
        std::fs::create_dir_all(&pod).unwrap();
        std::fs::write(pod.join("log"), "one\ntw").unwrap();
        let path = find(home.path(), "web-1").unwrap();
        let mut source = Source { name: "north web-1".to_owned(), path: path.clone(), seen: 0 };
        assert_eq!(source.read(TAIL_BYTES).unwrap(), "north web-1  one\n");
        std::fs::write(&path, "one\ntwo\n").unwrap();
        assert_eq!(source.read(u64::MAX).unwrap(), "north web-1  two\n");
        assert_eq!(source.read(u64::MAX).unwrap(), "");
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(source.read(u64::MAX).unwrap(), "north web-1  new\n", "it was begun anew");
        assert!(find(home.path(), "other").is_none());
    }
}
