//! Names of environment variables.

use super::{check_characters, check_rule, name};
use crate::limits;

name! {
    /// The name of an environment variable that every shell can read.
    EnvName, |text| {
        let what = "a variable name";
        let allowed = "letters, digits and '_'";
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        check_characters(what, text, limits::VARIABLE_NAME_CHARS, allowed, is_allowed)?;
        let is_led_by_digit = text.starts_with(|first: char| first.is_ascii_digit());
        check_rule(what, !is_led_by_digit, "does not start with a digit")
    }
}

impl EnvName {
    /// Whether we set it ourselves in every instance, so that a user's value would be lost.
    pub fn is_reserved(&self) -> bool {
        let name = self.as_str();
        name == "PORT" || ["UNKEY_", "KUBERNETES_"].iter().any(|prefix| name.starts_with(prefix))
    }
}
