//! What the schema and its conversions promise: numbers that never change, fields that mean something at both ends,
//! nouns that arrive as they were sent, and input that is refused without harm.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "messages/coverage.rs"]
mod coverage;
#[path = "messages/damage.rs"]
mod damage;
#[path = "messages/foreign.rs"]
mod foreign;
#[path = "messages/golden.rs"]
mod golden;
#[path = "messages/nouns.rs"]
mod nouns;
#[path = "messages/refused.rs"]
mod refused;
#[path = "messages/round_trips.rs"]
mod round_trips;
#[path = "messages/samples.rs"]
mod samples;
