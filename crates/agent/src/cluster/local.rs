//! A cluster that needs no Kubernetes: objects in memory, and pods that a [`node`] runs.

pub mod node;
