//! What an instance runs instead of what its image says.

use crate::{invalid::Invalid, invalid::Problems, limits};
use std::sync::Arc;

/// The words of a command, none of them a shell's business. Without words, the image decides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Command(Arc<[String]>);

impl Command {
    pub fn new(words: Vec<String>) -> Result<Command, Invalid> {
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        whole.require(
            words.len() <= limits::COMMAND_WORDS,
            format!("has at most {} words", limits::COMMAND_WORDS),
        );
        let bytes: usize = words.iter().map(String::len).sum();
        whole.require(bytes <= limits::COMMAND_BYTES, format!("has at most {} bytes", limits::COMMAND_BYTES));
        whole.require(
            words.first().is_none_or(|first| !first.is_empty()),
            "does not start with an empty word",
        );
        for (index, word) in words.iter().enumerate() {
            whole.index(index).require(!word.contains('\0'), "cannot have a NUL character");
        }
        problems.finish(Command(words.into()))
    }

    pub fn words(&self) -> &[String] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for Command {
    fn default() -> Command {
        Command([].into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_bounded_and_can_be_executed() {
        let check = |words: Vec<&str>| Command::new(words.into_iter().map(str::to_owned).collect());
        assert_eq!(check(vec!["serve", ""]).unwrap().words(), ["serve", ""]);
        assert!(check(vec![]).unwrap().is_empty());
        assert_eq!(check(vec!["a", "b\0"]).unwrap_err().to_string(), "[1]: cannot have a NUL character");
        assert_eq!(check(vec!["", "x"]).unwrap_err().to_string(), "does not start with an empty word");
        assert!(check(vec!["a"; 257]).is_err());
        assert!(check(vec![&"a".repeat(limits::COMMAND_BYTES + 1)]).is_err());
    }
}
