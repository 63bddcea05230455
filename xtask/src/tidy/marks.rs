//! Reminders that nobody will be reminded by, and debugging left behind.

use super::Finding;
use super::source::{Source, words};

const REMINDERS: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// Prose may speak of the words; everything else that is written by hand uses them.
const PROSE: [&str; 3] = [".md", ".lock", ".patch"];

pub(super) fn check_rust(path: &str, source: &Source) -> Vec<Finding> {
    let debugging = words(&source.code, "dbg").filter(|at| source.code[at + 3..].starts_with("!("));
    let debugging =
        debugging.map(|at| Finding::new(path, source.line_of(at), "`dbg!` left behind; remove it"));
    reminders(path, &source.comments).into_iter().chain(debugging).collect()
}

pub(super) fn check_other(path: &str, text: &str) -> Vec<Finding> {
    if PROSE.iter().any(|end| path.ends_with(end)) { Vec::new() } else { reminders(path, text) }
}

fn reminders(path: &str, text: &str) -> Vec<Finding> {
    let bare = REMINDERS.iter().flat_map(|word| {
        let places = words(text, word).filter(|at| !has_issue(&text[at + word.len()..]));
        places.map(move |at| {
            let line = text[..at].matches('\n').count() + 1;
            Finding::new(path, line, format!("{word} without an issue; write {word}(#12), or do it now"))
        })
    });
    bare.collect()
}

fn has_issue(after: &str) -> bool {
    let number = after.strip_prefix("(#").and_then(|rest| rest.split_once(')')).map(|(number, _)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{check_other, check_rust};
    use crate::tidy::source::Source;

    fn lines(text: &str) -> Vec<usize> {
        check_rust("a.rs", &Source::new(text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_reminder_needs_an_issue() {
        assert_eq!(lines("// TODO: later\n// TODO(#12): later\n// FIXME(me)\nfn a() {} // XXX\n"), [1, 3, 4]);
    }

    #[test]
    fn a_reminder_is_a_word_in_a_comment() {
        assert!(lines("const A: &str = \"TODO\"; // mktemp XXXXXX\n").is_empty());
    }

    #[test]
    fn debugging_is_found_in_code_alone() {
        assert_eq!(lines("// dbg!(x)\nlet a = dbg!(x);\nlet b = \"dbg!(x)\";\n"), [2]);
    }

    #[test]
    fn prose_may_speak_of_reminders() {
        assert!(check_other("docs/a.md", "No TODO without a number.").is_empty());
        assert_eq!(check_other("Cargo.toml", "# TODO: pin").len(), 1);
    }
}
