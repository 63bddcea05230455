//! The volumes of a pod as directories: what would be mounted at a path lies under the pod's own root.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Component, Path, PathBuf},
};

use serde_json::Value;

use super::environment::{data, namespace};
use crate::cluster::local::node::Secrets;

/// The Secrets that a container has as files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mounted(BTreeMap<PathBuf, String>);

/// Makes the directories of all volumes of a container, and fills those of Secrets; or says what is in the way.
pub fn mount(root: &Path, pod: &Value, container: &Value, secrets: &Secrets) -> Result<Mounted, String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let by_name: BTreeMap<&str, &Value> =
        volumes.filter_map(|volume| Some((volume["name"].as_str()?, volume))).collect();
    let mut mounted = Mounted::default();
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let name = mount["name"].as_str().unwrap_or_default();
        let path = below(root, mount["mountPath"].as_str().unwrap_or_default());
        let volume = by_name.get(name).ok_or_else(|| format!("there is no volume {name:?}"))?;
        make(&path).map_err(|error| format!("volume {name:?} cannot be made: {error}"))?;
        if let Some(secret) = volume["secret"]["secretName"].as_str() {
            mounted.0.insert(path, secret.to_owned());
        } else if !volume["emptyDir"].is_object() {
            return Err(format!("volume {name:?} is of a kind that a local cluster has not"));
        }
    }
    mounted.fill(pod, secrets)?;
    Ok(mounted)
}

impl Mounted {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Brings the files to what the Secrets say by now.
    pub fn fill(&self, pod: &Value, secrets: &Secrets) -> Result<(), String> {
        for (directory, name) in &self.0 {
            let secret =
                secrets.read(namespace(pod), name).ok_or_else(|| format!("secret {name:?} not found"))?;
            let files: BTreeMap<&str, Vec<u8>> = data(&secret).collect();
            bring(directory, &files)
                .map_err(|error| format!("secret {name:?} cannot be written: {error}"))?;
        }
        Ok(())
    }
}

/// Where a path of the pod's lies; it cannot lead out of its root.
fn below(root: &Path, path: &str) -> PathBuf {
    let parts = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
    parts.fold(root.to_owned(), |path, part| path.join(part))
}

/// A directory that nobody else may look into.
pub fn make(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn bring(directory: &Path, files: &BTreeMap<&str, Vec<u8>>) -> io::Result<()> {
    for (name, bytes) in files {
        let path = below(directory, name);
        if fs::read(&path).is_ok_and(|there| there == *bytes) {
            continue;
        }
        // Beside it and then over it, so that no reader sees half.
        let beside = directory.join(format!(".{name}.new"));
        let _left_over = fs::remove_file(&beside);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(&beside)?;
        io::Write::write_all(&mut file, bytes)?;
        fs::rename(&beside, &path)?;
    }
    let names: BTreeSet<&str> = files.keys().copied().collect();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_str().is_none_or(|name| !names.contains(name)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde_json::json;
    use std::{
        os::unix::fs::PermissionsExt as _,
        sync::{Arc, Mutex},
    };

    fn pod() -> (Value, Value) {
        let volumes = json!([
            { "name": "secrets", "secret": { "secretName": "s" } }, { "name": "data", "emptyDir": {} },
        ]);
        let mounts = json!([
            { "name": "secrets", "mountPath": "/etc/krane/../sentinel" }, { "name": "data", "mountPath": "/data" },
        ]);
        let pod = json!({ "metadata": { "namespace": "ws" }, "spec": { "volumes": volumes } });
        (pod, json!({ "volumeMounts": mounts }))
    }

    #[test]
    fn a_secret_is_files_that_follow_it() {
        let home = tempfile::tempdir().unwrap();
        let (pod, container) = pod();
        let now = Arc::new(Mutex::new(json!({ "a": STANDARD.encode("1"), "b": STANDARD.encode("2") })));
        let reading = now.clone();
        let secrets = Secrets::new(move |_, _| Some(json!({ "data": reading.lock().unwrap().clone() })));
        let mounted = mount(home.path(), &pod, &container, &secrets).unwrap();
        let directory = home.path().join("etc/krane/sentinel");
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        assert_eq!((read("a").as_deref(), read("b").as_deref()), (Some("1"), Some("2")));
        let mode = fs::metadata(directory.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400, "nobody else may read it");
        assert!(home.path().join("data").is_dir());
        *now.lock().unwrap() = json!({ "a": STANDARD.encode("3") });
        mounted.fill(&pod, &secrets).unwrap();
        assert_eq!((read("a").as_deref(), read("b")), (Some("3"), None));
    }

    #[test]
    fn what_cannot_be_mounted_is_told() {
        let home = tempfile::tempdir().unwrap();
        let (mut pod, container) = pod();
        let none = Secrets::new(|_, _| None);
        let told = |pod: &Value| mount(home.path(), pod, &container, &none).unwrap_err();
        assert_eq!(told(&pod), "secret \"s\" not found");
        pod["spec"]["volumes"][1] = json!({ "name": "data", "hostPath": {} });
        assert_eq!(told(&pod), "volume \"data\" is of a kind that a local cluster has not");
        pod["spec"]["volumes"] = json!([]);
        assert_eq!(told(&pod), "there is no volume \"secrets\"");
    }
}
