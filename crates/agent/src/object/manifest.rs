//! An object ready to be applied.

use std::fmt;

use model::{
    id::{ChangeId, HistoryId},
    name::RegionKey,
    watch::Version,
};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    Ref, Type, Uid,
    live::{CHANGE, HISTORY, REGION, SPEC_HASH, VERSION},
};
use crate::labels::Owner;

/// An object as a kind wants it: complete, but for what says which desired state it was made from.
#[derive(Clone, PartialEq)]
pub struct Manifest {
    pub object: Ref,
    pub owner: Owner,
    /// How many pods it shall have, which another manager applies than the rest.
    pub scale: Option<Scale>,
    /// The object that it goes with, which is applied before it.
    pub owned_by: Option<Ref>,
    body: Value,
}

/// How many pods, and who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Always so many.
    Exactly(u32),
    /// An autoscaler decides; we only lift it to its minimum.
    AtLeast(u32),
}

/// Which desired state objects are made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamping {
    pub history: HistoryId,
    pub region: RegionKey,
    pub version: Version,
    pub change: Option<ChangeId>,
}

/// A manifest with everything: what is sent, as it is sent.
#[derive(Clone, PartialEq)]
pub struct Stamped {
    pub object: Ref,
    pub owner: Owner,
    pub scale: Option<Scale>,
    /// The object that it goes with; [`Stamped::go_with`] writes it down once its uid is known.
    pub owned_by: Option<Ref>,
    /// Of the manifest and, unless every shard shares it, the history: version and change alone cost no write.
    pub spec_hash: String,
    pub body: Value,
}

impl Manifest {
    /// The object with its owner's labels on it.
    ///
    /// # Panics
    /// If it cannot be written as a JSON object: a manifest is made of types that can.
    pub fn new(ty: Type, namespace: &str, name: &str, owner: Owner, spec: &impl Serialize) -> Manifest {
        let mut body = serde_json::to_value(spec).expect("a manifest can be written as JSON");
        let fields = body.as_object_mut().expect("a manifest is a JSON object");
        fields.insert("apiVersion".to_owned(), ty.api_version().into());
        fields.insert("kind".to_owned(), ty.kind().into());
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        metadata["name"] = name.into();
        if ty.is_namespaced() {
            metadata["namespace"] = namespace.into();
        }
        for (key, value) in owner.labels() {
            metadata["labels"][key] = value.into();
        }
        let namespace = if ty.is_namespaced() { namespace } else { "" };
        Manifest { object: Ref::new(ty, namespace, name), owner, scale: None, owned_by: None, body }
    }

    #[must_use]
    pub fn scaled(self, scale: Scale) -> Manifest {
        Manifest { scale: Some(scale), ..self }
    }

    /// The same, gone when that object is.
    ///
    /// # Panics
    /// If the two are in different namespaces: the cluster would take the owner for missing, and delete this.
    #[must_use]
    pub fn owned_by(self, owner: &Ref) -> Manifest {
        assert_eq!(self.object.namespace, owner.namespace, "{} owns {}", owner, self.object);
        Manifest { owned_by: Some(owner.clone()), ..self }
    }

    pub fn body(&self) -> &Value {
        &self.body
    }

    /// Says in annotations what it was made from. What many keys share says only what is the same for all of them.
    pub fn stamped(self, stamping: &Stamping) -> Stamped {
        let Manifest { object, owner, scale, owned_by, mut body } = self;
        // What all shards share is the same for every history, as they need not have the same.
        let history = owner.shard.as_ref().map(|_| stamping.history.to_string());
        let hash = Sha256::new()
            .chain_update(history.unwrap_or_default())
            .chain_update([0])
            .chain_update(body.to_string())
            .finalize();
        // Half of it tells two manifests apart well enough.
        let (half, _) = hash.split_first_chunk::<16>().expect("SHA-256 is 32 bytes");
        let spec_hash = format!("{:032x}", u128::from_be_bytes(*half));
        let annotations = &mut body["metadata"]["annotations"];
        annotations[SPEC_HASH] = spec_hash.as_str().into();
        annotations[HISTORY] = stamping.history.to_string().into();
        if owner.shard.is_some() {
            annotations[REGION] = stamping.region.to_string().into();
        }
        if !owner.is_shared() {
            annotations[VERSION] = stamping.version.to_string().into();
            if let Some(change) = stamping.change {
                annotations[CHANGE] = change.to_string().into();
            }
        }
        Stamped { object, owner, scale, owned_by, spec_hash, body }
    }
}

impl Stamped {
    /// Says which object it goes with, by the uid that the cluster knows that object by. The spec hash is the same
    /// with every uid: an owner that was made anew shows as a difference, not as another spec.
    pub fn go_with(&mut self, uid: &Uid) {
        let Some(owner) = &self.owned_by else { return };
        self.body["metadata"]["ownerReferences"] = json!([{
            "apiVersion": owner.ty.api_version(),
            "kind": owner.ty.kind(),
            "name": &*owner.name,
            "uid": &*uid.0,
        }]);
    }
}

/// What an object says may be secret.
impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Manifest({})", self.object)
    }
}

impl fmt::Debug for Stamped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stamped({}, {})", self.object, self.spec_hash)
    }
}
