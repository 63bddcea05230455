//! Just enough Markdown: prose without code, code spans, links and headings.

use std::collections::BTreeMap;

/// The lines outside fenced code, with their numbers.
pub(super) fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fence: Option<&str> = None;
    let lines = text.lines().zip(1..).filter_map(|(line, at)| {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, None) => return Some((at, line)),
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
        }
        None
    });
    lines.collect()
}

/// A line as what is written as code, and the rest.
pub(super) fn split_code(line: &str) -> (Vec<&str>, String) {
    let mut spans = Vec::new();
    let mut text = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let after = rest[start..].trim_start_matches('`');
        let ticks = &rest[start..rest.len() - after.len()];
        text.push_str(&rest[..start]);
        let Some(end) = after.find(ticks) else {
            rest = after;
            break;
        };
        spans.push(&after[..end]);
        rest = after[end..].trim_start_matches('`');
    }
    text.push_str(rest);
    (spans, text)
}

/// The targets of links in a line that has no code in it: `[text](target "title")` and `[name]: target`.
pub(super) fn links(line: &str) -> Vec<String> {
    let inline = line.match_indices("](").filter_map(|(at, mark)| {
        let after = &line[at + mark.len()..];
        let mut depth = 1;
        let end = after.char_indices().find_map(|(at, letter)| {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            (depth == 0).then_some(at)
        })?;
        target(&after[..end])
    });
    let definition = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let definition = definition.filter(|(name, _)| !name.contains(']')).and_then(|(_, rest)| target(rest));
    inline.chain(definition).collect()
}

fn target(text: &str) -> Option<String> {
    let text = text.trim();
    let target = match text.strip_prefix('<') {
        Some(rest) => rest.split('>').next(),
        None => text.split_whitespace().next(),
    };
    target.map(|target| target.replace("%20", " "))
}

/// The anchors of a page's headings, as GitHub makes them.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).into_iter().filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        (1..=6).contains(&level).then(|| title.strip_prefix(' ')).flatten()
    });
    let anchors = headings.map(|title| {
        let slug = slug(title);
        let count = seen.entry(slug.clone()).or_default();
        *count += 1;
        if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
    });
    anchors.collect()
}

fn slug(title: &str) -> String {
    // Of a link in a heading only its text counts.
    let mut title = title.trim().to_lowercase();
    while let Some((start, end)) = title.find("](").and_then(|at| Some((at, at + title[at..].find(')')?))) {
        title.replace_range(start..=end, "");
    }
    let kept = title.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::{anchors, links, prose, split_code};

    #[test]
    fn fenced_code_is_no_prose() {
        let text = "one\n```rust\n[no](no.md)\n~~~\n```\ntwo";
        assert_eq!(prose(text), [(1, "one"), (6, "two")]);
    }

    #[test]
    fn code_is_told_from_text() {
        let (spans, text) = split_code("see `crates/a` and ``x ` y`` or ` alone");
        assert_eq!(spans, ["crates/a", "x ` y"]);
        assert_eq!(text, "see  and  or  alone");
    }

    #[test]
    fn links_are_found_in_every_form() {
        assert_eq!(
            links("[a](b.md) ![c](<d e.png> \"t\") [f](g_(h).md#i)"),
            ["b.md", "d e.png", "g_(h).md#i"]
        );
        assert_eq!(links("[name]: docs/x.md \"title\""), ["docs/x.md"]);
        assert!(links("a [word] (aside)").is_empty());
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# Way of a *change*: `INIT`, and so on\n## Way\n## Way\n#hash\n### [Link](x.md) & more\n";
        assert_eq!(anchors(text), ["way-of-a-change-init-and-so-on", "way", "way-1", "link--more"]);
    }
}
