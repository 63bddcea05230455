//! What commands print: tables, JSON, YAML and names; in colour only on a terminal.

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;
use serde_json::Value;

use super::environment::Environment;

/// How data is printed.
#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum, Debug)]
pub(crate) enum Format {
    #[default]
    Table,
    /// A table with more columns
    Wide,
    Json,
    Yaml,
    /// One id in a line
    Name,
}

/// Whether words have colours.
#[derive(Clone, Copy)]
pub(crate) struct Paint {
    data: bool,
    talk: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    Bold,
    Faint,
}

impl Paint {
    /// Colours only where somebody looks, and never against `NO_COLOR`.
    pub(crate) fn of(environment: &Environment) -> Paint {
        let wanted = environment.get("NO_COLOR").is_none() && environment.get("TERM") != Some("dumb");
        Paint { data: wanted && io::stdout().is_terminal(), talk: wanted && io::stderr().is_terminal() }
    }

    #[cfg(test)]
    pub(crate) fn never() -> Paint {
        Paint { data: false, talk: false }
    }

    /// The same where what is said goes to standard output, as data.
    pub(crate) fn printed(self) -> Paint {
        Paint { talk: self.data, ..self }
    }

    /// A word of what is printed.
    pub(crate) fn data(self, colour: Colour, word: &str) -> String {
        colour.over(word, self.data)
    }

    /// A word of what is said beside it.
    pub(crate) fn talk(self, colour: Colour, word: &str) -> String {
        colour.over(word, self.talk)
    }
}

impl Colour {
    fn over(self, word: &str, wanted: bool) -> String {
        let code = match self {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Bold => 1,
            Colour::Faint => 2,
        };
        if wanted { format!("\u{1b}[{code}m{word}\u{1b}[0m") } else { word.to_owned() }
    }
}

/// Prints data. Whoever closed the pipe has seen enough.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}

/// Says something beside the data.
pub(crate) fn say(text: &str) {
    // That nobody can hear it is no reason to fail.
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// Asks before something that cannot be undone; `--yes` is the answer already.
pub(crate) fn confirm(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    anyhow::ensure!(io::stdin().is_terminal(), "{question} There is nobody to ask: say --yes");
    write!(io::stderr().lock(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    let agreed = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    anyhow::ensure!(agreed, "nothing was done");
    Ok(())
}

pub(crate) fn json(value: &Value) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}

pub(crate) fn yaml(value: &Value) -> anyhow::Result<String> {
    let mut text = serde_saphyr::to_string(value)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Rows below their titles, each column as wide as it has to be.
pub(crate) fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let titles: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
    let widths: Vec<usize> = (0..titles.len())
        .map(|column| rows.iter().chain([&titles]).map(|row| width(&row[column])).max().unwrap_or_default())
        .collect();
    let line = |row: &Vec<String>| {
        let cells =
            row.iter().zip(&widths).map(|(cell, wide)| format!("{cell}{}", " ".repeat(wide - width(cell))));
        let cells: Vec<String> = cells.collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    std::iter::once(&titles).chain(rows).map(line).collect()
}

/// The characters of a text that are seen.
fn width(text: &str) -> usize {
    let mut seen = 0;
    let mut in_colour = false;
    for character in text.chars() {
        match character {
            '\u{1b}' => in_colour = true,
            'm' if in_colour => in_colour = false,
            _ if in_colour => {}
            _ => seen += 1,
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_stand_below_their_titles_whatever_the_colours() {
        let green = Colour::Green.over("ready", true);
        let rows = vec![
            vec!["a".to_owned(), green.clone(), "x".to_owned()],
            vec!["long".into(), "no".into(), "y".into()],
        ];
        let expected = format!("ID    STATUS  Z\na     {green}   x\nlong  no      y\n");
        assert_eq!(table(&["ID", "STATUS", "Z"], &rows), expected);
        assert_eq!(table(&["ID"], &[]), "ID\n");
    }

    #[test]
    fn yaml_reads_back_as_what_it_was() {
        let value = json!({ "a": [1, "2", null, true], "b": { "c": "x: y" } });
        let text = yaml(&value).unwrap();
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, value, "{text}");
    }
}
