//! `cargo xtask chaos`: the long fault runs, which say by how they end whether everything held.

use anyhow::Result;

use crate::example::{self, Asked, Example};
use crate::part::Part;
use crate::schemathesis;
use crate::stop::Stop;
use crate::workspace::Workspace;

static RUNS: &[Example] = &[
    Example {
        name: "store",
        about: "many writers, a tailing reader and faults on both databases: no change is ever missed",
        package: "store",
        target: "chaos_store",
        parts: &[Part::Postgres],
        words: &[],
        programs: &[],
    },
    Example {
        name: "wire",
        about: "the same through control planes that are killed and a network that cuts, swallows and dawdles",
        package: "cli",
        target: "chaos_wire",
        parts: &[Part::Postgres],
        words: &[],
        programs: &["cli"],
    },
    Example {
        name: "idle",
        about: "an agent with 1,000 deployments in step, for minutes: nothing is asked, told or written",
        package: "harness",
        target: "chaos_idle",
        parts: &[Part::Kubernetes],
        words: &[],
        programs: &[],
    },
    Example {
        name: "dev",
        about: "krane dev for ten minutes without a request: what each process takes, and that nothing grows",
        package: "cli",
        target: "chaos_dev",
        parts: &[],
        words: &[],
        programs: &["cli"],
    },
    Example {
        name: "agent",
        about: "an agent killed after each of its writes to a real API server: the next one finishes what it began",
        package: "harness",
        target: "chaos_agent",
        parts: &[Part::Kubernetes],
        words: &[],
        programs: &["cli"],
    },
    Example {
        name: "proxy",
        about: "a gigabyte each way through a sentinel in little memory, and ten thousand connections that rest",
        package: "cli",
        target: "chaos_proxy",
        parts: &[Part::Clients],
        words: &[],
        programs: &["cli"],
    },
    Example {
        name: "simulate",
        about: "the whole system from seeds, in simulated time: whatever happened, everything comes to agree",
        package: "harness",
        target: "chaos_simulate",
        parts: &[],
        words: &[],
        programs: &[],
    },
    Example {
        name: "api",
        about: "thousands of good and bad requests made up from the API's document: none is answered with what it forbids",
        package: "control",
        target: "chaos_api",
        parts: &[Part::Schemathesis],
        words: schemathesis::IN_CHAOS,
        programs: &[],
    },
];

pub(crate) fn run(asked: &Asked, stop: &Stop) -> Result<()> {
    let Some(chosen) = example::choose(RUNS, asked)? else { return Ok(()) };
    chosen.run(&Workspace::load()?, &asked.args, stop)?.ensure_well(&format!("chaos `{}`", chosen.name))
}
