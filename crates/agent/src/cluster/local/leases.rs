//! Leases, each with the number of its last write.

use std::collections::BTreeMap;

use super::objects::Objects;
use crate::cluster::{Error, Fault, Lease, Result, kube::lease::as_kept};

#[derive(Default)]
pub(super) struct Leases(BTreeMap<(String, String), Lease>);

impl Leases {
    pub fn within(&self, namespace: &str) -> Vec<Lease> {
        let all = self.0.iter().filter(|((other, _), _)| other == namespace);
        all.map(|(_, lease)| lease.clone()).collect()
    }

    /// One of them, by its namespace and name.
    pub fn get(&self, lease: &(String, String)) -> Option<Lease> {
        self.0.get(lease).cloned()
    }

    /// Writes a lease, if nobody has since it was read.
    pub fn put(&mut self, objects: &mut Objects, namespace: &str, lease: &Lease) -> Result<Lease> {
        let key = (namespace.to_owned(), lease.name.clone());
        let present = self.0.get(&key).and_then(|lease| lease.revision.clone());
        if present != lease.revision {
            return Err(Error::new(Fault::Conflict, format!("somebody else wrote the lease {}", lease.name)));
        }
        let revision = Some(objects.count().to_string());
        let kept = Lease { revision, ..as_kept(namespace, lease)? };
        self.0.insert(key, kept.clone());
        Ok(kept)
    }

    /// They go with their namespace.
    pub fn forget(&mut self, namespace: &str) {
        self.0.retain(|(other, _), _| other != namespace);
    }
}
