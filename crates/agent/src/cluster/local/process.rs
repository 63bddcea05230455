//! Pods as processes of this machine: each with ports, a directory and files of its own, and none that outlives us.
//!
//! ```text
//! Local ──start──▶ Life of a pod ──▶ krane local-run ──▶ the command
//!       ◀─status──               ◀── how it ended
//! ```

mod bind;
pub mod config;
mod environment;
mod hook;
mod image;
pub mod keep;
mod launch;
pub mod log;
pub mod machine;
mod pod;
pub mod ports;
mod probe;
mod restart;
pub mod services;
mod status;
mod stop;
mod volumes;

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use runtime::{clock::Clock, shutdown::Tasks};
use serde_json::Value;

pub use self::config::LocalConfig;
use self::{
    environment::{Environment, INHERITED},
    image::Images,
    pod::{Began, Given, Life, Place},
    ports::Ports,
    stop::stopping,
};
use super::node::{Node, Running, Secrets, Tell};

/// The pods of one local cluster.
pub struct Processes {
    around: Arc<Around>,
    /// Nobody else may use the directory.
    _lock: File,
}

/// What pods need of the process that they belong to.
pub struct Parts {
    /// The binary that knows `local-run`, and stands for images of ours.
    pub krane: PathBuf,
    /// Shared by all that run on this machine.
    pub ports: Ports,
    pub clock: Clock,
    /// Asked to stop, they end every pod.
    pub tasks: Tasks,
}

/// What all pods have around them.
struct Around {
    config: LocalConfig,
    /// Where pods have their directories.
    pods: PathBuf,
    krane: PathBuf,
    images: Images,
    inherited: Environment,
    ports: Ports,
    clock: Clock,
    tasks: Tasks,
}

/// Why no pod can be run.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another process has its pods in {}", .0.display())]
    Used(PathBuf),
    #[error("cannot {doing} {}", path.display())]
    Directory {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Processes {
    /// Takes the directory, and removes what pods of an earlier run left there: they ended with it.
    pub fn open(config: LocalConfig, parts: Parts) -> Result<Processes, OpenError> {
        let Parts { krane, ports, clock, tasks } = parts;
        let directory = std::path::absolute(&config.directory).map_err(failed("find", &config.directory))?;
        volumes::make(&directory).map_err(failed("make", &directory))?;
        let lock = lock(&directory)?;
        let pods = directory.join("pods");
        match fs::remove_dir_all(&pods) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("empty", &pods)(error));
            }
            _ => {}
        }
        volumes::make(&pods).map_err(failed("make", &pods))?;
        let images = Images::new(&krane.display().to_string(), &here(&config.images));
        let environment = runtime::config::read_environment().into_iter();
        let inherited = environment.filter(|(name, _)| INHERITED.contains(&name.as_str())).collect();
        let around = Around { config, pods, krane, images, inherited, ports, clock, tasks };
        Ok(Processes { around: Arc::new(around), _lock: lock })
    }
}

impl Node for Processes {
    fn bind(&self, pod: &mut Value) {
        let given = bind::named(pod).into_iter().filter_map(|port| Some((port, self.around.ports.take()?)));
        let given: BTreeMap<u16, u16> = given.collect();
        bind::rewrite(pod, &given);
    }

    fn start(&self, pod: &Value, secrets: Secrets, tell: Tell) -> Box<dyn Running> {
        let around = self.around.clone();
        let (handle, stop) = stopping(&around.clock, &around.tasks, around.config.drain);
        let given = Given { ports: around.ports.clone(), numbers: bind::named(pod).into_iter().collect() };
        let place = Place { directory: around.pods.join(directory_name(pod)) };
        let (began, tasks) = (Began::now(&around), around.tasks.clone());
        let life = Life { around, pod: pod.clone(), secrets, tell, stop, given, place, began };
        tasks.spawn_one_of_many("pod", life.run());
        Box::new(handle)
    }
}

/// The directory of a pod, which is no other's.
fn directory_name(pod: &Value) -> String {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    format!("{}_{}_{}", text("namespace"), text("name"), text("uid"))
}

fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join("lock");
    let file = File::create(&path).map_err(failed("make", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Used(directory.to_owned())),
        Err(TryLockError::Error(error)) => Err(failed("lock", &path)(error)),
    }
}

/// A program of the settings that is named by a path is looked for where we were started, not where a pod works.
fn here(images: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
    let mut images = images.clone();
    for words in images.values_mut() {
        if let Some(program) = words.first_mut().filter(|program| program.contains('/'))
            && let Ok(path) = std::path::absolute(&*program)
        {
            *program = path.display().to_string();
        }
    }
    images
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Directory { doing, path, source }
}
