//! Every Rust file opens with a sentence that says what it is for.

use super::Finding;

pub(super) fn check(path: &str, text: &str) -> Option<Finding> {
    let first = text.lines().next().unwrap_or_default();
    let sentence = first.strip_prefix("//!").map_or("", str::trim);
    sentence.is_empty().then(|| {
        Finding::new(path, 1, "does not open with `//!`; begin with one sentence that says what it is for")
    })
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_file_opens_with_a_sentence() {
        assert_eq!(check("a.rs", "//! Counts.\n\nfn a() {}\n"), None);
        assert!(check("a.rs", "fn a() {}\n").is_some());
        assert!(check("a.rs", "//!\nfn a() {}\n").is_some());
        assert!(check("a.rs", "").is_some());
    }
}
