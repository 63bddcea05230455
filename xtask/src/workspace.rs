//! The workspace as cargo sees it: where it is, its packages, their targets and dependencies.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// What `cargo metadata` knows of our own packages.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

#[derive(Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its directory, from the root.
    pub(crate) dir: PathBuf,
    /// Whether it has tests that need a real part, and so the feature that turns them on.
    pub(crate) has_real: bool,
    /// The file that each target begins with, from the root.
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Clone)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) is_dev: bool,
}

/// The feature that turns on tests, benches and fault runs that need a real part.
pub(crate) const REAL: &str = "real";

/// The directory of the workspace that this xtask was built from.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("xtask is a directory of the workspace").to_owned()
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(root())
            .output()
            .context("run cargo metadata")?;
        ensure!(
            output.status.success(),
            "cargo metadata failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let metadata = serde_json::from_slice(&output.stdout).context("read cargo's metadata")?;
        Self::parse(&metadata).context("understand cargo's metadata")
    }

    fn parse(metadata: &Value) -> Option<Self> {
        let root = PathBuf::from(metadata["workspace_root"].as_str()?);
        let target = PathBuf::from(metadata["target_directory"].as_str()?);
        let packages = metadata["packages"].as_array()?.iter().map(|package| Package::parse(package, &root));
        Some(Self { packages: packages.collect::<Option<_>>()?, root, target })
    }

    pub(crate) fn package(&self, name: &str) -> Result<&Package> {
        let found = self.packages.iter().find(|package| package.name == name);
        found.with_context(|| format!("there is no package `{name}` in the workspace"))
    }
}

impl Package {
    fn parse(package: &Value, root: &Path) -> Option<Self> {
        let within = |path: &Value| Some(Path::new(path.as_str()?).strip_prefix(root).ok()?.to_owned());
        let targets = package["targets"].as_array()?.iter().map(|target| within(&target["src_path"]));
        let dependencies = package["dependencies"].as_array()?.iter().map(|dependency| {
            let name = dependency["name"].as_str()?.to_owned();
            Some(Dependency { name, is_dev: dependency["kind"] == "dev" })
        });
        Some(Self {
            name: package["name"].as_str()?.to_owned(),
            dir: within(&package["manifest_path"])?.parent()?.to_owned(),
            has_real: package["features"].get(REAL).is_some(),
            roots: targets.collect::<Option<_>>()?,
            dependencies: dependencies.collect::<Option<_>>()?,
        })
    }

    /// The arguments that turn the real parts on, where there are any.
    pub(crate) fn features(&self) -> &'static [&'static str] {
        if self.has_real { &["--features", REAL] } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::Workspace;
    use serde_json::json;

    #[test]
    fn a_package_is_read_with_paths_from_the_root() {
        let metadata = json!({
            "workspace_root": "/w",
            "target_directory": "/w/target",
            "packages": [{
                "name": "store",
                "manifest_path": "/w/crates/store/Cargo.toml",
                "features": { "real": [] },
                "targets": [{ "src_path": "/w/crates/store/src/lib.rs" }],
                "dependencies": [{ "name": "model", "kind": null }, { "name": "anyhow", "kind": "dev" }],
            }],
        });
        let workspace = Workspace::parse(&metadata).expect("is well formed");
        let store = workspace.package("store").expect("is there");
        assert!(store.has_real);
        assert_eq!(store.dir.to_str(), Some("crates/store"));
        assert_eq!(store.roots[0].to_str(), Some("crates/store/src/lib.rs"));
        assert_eq!(store.dependencies.iter().map(|one| one.is_dev).collect::<Vec<_>>(), [false, true]);
    }
}
