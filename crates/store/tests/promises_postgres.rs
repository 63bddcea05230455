//! The promises of the store.
