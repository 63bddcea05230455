//! Every problem of an input at once, each with the field it is about.
//!
//! ```
//! use model::invalid::{Invalid, Problems};
//! use model::name::{ImageRef, Port};
//!
//! fn parse(image: &str, port: &str) -> Result<(ImageRef, Port), Invalid> {
//!     let mut problems = Problems::new();
//!     let image = problems.parse("image", image);
//!     let port = problems.parse("port", port);
//!     problems.complete(image.zip(port))
//! }
//!
//! let invalid = parse("", "0").unwrap_err();
//! assert_eq!(invalid.problems().len(), 2);
//! ```

use crate::limits;
use std::{
    fmt::{self, Display},
    str::FromStr,
};

/// An input that cannot be used, and everything that is wrong with it. There is at least one problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it is, as the user wrote it: `scaling.min`, `regions[3]`; empty when it is about the whole input.
    pub field: String,
    /// What is wrong, as a sentence without its stop.
    pub problem: String,
}

impl Invalid {
    /// An input with one problem.
    pub fn one(field: impl Into<String>, problem: impl Display) -> Invalid {
        Invalid { problems: vec![Problem { field: field.into(), problem: problem.to_string() }] }
    }

    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.problem),
            field => write!(f, "{field}: {}", self.problem),
        }
    }
}

/// The problems found so far, while an input is parsed to its end.
#[derive(Debug, Default)]
#[must_use = "problems that nobody finishes are lost"]
pub struct Problems {
    found: Vec<Problem>,
}

impl Problems {
    pub fn new() -> Problems {
        Problems::default()
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// A field of the input, to say something about it or about what is inside it.
    pub fn field(&mut self, name: &str) -> Field<'_> {
        Field { path: name.to_owned(), found: &mut self.found }
    }

    /// The input as a whole.
    pub fn whole(&mut self) -> Field<'_> {
        self.field("")
    }

    pub fn add(&mut self, field: &str, problem: impl Display) {
        self.field(field).add(problem);
    }

    /// Notes the problem unless the condition holds, and says whether it does.
    pub fn require(&mut self, condition: bool, field: &str, problem: impl Display) -> bool {
        self.field(field).require(condition, problem)
    }

    /// The noun the text stands for, or a problem and nothing.
    pub fn parse<T: FromStr<Err: Display>>(&mut self, field: &str, text: &str) -> Option<T> {
        self.field(field).parse(text)
    }

    /// The value, if nothing was wrong.
    pub fn finish<T>(self, value: T) -> Result<T, Invalid> {
        if self.found.is_empty() { Ok(value) } else { Err(Invalid { problems: self.found }) }
    }

    /// The value that the parts made, if nothing was wrong. A part may be missing only because of a problem.
    pub fn complete<T>(self, value: Option<T>) -> Result<T, Invalid> {
        match (value, self.found.is_empty()) {
            (Some(value), true) => Ok(value),
            (None, true) => panic!("a part is missing although no problem was noted"),
            (_, false) => Err(Invalid { problems: self.found }),
        }
    }
}

/// One place in the input.
#[derive(Debug)]
pub struct Field<'a> {
    path: String,
    found: &'a mut Vec<Problem>,
}

