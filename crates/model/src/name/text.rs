//! Texts that people and other programs write: bounded, and printable.

use super::{Error, check_characters, check_rule, name, shown};
use crate::limits;
use std::{convert::Infallible, str::FromStr, sync::Arc};

name! {
    /// One line of free text: a title, an author, a repository.
    Line, |text| check_line("a line of text", text)
}

name! {
    /// A git branch, as its user named it.
    Branch, |text| check_line("a branch", text)
}

name! {
    /// The hash of a git commit, whole.
    GitSha, |text| {
        let what = "a commit hash";
        check_characters(what, text, 64, "0-9 and a-f", |c| c.is_ascii_digit() || ('a'..='f').contains(&c))?;
        match text.len() {
            40 | 64 => Ok(()),
            _ => Err(Error::Rule { what, rule: "has 40 or 64 characters" }),
        }
    }
}

/// What somebody else had to say, cut to what we keep. It cannot be refused: a report must not fail over its prose.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message(Arc<str>);

shown!(Message);

impl Message {
    /// As much of the text as we keep, cut between characters. Control characters are replaced: a terminal would
    /// obey them, and a NUL cannot be stored. Line breaks and tabs stay.
    pub fn cut(text: &str) -> Message {
        let kept = &text[..text.floor_char_boundary(limits::MESSAGE_BYTES)];
        let is_kept = |c: char| !c.is_control() || c == '\n' || c == '\t';
        if kept.chars().all(is_kept) {
            return Message(kept.into());
        }
        // One byte for one or two: the text does not grow beyond its bound.
        Message(kept.chars().map(|c| if is_kept(c) { c } else { ' ' }).collect::<String>().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Message {
        Message::cut(text)
    }
}

impl FromStr for Message {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Message, Infallible> {
        Ok(Message::cut(text))
    }
}

fn check_line(what: &'static str, text: &str) -> Result<(), Error> {
    check_characters(what, text, limits::LINE_CHARS, "printable characters", |c| !c.is_control())?;
    check_rule(what, text.trim() == text, "neither starts nor ends with a space")
}
