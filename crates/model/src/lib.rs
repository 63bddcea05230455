//! The nouns of Krane: what exists, what may be said about it, and nothing that does anything.
//!
//! No IO, no clock, no randomness, no serialisation. A noun that exists cannot be wrong: whatever comes from
//! outside is parsed into one at the edge, and all problems of an input are reported together
//! ([`invalid`]).

pub mod canary;
pub mod cluster;
pub mod deployment;
pub mod environment;
pub mod event;
pub mod id;
pub mod instance;
pub mod invalid;
pub mod kind;
pub mod limits;
pub mod name;
pub mod network_policy;
pub mod project;
pub mod rollout;
pub mod route;
pub mod secret;
pub mod sentinel;
pub mod size;
pub mod time;
pub mod token;
pub mod topology;
pub mod traffic;
pub mod watch;
pub mod workflow;

mod choice;
