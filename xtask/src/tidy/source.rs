//! Rust text taken apart without a parser: code here, comments there, both with their lines in place.

use std::ops::Range;

/// One text twice, each with the rest blanked out byte by byte, so that a place in one is a place in all.
pub(crate) struct Source {
    /// No comments, and strings emptied.
    pub(crate) code: String,
    pub(crate) comments: String,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) place: Range<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let mut code = String::with_capacity(text.len());
        let mut comments = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let (kind, length) = next_token(rest);
            let token = &rest[..length];
            code.push_str(&if kind == Kind::Code { token.to_owned() } else { blank(token) });
            comments.push_str(&if kind == Kind::Comment { token.to_owned() } else { blank(token) });
            rest = &rest[length..];
        }
        Self { code, comments }
    }

    /// Every function with a body, those inside others too.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let starts = words(&self.code, "fn").filter_map(|at| {
            let after = &self.code[at + 2..];
            let name: String = after.trim_start().chars().take_while(|letter| is_word(*letter)).collect();
            let place = at..item_end(&self.code, at)?;
            let has_body = self.code[place.clone()].ends_with('}');
            (!name.is_empty() && has_body).then_some(Function { name, place })
        });
        starts.collect()
    }

    /// Where items stand that exist in tests only, the attribute included.
    pub(crate) fn test_items(&self) -> Vec<Range<usize>> {
        let found = self.code.match_indices("#[cfg(test)]");
        found.filter_map(|(at, attribute)| Some(at..item_end(&self.code, at + attribute.len())?)).collect()
    }

    pub(crate) fn line_of(&self, place: usize) -> usize {
        self.code[..place].matches('\n').count() + 1
    }

    pub(crate) fn lines_in(&self, place: &Range<usize>) -> usize {
        self.code[place.clone()].matches('\n').count() + 1
    }
}

/// The kind and length of what the text begins with. Words are taken whole, so that the last letter of one
/// is never read as the mark of a raw string.
fn next_token(text: &str) -> (Kind, usize) {
    if text.starts_with("//") {
        return (Kind::Comment, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return (Kind::Comment, block_comment(text));
    }
    if text.starts_with('"') {
        return (Kind::Literal, closing(text, '"'));
    }
    if text.starts_with('\'') {
        return character(text);
    }
    if let Some(length) = raw_string(text) {
        return (Kind::Literal, length);
    }
    let word = text.find(|letter| !is_word(letter)).unwrap_or(text.len());
    let letter = text.chars().next().map_or(0, char::len_utf8);
    (Kind::Code, word.max(letter))
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a literal that begins with its quote and may contain escapes.
fn closing(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if letter == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A character, or the quote of a lifetime.
fn character(text: &str) -> (Kind, usize) {
    let mut letters = text.chars().skip(1);
    match (letters.next(), letters.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => (Kind::Literal, closing(text, '\'')),
        _ => (Kind::Code, 1),
    }
}

fn raw_string(text: &str) -> Option<usize> {
    let marks = text.strip_prefix("br").or(text.strip_prefix("cr")).or(text.strip_prefix('r'))?;
    let body = marks.trim_start_matches('#');
    let end = format!("\"{}", "#".repeat(marks.len() - body.len()));
    let body = body.strip_prefix('"')?;
    let length = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(text.len() - body.len() + length)
}

fn blank(token: &str) -> String {
    token.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

pub(crate) fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Where a word stands by itself.
pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Where the item that begins here ends: behind its first block, or its semicolon when there is none.
pub(crate) fn item_end(code: &str, start: usize) -> Option<usize> {
    let mut braces = 0;
    let mut others = 0;
    for (at, letter) in code[start..].char_indices() {
        match letter {
            '(' | '[' => others += 1,
            ')' | ']' => others -= 1,
            '{' => braces += 1,
            '}' => braces -= 1,
            _ => {}
        }
        // A block inside brackets is an expression of the signature, or an attribute's.
        let ends = matches!(letter, '}' | ';') && braces == 0;
        if ends && others == 0 {
            return Some(start + at + 1);
        }
        if braces < 0 || others < 0 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::Source;

    fn names(text: &str) -> Vec<String> {
        Source::new(text).functions().into_iter().map(|function| function.name).collect()
    }

    #[test]
    fn comments_and_code_are_told_apart_in_place() {
        let text = "let a = \"// no\"; // yes /* still */\nlet b = '\"'; /* one /* two */ */ let c: &'a str = r#\"\"x\"#;";
        let source = Source::new(text);
        assert_eq!(source.code.len(), text.len());
        assert_eq!(source.comments.len(), text.len());
        assert_eq!(source.comments.split_whitespace().collect::<String>(), "//yes/*still*//*one/*two*/*/");
        let code: String = source.code.split_whitespace().collect();
        assert_eq!(code, "leta=;letb=;letc:&'astr=;");
    }

    #[test]
    fn functions_are_those_with_a_body() {
        let text = "trait T { fn no(&self); fn yes(&self) -> [u8; 2] { [0; 2] } }\nfn outer(f: fn(u8)) { fn inner() {} }";
        assert_eq!(names(text), ["yes", "outer", "inner"]);
        assert!(names("// fn comment() {}\nconst S: &str = \"fn text() {}\";").is_empty());
    }

    #[test]
    fn a_function_is_as_long_as_its_braces_say() {
        let source = Source::new("fn a() {\n    let brace = '{';\n    let text = \"}}}\";\n}\nfn b() {}\n");
        let lengths: Vec<_> =
            source.functions().iter().map(|function| source.lines_in(&function.place)).collect();
        assert_eq!(lengths, [4, 1]);
    }

    #[test]
    fn what_exists_in_tests_only_is_found_whole() {
        let text =
            "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn b() {}\n}\n#[cfg(test)]\nmod more;\n";
        let source = Source::new(text);
        let items: Vec<_> = source.test_items().iter().map(|place| source.lines_in(place)).collect();
        assert_eq!(items, [5, 2]);
    }
}
