//! The commands of a page, with what it shows of their output.

/// One command, and the lines that are shown below it.
pub struct Shown {
    pub text: String,
    lines: Vec<String>,
}

/// Every command in the blocks of a page that are a console, in order.
pub fn commands(page: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let mut in_console = false;
    let mut in_document = false;
    for line in page.lines() {
        match line {
            "```console" => in_console = true,
            line if line.starts_with("```") => in_console = false,
            _ if !in_console => {}
            line if in_document => {
                let last = found.last_mut().expect("it began with a command");
                last.text.push('\n');
                last.text.push_str(line);
                in_document = line != "END";
            }
            line => match line.strip_prefix("$ ") {
                Some(text) => {
                    in_document = text.contains("<<'END'");
                    found.push(Shown { text: text.to_owned(), lines: Vec::new() });
                }
                None => found.last_mut().expect("a block begins with a command").lines.push(line.to_owned()),
            },
        }
    }
    found
}

impl Shown {
    /// The page is right about what the command printed.
    pub fn check(&self, printed: &str) {
        if let Some(line) = self.differs(printed) {
            panic!("$ {}\nthe page shows {line:?}, which is not in:\n{printed}", self.text);
        }
    }

    /// The first line that is shown and was not printed behind those before it. Between them others may stand.
    pub fn differs(&self, printed: &str) -> Option<&str> {
        let plain = without_colours(printed);
        let mut printed = plain.lines();
        let is_missing = |line: &&String| !printed.any(|one| fits(line.trim(), one.trim()));
        self.lines.iter().find(is_missing).map(String::as_str)
    }
}

/// Whether a line is the one that is shown, whatever stands where the page has an ellipsis.
fn fits(shown: &str, line: &str) -> bool {
    let mut parts = shown.split('…').map(str::trim);
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let is_open = shown.ends_with('…');
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    // Behind the last part nothing more may stand, unless it says so.
    is_open || rest.is_empty() || last.is_some_and(|last| !last.is_empty() && line.ends_with(last))
}

fn without_colours(text: &str) -> String {
    let mut plain = String::new();
    let mut in_colour = false;
    for character in text.chars() {
        match character {
            '\u{1b}' => in_colour = true,
            'm' if in_colour => in_colour = false,
            _ if in_colour => {}
            other => plain.push(other),
        }
    }
    plain
}
