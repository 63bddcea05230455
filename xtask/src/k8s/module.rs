//! The Go modules in `testing/`: each becomes one program, built once and kept in the user's cache.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{cache, go};
use crate::command::Task;
use crate::stop::Stop;
use crate::tidy::tree;
use crate::workspace;

/// What is done to build one; another recipe makes another entry.
const RECIPE: &str = "1";

/// Where Kubernetes looks for its own version, which is otherwise set by its own scripts.
const VERSION_VARIABLES: &str = "k8s.io/component-base/version";

const CILIUM: &str = "github.com/cilium/cilium";

/// Where Cilium keeps what it installs, from its root.
const CILIUM_CRDS: &str = "pkg/k8s/apis/cilium.io/client/crds/v2";

const CILIUM_CRD: &str = "ciliumnetworkpolicies.yaml";

pub(super) struct Module {
    /// Its directory in `testing/`.
    dir: &'static str,
    /// Its program's name, and that of its place in the cache.
    program: &'static str,
    /// What it costs to build, for the person who waits.
    cost: &'static str,
}

pub(super) const CLUSTER: Module =
    Module { dir: "kubernetes", program: "testcluster", cost: "5 to 10 minutes and 4 GB of Go's own cache" };

pub(super) const ORACLE: Module =
    Module { dir: "cilium-oracle", program: "cilium-oracle", cost: "2 to 4 minutes" };

pub(super) const H2SPEC: Module = Module { dir: "h2spec", program: "h2spec", cost: "half a minute" };

pub(super) const REVERSE_PROXY: Module =
    Module { dir: "reverse-proxy", program: "reverse-proxy", cost: "half a minute" };

impl Module {
    /// Its program, built now if nobody did before.
    pub(super) fn program(&self, stop: &Stop) -> Result<PathBuf> {
        let key = self.key()?;
        let entry = cache::entry(self.program, &key, stop, |making| self.build(making, stop))?;
        Ok(entry.join(self.program))
    }

    fn build(&self, into: &Path, stop: &Stop) -> Result<()> {
        let go = go::find(stop)?;
        eprintln!("xtask: building {} (once; about {})", self.program, self.cost);
        let mut args: Vec<OsString> =
            ["build", "-mod=readonly", "-buildvcs=false", "-trimpath"].map(Into::into).into();
        args.extend(["-ldflags".into(), self.linking()?.into(), "-o".into()]);
        args.extend([into.join(self.program).into(), ".".into()]);
        let task = Task::new(&self.root(), go.program, args);
        go::ENV
            .iter()
            .fold(task, |task, (key, value)| task.env(key, *value))
            .run(stop)?
            .ensure_well(&format!("building {}", self.program))
    }

    fn linking(&self) -> Result<String> {
        let manifest = self.manifest()?;
        let version = required(&manifest, "k8s.io/kubernetes").map(versions).unwrap_or_default();
        Ok(std::iter::once("-s -w".to_owned()).chain(version).collect::<Vec<_>>().join(" "))
    }

    fn manifest(&self) -> Result<String> {
        fs::read_to_string(self.root().join("go.mod")).with_context(|| format!("read go.mod of {}", self.dir))
    }

    /// A checksum of everything that the program is made of.
    fn key(&self) -> Result<String> {
        let root = self.root();
        let mut files = vec![("recipe".to_owned(), RECIPE.as_bytes().to_owned())];
        for path in tree::walk_all(&root)?.into_iter().filter(|path| is_source(path)) {
            let bytes = fs::read(root.join(&path)).with_context(|| format!("read {path} of {}", self.dir))?;
            files.push((path, bytes));
        }
        Ok(cache::key(files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()))))
    }

    fn root(&self) -> PathBuf {
        workspace::root().join("testing").join(self.dir)
    }
}

/// The Cilium that the oracle judges by.
pub(super) fn cilium_version() -> Result<String> {
    let manifest = ORACLE.manifest()?;
    Ok(required(&manifest, CILIUM).context("the oracle's go.mod names no Cilium")?.to_owned())
}

/// Cilium's own definition of its policies, of the version that the oracle judges by.
pub(super) fn cilium_crd(stop: &Stop) -> Result<PathBuf> {
    let version = cilium_version()?;
    let entry = cache::entry("cilium-crd", &version, stop, |making| {
        let go = go::find(stop)?;
        let output = Command::new(go.program)
            .args(["mod", "download", "-json", CILIUM])
            .current_dir(ORACLE.root())
            .envs(go::ENV)
            .output()
            .context("run go mod download")?;
        ensure!(
            output.status.success(),
            "could not download Cilium {version}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let said: Value = serde_json::from_slice(&output.stdout).context("read what Go downloaded")?;
        let dir = said["Dir"].as_str().context("Go does not say where it put Cilium")?;
        let from = Path::new(dir).join(CILIUM_CRDS).join(CILIUM_CRD);
        fs::copy(&from, making.join(CILIUM_CRD)).with_context(|| format!("copy {}", from.display()))?;
        Ok(())
    })?;
    Ok(entry.join(CILIUM_CRD))
}

/// Tests do not change the program that they are about.
fn is_source(path: &str) -> bool {
    let wanted = [".go", ".mod", ".sum", ".yaml"].iter().any(|end| path.ends_with(end));
    wanted && !path.ends_with("_test.go") && !path.starts_with("testdata/")
}

/// The version of a module that a manifest requires.
fn required<'a>(manifest: &'a str, module: &str) -> Option<&'a str> {
    manifest.lines().find_map(|line| {
        let line = line.trim().strip_prefix("require ").unwrap_or(line.trim());
        let version = line.strip_prefix(module)?.strip_prefix(' ')?;
        version.starts_with('v').then(|| version.split(' ').next())?
    })
}

/// The linker's words that tell Kubernetes its version.
fn versions(version: &str) -> Vec<String> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next().unwrap_or_default();
    let values = [("gitVersion", version), ("gitMajor", number()), ("gitMinor", number())];
    values.map(|(name, value)| format!("-X {VERSION_VARIABLES}.{name}={value}")).into()
}

#[cfg(test)]
mod tests {
    use super::{CILIUM, CLUSTER, ORACLE, is_source, required, versions};

    #[test]
    fn a_version_is_what_the_manifest_requires_and_not_what_it_replaces() {
        let manifest =
            "require (\n\tk8s.io/kubernetes v1.36.4\n)\nreplace k8s.io/api => k8s.io/api v0.36.4\n";
        assert_eq!(required(manifest, "k8s.io/kubernetes"), Some("v1.36.4"));
        assert_eq!(required(manifest, "k8s.io/api"), None);
        assert_eq!(required("require a.b/c v1.0.0 // indirect\n", "a.b/c"), Some("v1.0.0"));
    }

    #[test]
    fn our_manifests_name_the_versions_that_we_ask_them_for() {
        assert!(required(&CLUSTER.manifest().unwrap(), "k8s.io/kubernetes").is_some());
        assert!(required(&ORACLE.manifest().unwrap(), CILIUM).is_some());
    }

    #[test]
    fn kubernetes_is_told_its_version_in_three_words() {
        let told = versions("v1.36.4").join(" ");
        assert_eq!(
            told,
            "-X k8s.io/component-base/version.gitVersion=v1.36.4 \
             -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
        );
    }

    #[test]
    fn a_program_is_made_of_its_sources_and_not_of_its_tests() {
        assert!(
            ["go.mod", "go.sum", "main.go", "nodes/pods.go", "install/a.yaml"].into_iter().all(is_source)
        );
        assert!(!["README.md", "nodes/pods_test.go", "testdata/1.yaml"].into_iter().any(is_source));
    }
}
