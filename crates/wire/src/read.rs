//! Small readers for the fields of a message: each gives its value, or notes what is wrong and gives none.

use std::{fmt::Display, str::FromStr};

use buffa::{EnumValue, Enumeration};
use model::{
    cluster::{Epoch, ListHash, Sequence},
    id::HistoryId,
    invalid::Field,
    kind::Kind,
    time::Millis,
    watch::Version,
};

use crate::proto;

/// What was read, or nothing because of a problem that was noted.
pub(crate) type Read<T> = Option<T>;

/// The largest number that can be stored.
const MAX: u64 = Version::MAX.get();

/// A text that may be missing: an empty one is none.
pub(crate) fn some<T: FromStr<Err: Display>>(mut field: Field<'_>, text: &str) -> Read<Option<T>> {
    if text.is_empty() { Some(None) } else { field.parse(text).map(Some) }
}

/// A text that a message has or does not have; an empty one is none too.
pub(crate) fn optional<T: FromStr<Err: Display>>(field: Field<'_>, text: Option<&str>) -> Read<Option<T>> {
    some(field, text.unwrap_or_default())
}

/// Bytes that are not too many.
pub(crate) fn bytes_at_most(mut field: Field<'_>, bytes: &[u8], max: usize) -> bool {
    let found = bytes.len();
    field.require(found <= max, format_args!("has at most {max} bytes, this one has {found}"))
}

/// Every element of a list, if it is not too long; of one that cannot be read there is at least a problem.
pub(crate) fn list<T, N, L: FromIterator<N>>(
    mut field: Field<'_>,
    list: &[T],
    max: usize,
    mut read: impl FnMut(Field<'_>, &T) -> Read<N>,
) -> Option<L> {
    let found = list.len();
    if !field.require(found <= max, format_args!("has at most {max} elements, this one has {found}")) {
        return None;
    }
    let nouns: Vec<Option<N>> =
        list.iter().enumerate().map(|(index, element)| read(field.index(index), element)).collect();
    nouns.into_iter().collect()
}

/// A number that can be stored.
pub(crate) fn count(mut field: Field<'_>, number: u64) -> Read<u64> {
    field.require(number <= MAX, format_args!("is a whole number from 0 to {MAX}")).then_some(number)
}

/// A number that is not below zero.
pub(crate) fn natural(mut field: Field<'_>, number: i64) -> Read<u64> {
    field.keep(u64::try_from(number).map_err(|_| format!("is {number}, and cannot be below 0")))
}

pub(crate) fn millis(field: Field<'_>, number: i64) -> Read<Millis> {
    natural(field, number).map(|_| Millis(number))
}

pub(crate) fn version(field: Field<'_>, number: u64) -> Read<Version> {
    count(field, number).map(Version::new)
}

/// A version that something has: not the one before the first.
pub(crate) fn some_version(mut field: Field<'_>, number: u64) -> Read<Version> {
    let is_some = field.require(number > 0, "must be at least 1");
    version(field, number).filter(|_| is_some)
}

/// A term; 0 is a client that knows of none.
pub(crate) fn epoch(field: Field<'_>, number: u64) -> Read<Option<Epoch>> {
    count(field, number).map(|epoch| (epoch > 0).then_some(Epoch(epoch)))
}

pub(crate) fn sequence(field: Field<'_>, number: u64) -> Read<Sequence> {
    count(field, number).map(Sequence)
}

pub(crate) fn history(field: Field<'_>, text: &str) -> Read<Option<HistoryId>> {
    some(field, text)
}

/// A value of an enum that this schema has.
pub(crate) fn known<E: Enumeration>(mut field: Field<'_>, value: EnumValue<E>) -> Read<E> {
    let known = value.as_known();
    if known.is_none() {
        field.add(format_args!("has no value {}", value.to_i32()));
    }
    known
}

pub(crate) fn kind(mut field: Field<'_>, value: EnumValue<proto::Kind>) -> Read<Kind> {
    let kind = optional_kind(field.field(""), value)?;
    field.required(kind)
}

/// A kind that may be left out.
pub(crate) fn optional_kind(field: Field<'_>, value: EnumValue<proto::Kind>) -> Read<Option<Kind>> {
    known(field, value).map(some_kind)
}

fn some_kind(kind: proto::Kind) -> Option<Kind> {
    match kind {
        proto::Kind::KIND_UNSPECIFIED => None,
        proto::Kind::KIND_DEPLOYMENT => Some(Kind::Deployment),
        proto::Kind::KIND_SENTINEL => Some(Kind::Sentinel),
        proto::Kind::KIND_CILIUM_NETWORK_POLICY => Some(Kind::NetworkPolicy),
    }
}

impl From<Kind> for proto::Kind {
    fn from(kind: Kind) -> proto::Kind {
        match kind {
            Kind::Deployment => proto::Kind::KIND_DEPLOYMENT,
            Kind::Sentinel => proto::Kind::KIND_SENTINEL,
            Kind::NetworkPolicy => proto::Kind::KIND_CILIUM_NETWORK_POLICY,
        }
    }
}

pub(crate) fn list_hash(mut field: Field<'_>, bytes: &[u8]) -> Read<ListHash> {
    let found = bytes.len();
    field.keep(bytes.try_into().map(ListHash).map_err(|_| format!("has 32 bytes, this one has {found}")))
}

/// What a field without a value is sent as.
pub(crate) fn text<T: ToString>(value: Option<&T>) -> String {
    value.map(T::to_string).unwrap_or_default()
}
