//! From a row in the store to objects in a real cluster, to instances in the store again, and what can be in the way.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

#[path = "story/breaker.rs"]
mod breaker;
#[path = "story/reasons.rs"]
mod reasons;
#[path = "story/role.rs"]
mod role;
#[path = "story/scaling.rs"]
mod scaling;
#[path = "story/secrets.rs"]
mod secrets;
#[path = "story/start.rs"]
mod start;
#[path = "story/validation.rs"]
mod validation;
