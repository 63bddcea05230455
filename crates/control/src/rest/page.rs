//! Lists in pages: `{data, next}`, where `next` is what the next request says as `cursor`.

use std::str::FromStr;

use model::invalid::Invalid;
use serde_json::{Value, json};

use super::{
    call::{Call, Reply},
    problem::Problem,
    schema::{Kind, Property, optional},
};

/// How many there are in a page, at most and by default.
pub const LIMIT_MAX: u32 = 100;
const LIMIT: u32 = 50;

pub const LIMIT_PARAMETER: Property = optional(
    "limit",
    Kind::Integer { min: 1, max: LIMIT_MAX as i64 },
    "How many are wanted, at most; 50 by default.",
);
pub const CURSOR_PARAMETER: Property =
    optional("cursor", Kind::Text { min: 1, max: 256 }, "Where to go on: the `next` of the page before.");

/// What part of a list is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<K> {
    /// Behind this one.
    pub after: Option<K>,
    pub limit: u32,
}

impl Call {
    /// The page that the query asks for.
    pub(crate) fn page<K: FromStr>(&self) -> Result<Wanted<K>, Problem> {
        let after = self.query.text("cursor").map(str::parse).transpose();
        let after =
            after.map_err(|_| Problem::invalid(&Invalid::one("cursor", "is no `next` of this list")))?;
        let limit = self.query.integer("limit").and_then(|limit| u32::try_from(limit).ok());
        Ok(Wanted { after, limit: limit.unwrap_or(LIMIT) })
    }
}

impl<K> Wanted<K> {
    /// One more is asked for than is wanted: it tells whether there is a next page.
    pub fn ask(&self) -> u32 {
        self.limit + 1
    }

    /// The page of a list that is short enough to be read whole, in the order of its ids.
    pub fn of_all<T>(&self, mut all: Vec<T>, id: impl Fn(&T) -> String) -> Vec<T>
    where
        K: AsRef<str>,
    {
        all.sort_by_key(&id);
        let after = self.after.as_ref().map_or("", K::as_ref);
        all.retain(|one| id(one).as_str() > after);
        all.truncate(usize::try_from(self.ask()).expect("a hundred and one at most"));
        all
    }

    /// The answer, from what was found when [`Wanted::ask`] was asked for.
    pub fn answer<T>(
        &self,
        mut found: Vec<T>,
        key: impl Fn(&T) -> String,
        show: impl Fn(&T) -> Value,
    ) -> Reply {
        let limit = usize::try_from(self.limit).expect("a hundred at most");
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = has_more.then(|| found.last().map(&key)).flatten();
        Reply::json(json!({ "data": found.iter().map(show).collect::<Vec<_>>(), "next": next }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(found: Vec<u32>) -> Value {
        let wanted = Wanted::<u32> { after: None, limit: 2 };
        wanted.answer(found, ToString::to_string, |number| (*number).into()).body().expect("a body").clone()
    }

    #[test]
    fn there_is_a_next_page_only_if_there_is_more() {
        assert_eq!(page(vec![1, 2, 3]), json!({ "data": [1, 2], "next": "2" }));
        assert_eq!(page(vec![1, 2]), json!({ "data": [1, 2], "next": null }));
        assert_eq!(page(vec![]), json!({ "data": [], "next": null }));
    }
}
