//! Paths that exist on one person's machine only.

use super::Finding;

/// In halves, so that this file does not find itself.
const PLACES: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let findings = text.lines().enumerate().flat_map(|(at, line)| {
        PLACES.iter().filter(|place| names(line, place)).map(move |place| {
            let what =
                format!("a path on somebody's machine (`{place}…`); write it from the repository's root");
            Finding::new(path, at + 1, what)
        })
    });
    findings.collect()
}

/// The place begins a path there; behind a letter it is the middle of another.
fn names(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "._-}*~".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::{PLACES, check};

    #[test]
    fn a_path_on_a_machine_is_found_wherever_it_is_written() {
        for place in PLACES {
            assert_eq!(check("a.md", &format!("fine\nsee `{place}me/x`\n"))[0].line, 2);
            assert_eq!(check("a.toml", &format!("path = \"{place}x\"")).len(), 1);
        }
    }

    #[test]
    fn the_middle_of_another_path_is_not() {
        for place in PLACES {
            assert!(check("a.md", &format!("crates{place}x and https://x.org{place}")).is_empty());
        }
    }
}