impl Field<'_> {
    /// A field inside this one.
    pub fn field(&mut self, name: &str) -> Field<'_> {
        Field { path: join(&self.path, name), found: self.found }
    }

    /// An element of this list.
    pub fn index(&mut self, index: usize) -> Field<'_> {
        Field { path: format!("{}[{index}]", self.path), found: self.found }
    }

    /// Notes a problem. Of very many only the first are kept: an input that is wrong throughout is no reason for an
    /// answer that is longer than the input.
    pub fn add(&mut self, problem: impl Display) {
        if self.found.len() < limits::PROBLEMS {
            self.found.push(Problem { field: self.path.clone(), problem: problem.to_string() });
        }
    }

    /// Notes the problem unless the condition holds, and says whether it does.
    pub fn require(&mut self, condition: bool, problem: impl Display) -> bool {
        if !condition {
            self.add(problem);
        }
        condition
    }

    /// The noun the text stands for, or a problem and nothing.
    pub fn parse<T: FromStr<Err: Display>>(&mut self, text: &str) -> Option<T> {
        self.keep(text.parse::<T>())
    }

    /// The value, or its error as a problem and nothing.
    pub fn keep<T, E: Display>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// The value of a part that was parsed on its own, or all its problems, moved under this field.
    pub fn nest<T>(&mut self, result: Result<T, Invalid>) -> Option<T> {
        result
            .map_err(|invalid| {
                let path = &self.path;
                let room = limits::PROBLEMS.saturating_sub(self.found.len());
                self.found.extend(
                    invalid
                        .problems
                        .into_iter()
                        .take(room)
                        .map(|inner| Problem { field: join(path, &inner.field), ..inner }),
                );
            })
            .ok()
    }

    /// What must be there, or the problem that it is not.
    pub fn required<T>(&mut self, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.add("is required");
        }
        value
    }
}

fn join(path: &str, name: &str) -> String {
    match (path, name) {
        ("", _) => name.to_owned(),
        (_, "") => path.to_owned(),
        _ if name.starts_with('[') => format!("{path}{name}"),
        _ => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn lists_every_problem_with_its_field() {
        let mut problems = Problems::new();
        assert_eq!(problems.parse::<u8>("port", "many"), None);
        assert!(!problems.require(false, "image", "is too old"));
        let mut scaling = problems.field("scaling");
        scaling.field("min").add("is above max");
        scaling.field("zones").index(3).field("name").add("is empty");
        problems.whole().add("is no document");

        let invalid = problems.finish(()).unwrap_err();
        expect![["port: invalid digit found in string; image: is too old; scaling.min: is above max; \
             scaling.zones[3].name: is empty; is no document"]]
        .assert_eq(&invalid.to_string());
    }

    #[test]
    fn gives_the_value_when_nothing_is_wrong() {
        let mut problems = Problems::new();
        let port = problems.parse::<u8>("port", "80");
        assert!(problems.require(true, "image", "is too old"));
        assert_eq!(problems.complete(port), Ok(80));
        assert_eq!(Problems::new().finish(7), Ok(7));
    }

    #[test]
    fn moves_the_problems_of_a_part_under_its_field() {
        let inner = || -> Result<(), Invalid> {
            let mut problems = Problems::new();
            problems.add("min", "is above max");
            problems.field("").index(2).add("is twice there");
            problems.whole().add("is odd");
            problems.finish(())
        };
        let mut problems = Problems::new();
        assert_eq!(problems.field("scaling").nest(inner()), None);
        let invalid = problems.complete(None::<()>).unwrap_err();
        let fields: Vec<&str> = invalid.problems().iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, ["scaling.min", "scaling[2]", "scaling"]);
    }

    #[test]
    fn of_very_many_problems_the_first_are_told() {
        let mut problems = Problems::new();
        let mut list = problems.field("list");
        (0..10_000).for_each(|index| list.index(index).add("is wrong"));
        let invalid = problems.finish(()).unwrap_err();
        assert_eq!(invalid.problems().len(), limits::PROBLEMS);
        assert_eq!(invalid.problems()[0].field, "list[0]");

        let mut outer = Problems::new();
        outer.add("name", "is wrong");
        assert_eq!(outer.field("inner").nest::<()>(Err(invalid)), None);
        assert_eq!(outer.finish(()).unwrap_err().problems().len(), limits::PROBLEMS);
    }

    #[test]
    fn what_is_required_and_missing_is_a_problem() {
        let mut problems = Problems::new();
        assert_eq!(problems.field("image").required(None::<u8>), None);
        assert_eq!(problems.finish(()), Err(Invalid::one("image", "is required")));
    }

    #[test]
    #[should_panic(expected = "although no problem was noted")]
    fn a_part_never_goes_missing_in_silence() {
        let _ = Problems::new().complete(None::<()>);
    }
}
