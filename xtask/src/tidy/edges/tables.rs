//! Reads the two marked tables of ARCHITECTURE.md.

use std::collections::BTreeMap;

pub(super) struct Tables {
    pub(super) crates: BTreeMap<String, Crate>,
    /// Where the table of crates begins.
    pub(super) crates_line: usize,
    pub(super) outside: BTreeMap<String, Outside>,
}

/// One of ours and what of ours it may use.
pub(super) struct Crate {
    pub(super) line: usize,
    pub(super) may_use: Allowed,
    pub(super) is_planned: bool,
}

/// One of the world's and who may name it.
pub(super) struct Outside {
    pub(super) named_by: Allowed,
    pub(super) in_tests: Allowed,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    All,
    Only(Vec<String>),
}

/// A line and what is wrong there.
type Problem = (usize, String);

/// A line and its cells.
type Row = (usize, [String; 3]);

const END: &str = "<!-- tidy:end -->";

pub(super) fn parse(text: &str) -> Result<Tables, Problem> {
    let (crates_line, rows) = rows(text, "<!-- tidy:edges -->")?;
    let crates = rows.into_iter().map(|(line, [name, may_use, state])| {
        let is_planned = match state.as_str() {
            "" => false,
            "planned" => true,
            other => return Err((line, format!("`{other}` is no state; leave it empty or write `planned`"))),
        };
        Ok((name, Crate { line, may_use: Allowed::parse(&may_use), is_planned }))
    });
    let crates = crates.collect::<Result<_, _>>()?;
    let outside =
        self::rows(text, "<!-- tidy:outside -->")?.1.into_iter().map(|(_, [names, by, in_tests])| {
            let row = || Outside { named_by: Allowed::parse(&by), in_tests: Allowed::parse(&in_tests) };
            names.split(',').map(|name| (name.trim().to_owned(), row())).collect::<Vec<_>>()
        });
    Ok(Tables { crates, crates_line, outside: outside.flatten().collect() })
}

/// The rows of a table of three columns behind a marker, with their lines.
fn rows(text: &str, marker: &str) -> Result<(usize, Vec<Row>), Problem> {
    let lines = || text.lines().zip(1..).map(|(line, at)| (at, line.trim()));
    let (start, _) = lines()
        .find(|(_, line)| *line == marker)
        .ok_or_else(|| (1, format!("has no table marked {marker}")))?;
    let inside = lines().skip(start).take_while(|(_, line)| *line != END);
    // The head and its rule are for people.
    let rows = inside.filter(|(_, line)| line.starts_with('|')).skip(2).map(|(at, line)| {
        let cells = line.trim_matches('|').split('|').map(|cell| cell.replace('`', "").trim().to_owned());
        let cells = <[String; 3]>::try_from(cells.collect::<Vec<_>>());
        cells.map(|cells| (at, cells)).map_err(|cells| (at, format!("has {} columns, not 3", cells.len())))
    });
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    if rows.is_empty() || !lines().skip(start).any(|(_, line)| line == END) {
        return Err((start, format!("needs a table below it, and {END} below that")));
    }
    Ok((start, rows))
}

impl Allowed {
    /// `all`, names with commas between, or a dash for none.
    fn parse(cell: &str) -> Self {
        match cell {
            "all" => Self::All,
            "–" | "-" | "" => Self::Only(Vec::new()),
            names => Self::Only(names.split(',').map(|name| name.trim().to_owned()).collect()),
        }
    }

    pub(super) fn allows(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|other| other == name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Allowed, parse};

    fn problem(text: &str) -> (usize, String) {
        parse(text).err().expect("is malformed")
    }

    #[test]
    fn a_cell_names_all_some_or_none() {
        assert_eq!(Allowed::parse("all"), Allowed::All);
        assert_eq!(Allowed::parse("–"), Allowed::Only(vec![]));
        assert_eq!(Allowed::parse("model, wire"), Allowed::Only(vec!["model".into(), "wire".into()]));
    }

    #[test]
    fn a_table_of_another_form_is_refused_where_it_departs() {
        assert_eq!(problem("text").0, 1);
        let head = "x\n<!-- tidy:edges -->\n| a | b | c |\n| - | - | - |\n";
        assert_eq!(problem(head).0, 2);
        assert_eq!(problem(&format!("{head}| a | b |\n<!-- tidy:end -->\n")).0, 5);
        assert!(problem(&format!("{head}| a | – | soon |\n<!-- tidy:end -->\n")).1.contains("no state"));
    }
}
