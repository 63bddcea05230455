//! Pods as processes, one by one: what is told of each, and what is left when it is over.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

#[path = "processes/ends.rs"]
mod ends;
#[path = "processes/limits.rs"]
mod limits;
#[path = "processes/machine.rs"]
mod machine;
#[path = "processes/node.rs"]
mod node;
#[path = "processes/reasons.rs"]
mod reasons;
