//! What the control plane does by itself, over many commits: a state machine in the store that any replica can go on with.

pub(crate) mod state;
