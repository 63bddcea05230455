//! The bytes between our processes: the schema's messages, their conversions to and from the nouns, who is
//! calling, and the client that follows a stream.
//!
//! ```text
//! noun ─▶ message ─▶ bytes ─▶ message ─▶ noun          one file per noun, both ways in it
//!         follow: connect, resume, back off ─▶ model::watch::Event
//! ```

pub mod auth;
pub mod client;
pub mod config;
pub mod deployment;
pub mod follow;
pub mod heartbeat;
pub mod network_policy;
pub mod report;
pub mod request;
pub mod route;
pub mod sentinel;
pub mod traffic;
pub mod watch;

mod read;

/// The messages and services as the schema has them. Everything outside this crate that is no server or client
/// of them speaks in nouns.
#[allow(clippy::all, clippy::pedantic, elided_lifetimes_in_paths, missing_docs, unused_imports, rustdoc::all)]
mod generated {
    connectrpc::include_generated!();
}

pub use generated::ctrl::v1 as proto;

/// The compiled schema, for those who look at it as data.
pub const DESCRIPTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ctrl.fds"));
