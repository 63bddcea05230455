//! What the tests of the control plane as a process share.
#![allow(dead_code, reason = "no test uses all of it")]
#![allow(clippy::cast_possible_truncation, reason = "the numbers are small")]

pub mod agent;
pub mod database;
pub mod follower;
pub mod ground;
pub mod history;
pub mod plane;
pub mod proxy;
pub mod reader;
#[path = "../../../store/tests/support/recorder.rs"]
pub mod recorder;
pub mod transcript;
#[path = "../../../store/tests/support/world.rs"]
pub mod world;
