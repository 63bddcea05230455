//! Names that DNS and Kubernetes accept.

use super::{Error, check_characters, check_rule, name};
use crate::limits;

name! {
    /// What a user calls a workspace, project, app or environment in addresses: a DNS label of at most
    /// [`limits::SLUG_CHARS`] characters.
    Slug, |text| check_label("a slug", text, limits::SLUG_CHARS)
}

name! {
    /// One label of a hostname (RFC 1123).
    DnsLabel, |text| check_label("a DNS label", text, limits::LABEL_CHARS)
}

name! {
    /// The name of a Kubernetes object that we make: a DNS label that starts with a letter (RFC 1035), which
    /// every kind of object accepts, Services included.
    KubernetesName, |text| {
        let what = "a Kubernetes name";
        check_label(what, text, limits::LABEL_CHARS)?;
        let is_led_by_digit = text.starts_with(|first: char| first.is_ascii_digit());
        check_rule(what, !is_led_by_digit, "starts with a letter")
    }
}

name! {
    /// A Kubernetes namespace.
    Namespace, |text| check_label("a namespace", text, limits::LABEL_CHARS)
}

name! {
    /// The name of a pod, which somebody else gave it: DNS labels joined by dots.
    PodName, |text| {
        let what = "a pod name";
        check_characters(what, text, limits::HOSTNAME_CHARS, "a-z, 0-9, '-' and '.'", |c| is_label(c) || c == '.')?;
        let is_whole = |label: &str| !label.is_empty() && !has_hyphen_at_end(label);
        check_rule(what, text.split('.').all(is_whole), "has a letter or digit beside every dot and at both ends")
    }
}

name! {
    /// The value of a Kubernetes label. An empty one is no value: there is no label then.
    LabelValue, |text| {
        let what = "a label value";
        let allowed = "letters, digits, '-', '_' and '.'";
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        check_characters(what, text, limits::LABEL_CHARS, allowed, is_allowed)?;
        let is_mark = |c: char| !c.is_ascii_alphanumeric();
        let has_plain_ends = !text.starts_with(is_mark) && !text.ends_with(is_mark);
        check_rule(what, has_plain_ends, "starts and ends with a letter or digit")
    }
}

impl Namespace {
    /// Where all sentinels run.
    pub fn sentinel() -> Namespace {
        Namespace("sentinel".into())
    }
}

impl From<KubernetesName> for Namespace {
    fn from(name: KubernetesName) -> Namespace {
        Namespace(name.0)
    }
}

impl From<Slug> for DnsLabel {
    fn from(slug: Slug) -> DnsLabel {
        DnsLabel(slug.0)
    }
}

/// Lower-case letters, digits and hyphens, no hyphen at either end.
pub(super) fn check_label(what: &'static str, text: &str, max: usize) -> Result<(), Error> {
    check_characters(what, text, max, "a-z, 0-9 and '-'", is_label)?;
    check_rule(what, !has_hyphen_at_end(text), "starts and ends with a letter or digit")
}

fn is_label(character: char) -> bool {
    character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-'
}

fn has_hyphen_at_end(text: &str) -> bool {
    text.starts_with('-') || text.ends_with('-')
}
