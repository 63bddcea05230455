//! What the tests of the control plane's edge share: a place with things in it, servers, and clients of other kinds.
#![allow(dead_code, reason = "each test uses what it needs")]

pub mod base;
pub mod database;
pub mod ground;
pub mod http;
pub mod plane;
pub mod process;
pub mod secrets;
pub mod sweep;
pub mod trial;
