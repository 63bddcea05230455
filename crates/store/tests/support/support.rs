//! What the tests of the store share.
#![allow(dead_code, reason = "no test uses all of it")]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the numbers are small")]

pub mod database;
pub mod history;
pub mod process;
pub mod promises;
pub mod reader;
pub mod recorder;
pub mod trial;
pub mod world;
