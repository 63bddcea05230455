//! A real Kubernetes on loopback: its own servers, in one program of ours, and nodes that we play.

mod cache;
mod go;
mod home;
mod module;
mod servers;
pub(crate) mod standing;

use std::thread;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, Subcommand};

use self::home::{Home, User};
use self::servers::{Cluster, Kit};
use crate::command::show;
use crate::keeper::PAUSE;
use crate::part::Said;
use crate::stop::Stop;

/// Where tests find Cilium's verdicts.
const ORACLE_ENV: &str = "KRANE_TEST_CILIUM_ORACLE";

/// Where tests find h2spec.
const H2SPEC_ENV: &str = "KRANE_TEST_H2SPEC";

/// Enough for every kind of node in every zone.
const NODES: u32 = 4;

pub(crate) const SHORT_HELP: &str = "Example: cargo xtask k8s up && export KUBECONFIG=$(cargo xtask k8s kubeconfig)\n\n\
     How a pod behaves is told by its annotations or its image; see `cargo xtask k8s --help`.";

/// The knobs, for whoever has forgotten one.
pub(crate) const LONG_HELP: &str = "\
Example: cargo xtask k8s up && export KUBECONFIG=$(cargo xtask k8s kubeconfig)

How a pod behaves is told by its annotation `testing.krane/behaviour`, which may be changed while it
lives, or else by an image `fake.local/<behaviour>:1`. Every other image runs.

  run               ready at once
  crash-loop        ends with code 1, CrashLoopBackOff, restarts growing (first wait: delay, 1s)
  out-of-memory     the same, OOMKilled with code 137
  image-pull-error  ErrImagePull, then ImagePullBackOff (after delay, 1s)
  config-error      CreateContainerConfigError
  slow-start        runs at once, ready later (after delay, 5s)
  never-ready       runs, never ready
  evict             phase Failed, reason Evicted (after delay; at once if it ran before, else 1s)
  fail              phase Failed, code 3 (likewise)
  succeed           phase Succeeded, code 0 (likewise)

  testing.krane/delay: 1500ms        the behaviour's own time
  testing.krane/stop-delay: 2s       how long a deleted pod takes to go; `never` for ever; at once without

Unschedulable is the real scheduler's word: ask for more than a node has (1000 cores, 4Ti), or for a node
that is not there (nodeSelector `testing.krane/nowhere: \"true\"`).

Nodes are `fake-0` and so on in the zones test-1a, test-1b and test-1c. Of every four, one has the taint
karpenter.sh/nodepool=untrusted:NoSchedule and one node-class=sentinel:NoSchedule, as labels too.";

/// `cargo xtask k8s …`
#[derive(Subcommand)]
pub(crate) enum Asked {
    /// Build it if that was never done, start it in the background and wait until pods can be made.
    #[command(after_help = "Example: cargo xtask k8s up --nodes 10")]
    Up {
        #[command(flatten)]
        which: Which,
        /// How many nodes to play.
        #[arg(long, default_value_t = NODES)]
        nodes: u32,
    },
    /// End it, with all that is in it.
    #[command(after_help = "Example: cargo xtask k8s down")]
    Down(Which),
    /// Say what runs.
    #[command(after_help = "Example: cargo xtask k8s status")]
    Status(Which),
    /// Print where a user's kubeconfig is.
    #[command(after_help = "Example: export KUBECONFIG=$(cargo xtask k8s kubeconfig --user agent)")]
    Kubeconfig {
        #[command(flatten)]
        which: Which,
        /// The agent may do nothing until a role is bound to it.
        #[arg(long, value_enum, default_value_t = User::Admin)]
        user: User,
    },
}

#[derive(Args)]
pub(crate) struct Which {
    /// One of several on this machine.
    #[arg(long, default_value = "default")]
    name: String,
}

pub(crate) fn answer(asked: &Asked, stop: &Stop) -> Result<()> {
    match asked {
        Asked::Up { which, nodes } => standing::up(&which.name, *nodes, stop),
        Asked::Down(which) => standing::down(&which.name),
        Asked::Status(which) => standing::status(&which.name),
        Asked::Kubeconfig { which, user } => standing::kubeconfig(&which.name, *user),
    }
}

impl Kit {
    /// From the cache, or made now.
    fn get(stop: &Stop) -> Result<Self> {
        Ok(Self { program: module::CLUSTER.program(stop)?, crd: module::cilium_crd(stop)? })
    }
}

pub(crate) fn ensure_installed(stop: &Stop) -> Result<()> {
    Kit::get(stop).map(drop)
}

/// Makes Cilium's verdicts available, and says how tests find them.
pub(crate) fn ensure_oracle(stop: &Stop) -> Result<Vec<(String, String)>> {
    let program = module::ORACLE.program(stop)?;
    show(&format!("policies judged by Cilium {}", module::cilium_version()?));
    Ok(vec![(ORACLE_ENV.to_owned(), program.display().to_string())])
}

/// Makes h2spec available, and says how tests find it.
pub(crate) fn ensure_h2spec(stop: &Stop) -> Result<Vec<(String, String)>> {
    let program = module::H2SPEC.program(stop)?;
    Ok(vec![(H2SPEC_ENV.to_owned(), program.display().to_string())])
}

/// Makes Go's reverse proxy available: where it is.
pub(crate) fn reverse_proxy(stop: &Stop) -> Result<String> {
    Ok(module::REVERSE_PROXY.program(stop)?.display().to_string())
}

/// In the keeper's process: a cluster for one run.
pub(crate) fn keep(stop: &Stop) -> Result<()> {
    let kit = Kit::get(stop)?;
    run(&Home::temporary()?, &kit, NODES, stop)
}

/// Starts a cluster, says where it is, and looks after it until asked to stop.
fn run(home: &Home, kit: &Kit, nodes: u32, stop: &Stop) -> Result<()> {
    let started = Instant::now();
    let mut cluster = Cluster::start(home, kit, nodes, stop)?;
    let seconds = started.elapsed().as_secs_f64();
    Said::Note(format!("{} on port {}, {nodes} nodes, in {seconds:.1} s", cluster.version, cluster.port()))
        .say();
    for (key, value) in home.env() {
        Said::Env(key, value).say();
    }
    Said::Ready.say();
    while !stop.asked() {
        cluster.look()?;
        thread::sleep(PAUSE);
    }
    Ok(())
}
