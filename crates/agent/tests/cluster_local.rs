//! What the loop relies on, before the cluster that needs no Kubernetes.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "cluster/memory.rs"]
mod memory;
#[path = "cluster/suite.rs"]
mod suite;

use self::memory::Memory;

suite::claims!(Memory::start(), start_paused = true);
