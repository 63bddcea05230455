//! Who is calling, and what that opens: one layer in front of everything, which lets nobody in by default.
//!
//! ```text
//! request ─▶ PERMISSIONS, ROUTES: is there such a path? ─▶ bearer ─▶ Gate: who is that? ─▶ the right kind? ─▶ handler
//!                                                    tail ──▶ │ ──▶ ends what is revoked or expired
//! ```
//!
//! A handler is given an [`Identity`], and gets at a place or an environment only through it: it compares
//! what the request claims with what the token opens.

mod door;
mod gate;
mod identity;
mod layer;
mod limit;
mod live;
mod permission;

pub use self::{
    gate::Gate,
    identity::{Agent, Identity, SentinelCaller, User},
    layer::{Authenticate, Guarded},
    permission::{PERMISSIONS, Permission, Shape, Who},
};
