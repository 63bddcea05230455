//! What the loop needs to know of a kind: pure functions, and which stream its desired state comes from.

use std::sync::Arc;

use model::{
    id::{ChangeId, EnvironmentId},
    invalid::Invalid,
    name::KubernetesName,
    secret::Sealed,
    watch::{Census, Key},
};
use wire::{follow::Source, report::Heading};

use crate::{
    control::Report,
    object::{Live, Manifest, Type},
    secrets::Variables,
};

/// One kind of thing the agent keeps true in the cluster. Pure: no IO, no clock, no randomness.
pub trait Kind: Send + Sync + 'static {
    const KIND: model::kind::Kind;
    /// The types of the objects it makes, and those it observes beside them.
    const TYPES: &'static [Type];

    /// Whether the control plane compares what was reported with what it holds.
    const HAS_CENSUS: bool = false;

    /// What its stream says of one thing.
    type Desired: Clone + Send + Sync + 'static;
    /// What the control plane wants to know of one thing.
    type Observed: Clone + PartialEq + Send + Sync + 'static;
    type Source: Source<State = Self::Desired> + Send + 'static;

    /// What its objects are called.
    fn name<'a>(&self, desired: &'a Self::Desired) -> &'a KubernetesName;

    /// The environment it is in, whose other things it shares objects with.
    fn environment(&self, desired: &Self::Desired) -> Option<EnvironmentId>;

    /// What a change is put down to.
    fn change(&self, desired: &Self::Desired) -> Option<ChangeId>;

    /// Every object this thing needs, complete, in the order in which they are applied: what protects comes before
    /// what it protects. Or every reason why there can be none. A thing that is gone needs none. What of it was sealed
    /// is handed in opened.
    fn manifests(
        &self,
        desired: &Self::Desired,
        opened: Option<&Variables>,
    ) -> Result<Vec<Manifest>, Invalid>;

    /// What is to be opened before its objects are made, and whose it is.
    fn sealed<'a>(&self, desired: &'a Self::Desired) -> Option<(EnvironmentId, &'a Sealed)> {
        let _ = desired;
        None
    }

    /// What can be told of the objects of one thing; nothing, if there is nothing left of it.
    fn observe(&self, key: &Key, objects: &[Arc<Live>]) -> Option<Self::Observed>;

    /// What an object that stands for the whole thing is called, if this is it.
    fn named_by(&self, object: &Live) -> Option<KubernetesName>;

    /// The report of what was observed; nothing, if the kind reports nothing.
    fn report(
        &self,
        heading: Heading,
        key: &Key,
        name: &KubernetesName,
        observed: Option<&Self::Observed>,
    ) -> Option<Report>;

    /// Count and digest of what was reported of one thing, as the control plane computes it.
    fn census(&self, observed: &Self::Observed) -> Census {
        let _ = observed;
        Census::default()
    }
}
