//! Files and functions that have grown past what one reading holds.

use std::ops::Range;

use super::source::Source;
use super::{Finding, is_test};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
/// A test tells a story from top to bottom and may take longer.
const TEST_FUNCTION_LINES_MAX: usize = 120;

pub(super) fn check(path: &str, source: &Source) -> Vec<Finding> {
    let test_items = source.test_items();
    file(path, source, &test_items).into_iter().chain(functions(path, source, &test_items)).collect()
}

fn file(path: &str, source: &Source, test_items: &[Range<usize>]) -> Option<Finding> {
    let test_lines: usize = test_items.iter().map(|place| source.lines_in(place)).sum();
    let lines = source.code.lines().count().saturating_sub(test_lines);
    (!is_test(path) && lines > FILE_LINES_MAX).then(|| {
        let what = format!("{lines} production lines; split it by meaning to at most {FILE_LINES_MAX}");
        Finding::new(path, 1, what)
    })
}

fn functions(path: &str, source: &Source, test_items: &[Range<usize>]) -> Vec<Finding> {
    let found = source.functions().into_iter().filter_map(|function| {
        let in_test = is_test(path) || test_items.iter().any(|item| item.contains(&function.place.start));
        let limit = if in_test { TEST_FUNCTION_LINES_MAX } else { FUNCTION_LINES_MAX };
        let lines = source.lines_in(&function.place);
        let what = format!("`{}` has {lines} lines; split it to at most {limit}", function.name);
        (lines > limit).then(|| Finding::new(path, source.line_of(function.place.start), what))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::source::Source;

    fn told(path: &str, text: &str) -> Vec<String> {
        check(path, &Source::new(text)).iter().map(ToString::to_string).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_may_fill_its_limit_and_not_more() {
        assert!(told("a/src/lib.rs", &function(70)).is_empty());
        let told = told("a/src/lib.rs", &format!("\n{}", function(71)));
        assert_eq!(told, ["a/src/lib.rs:2: `f` has 71 lines; split it to at most 70"]);
    }

    #[test]
    fn a_test_may_be_longer_than_what_it_tests() {
        let module = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(120));
        assert!(told("a/src/lib.rs", &module).is_empty());
        assert!(told("a/tests/story.rs", &function(120)).is_empty());
        assert_eq!(told("a/tests/story.rs", &function(121)).len(), 1);
    }

    #[test]
    fn only_production_lines_make_a_file_long() {
        let long = "// x\n".repeat(600);
        assert!(told("a/src/lib.rs", &format!("{long}#[cfg(test)]\nmod tests {{\n{long}}}\n")).is_empty());
        assert!(told("a/tests/story.rs", &long.repeat(2)).is_empty());
        let told = told("a/src/lib.rs", &format!("{long}\n"));
        assert_eq!(told, ["a/src/lib.rs:1: 601 production lines; split it by meaning to at most 600"]);
    }
}
