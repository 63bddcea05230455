//! Tables for people: columns as wide as their widest cell, numbers to the right.

use std::time::Duration;

/// How a column is set.
#[derive(Clone, Copy)]
pub(crate) enum Column {
    Left(&'static str),
    Right(&'static str),
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Left(title) | Self::Right(title) => title,
        }
    }
}

/// Every row must have as many cells as there are columns.
pub(crate) fn render<const N: usize>(columns: [Column; N], rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|at| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([columns[at].title().chars().count()]).max().unwrap_or(0)
    });
    let line = |cells: [&str; N]| {
        let set = cells.iter().zip(columns).zip(widths).map(|((cell, column), width)| match column {
            Column::Left(_) => format!("{cell:<width$}"),
            Column::Right(_) => format!("{cell:>width$}"),
        });
        format!("{}\n", set.collect::<Vec<_>>().join("  ").trim_end())
    };
    let rule = widths.map(|width| "-".repeat(width));
    let head = line(columns.map(Column::title)) + &line(rule.each_ref().map(String::as_str));
    rows.iter().fold(head, |table, row| table + &line(row.each_ref().map(String::as_str)))
}

/// Minutes are what a person plans with.
pub(crate) fn minutes(time: Duration) -> String {
    format!("{:.2} min", time.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::{Column, minutes, render};
    use std::time::Duration;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a".into(), "10".into()], ["long name".into(), "7".into()]];
        let table = render([Column::Left("suite"), Column::Right("passed")], &rows);
        assert_eq!(table, "suite      passed\n---------  ------\na              10\nlong name       7\n");
    }

    #[test]
    fn time_is_told_in_minutes() {
        assert_eq!(minutes(Duration::from_secs(93)), "1.55 min");
    }
}
