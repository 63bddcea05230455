//! References to container images.

use super::{Error, check_characters, shown};
use crate::limits;
use std::{ops::Range, str::FromStr, sync::Arc};

/// A container image as a registry's client names it: `[domain/]path[:tag][@digest]`.
///
/// It is kept as it was written: which domain and tag are meant by none is the container runtime's business.
#[derive(Clone)]
pub struct ImageRef(Arc<str>, Parts);

/// Where the parts lie in the text.
#[derive(Clone)]
struct Parts {
    domain: Option<Range<usize>>,
    path: Range<usize>,
    tag: Option<Range<usize>>,
    digest: Option<Range<usize>>,
}

const WHAT: &str = "an image reference";

impl ImageRef {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The registry's host and port, if the reference names one.
    pub fn domain(&self) -> Option<&str> {
        self.1.domain.clone().map(|range| &self.0[range])
    }

    /// The repository in its registry.
    pub fn path(&self) -> &str {
        &self.0[self.1.path.clone()]
    }

    /// Domain and path: the reference without tag and digest.
    pub fn name(&self) -> &str {
        &self.0[..self.1.path.end]
    }

    pub fn tag(&self) -> Option<&str> {
        self.1.tag.clone().map(|range| &self.0[range])
    }

    /// The digest with its algorithm: `sha256:…`.
    pub fn digest(&self) -> Option<&str> {
        self.1.digest.clone().map(|range| &self.0[range])
    }
}

impl FromStr for ImageRef {
    type Err = Error;

    fn from_str(text: &str) -> Result<ImageRef, Error> {
        let is_graphic = |c: char| c.is_ascii_graphic();
        let max = limits::IMAGE_NAME_CHARS + limits::IMAGE_TAG_CHARS + 140;
        check_characters(WHAT, text, max, "letters, digits and marks", is_graphic)?;

        let (rest, digest) = split_tail(text, text.find('@'));
        // A colon behind the last slash starts the tag; any other belongs to the domain's port.
        let slash = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = split_tail(rest, rest[slash..].find(':').map(|colon| slash + colon));
        let domain = name.find('/').filter(|slash| is_domain(&name[..*slash])).map(|slash| 0..slash);
        let path = domain.as_ref().map_or(0, |domain| domain.end + 1)..name.len();

        if name.len() > limits::IMAGE_NAME_CHARS {
            return Err(rule("has a name of at most 255 characters"));
        }
        if let Some(domain) = &domain {
            check_domain(&name[domain.clone()])?;
        }
        check_path(&name[path.clone()])?;
        if let Some(tag) = &tag {
            check_tag(&text[tag.clone()])?;
        }
        if let Some(digest) = &digest {
            check_digest(&text[digest.clone()])?;
        }
        Ok(ImageRef(text.into(), Parts { domain, path, tag, digest }))
    }
}

shown!(ImageRef);

impl PartialEq for ImageRef {
    fn eq(&self, other: &ImageRef) -> bool {
        self.0 == other.0
    }
}

impl Eq for ImageRef {}

impl PartialOrd for ImageRef {
    fn partial_cmp(&self, other: &ImageRef) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ImageRef {
    fn cmp(&self, other: &ImageRef) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl std::hash::Hash for ImageRef {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// What lies before the mark, and where what follows it lies.
fn split_tail(text: &str, mark: Option<usize>) -> (&str, Option<Range<usize>>) {
    match mark {
        Some(mark) => (&text[..mark], Some(mark + 1..text.len())),
        None => (text, None),
    }
}

/// A first part is a domain if no path could look like it.
fn is_domain(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn check_domain(domain: &str) -> Result<(), Error> {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (domain, None),
    };
    if let Some(port) = port {
        port.parse::<super::Port>().map_err(|_| rule("has a port from 1 to 65535 in its domain"))?;
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(is_label),
    };
    if is_host { Ok(()) } else { Err(rule("has a hostname or an address for its domain")) }
}

/// Runs of lower-case letters and digits, joined by `.`, `_`, `__` or hyphens, between slashes.
fn check_path(path: &str) -> Result<(), Error> {
    if path.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(rule("has no upper-case letters in its path"));
    }
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    for part in path.split('/') {
        if part.is_empty() {
            return Err(rule("has a name between any two slashes, and at both ends"));
        }
        let is_joint =
            |joint: &str| matches!(joint, "." | "_" | "__") || joint.bytes().all(|byte| byte == b'-');
        let joints =
            part.split(|c: char| c.is_ascii() && is_plain(c as u8)).filter(|joint| !joint.is_empty());
        let has_plain_ends =
            part.bytes().next().is_some_and(is_plain) && part.bytes().last().is_some_and(is_plain);
        if !has_plain_ends || !joints.into_iter().all(is_joint) {
            return Err(rule("has a path of a-z and 0-9, joined by one of '.', '_', '__' or '-'"));
        }
    }
    Ok(())
}

fn check_tag(tag: &str) -> Result<(), Error> {
    if tag.is_empty() {
        return Err(rule("has a tag behind its last colon"));
    }
    if tag.len() > limits::IMAGE_TAG_CHARS {
        return Err(rule("has a tag of at most 128 characters"));
    }
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_tag = |byte: u8| is_word(byte) || byte == b'.' || byte == b'-';
    if !tag.bytes().next().is_some_and(is_word) || !tag.bytes().all(is_tag) {
        return Err(rule(
            "has a tag of letters, digits, '_', '.' and '-' that starts with none of the last two",
        ));
    }
    Ok(())
}

fn check_digest(digest: &str) -> Result<(), Error> {
    let length = match digest.split_once(':') {
        Some(("sha256", hex)) => (hex, 64),
        Some(("sha512", hex)) => (hex, 128),
        _ => return Err(rule("has a digest that starts with sha256: or sha512:")),
    };
    let (hex, expected) = length;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if hex.len() != expected || !hex.bytes().all(is_hex) {
        return Err(rule("has a digest of 64 (sha256) or 128 (sha512) lower-case hex digits"));
    }
    Ok(())
}

fn rule(rule: &'static str) -> Error {
    Error::Rule { what: WHAT, rule }
}
