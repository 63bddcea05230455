//! The cluster that needs no Kubernetes beside the one that is: what is done to both becomes the same in both.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "cluster/memory.rs"]
mod memory;
#[path = "cluster/real.rs"]
#[expect(dead_code, reason = "only a part of it is wanted here")]
mod real;
#[path = "cluster/sequence.rs"]
mod sequence;
#[path = "cluster/suite.rs"]
#[expect(dead_code, unused_macros, unused_imports, reason = "the claims are tests elsewhere")]
mod suite;

use std::collections::BTreeMap;

use agent::cluster::kube::KubeConfig;
use futures_util::future::join_all;

use self::{
    memory::Memory,
    real::Real,
    sequence::{Operation, Record, play},
    suite::Setting as _,
};

const SEQUENCES: u64 = 200;
/// How many are played at a time.
const TOGETHER: usize = 20;

/// `KRANE_TEST_SEED=n` plays one sequence alone.
#[tokio::test]
async fn whatever_happens_becomes_the_same_in_both_clusters() {
    let seeds: Vec<u64> = match seed() {
        Some(seed) => vec![seed],
        None => (0..SEQUENCES).collect(),
    };
    let (real, memory) = (Real::start().await, Memory::start());
    let (mut operations, mut faults): (BTreeMap<Operation, u32>, u32) = (BTreeMap::new(), 0);
    let mut different = Vec::new();
    for some in seeds.chunks(TOGETHER) {
        let pairs = join_all(some.iter().map(|seed| both(&real, &memory, *seed))).await;
        for (seed, (theirs, ours)) in some.iter().zip(pairs) {
            if theirs.lines != ours.lines {
                tell(*seed, &theirs.lines, &ours.lines);
                different.push(*seed);
            }
            faults += theirs.faults;
            for (operation, count) in theirs.operations {
                *operations.entry(operation).or_default() += count;
            }
        }
    }
    println!("{} sequences, {operations:?}, {faults} not done as asked", seeds.len());
    assert_eq!(different, [] as [u64; 0], "seeds whose sequences differ");
    if seeds.len() > 1 {
        assert!(Operation::ALL.iter().all(|operation| operations.contains_key(operation)), "{operations:?}");
        assert!(faults > 100, "{faults}");
    }
}

/// Shows where two records part.
fn tell(seed: u64, theirs: &[String], ours: &[String]) {
    let same = theirs.iter().zip(ours).take_while(|(one, other)| one == other).count();
    println!("seed {seed} differs:");
    theirs[..same].iter().for_each(|line| println!("         {line}"));
    let next = |lines: &[String]| lines.get(same).cloned().unwrap_or_else(|| "nothing more".to_owned());
    println!("  real:  {}\n  local: {}", next(theirs), next(ours));
}

async fn both(real: &Real, memory: &Memory, seed: u64) -> (Record, Record) {
    let shard = |name: model::name::Shard| format!("{name}-{seed}").parse::<model::name::Shard>().unwrap();
    let quick = KubeConfig {
        requests_per_second: 2000,
        requests_burst: 2000,
        streams_lists: false,
        ..KubeConfig::default()
    };
    let theirs = real.kube_for(shard(real.shard()), &quick).await;
    let ours = memory.cluster().of_shard(shard(memory.shard()));
    let theirs = play(real, &theirs, shard(real.shard()), seed).await;
    (theirs, play(memory, &ours, shard(memory.shard()), seed).await)
}

#[expect(clippy::disallowed_methods, reason = "a test is told which seed to play")]
fn seed() -> Option<u64> {
    std::env::var("KRANE_TEST_SEED").ok().map(|seed| seed.parse().expect("a number"))
}
