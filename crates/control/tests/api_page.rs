//! The page of the API says what the table of routes and the list of codes say.

use std::fmt::Write as _;

use control::rest::{
    problem::Code,
    route::{Allow, Route, routes},
};
use model::token::{Reach, Role};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");

fn roles() -> String {
    let mut table = "| request | read | deploy | admin | |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for route in routes().filter(|route| route.allow != Allow::Anyone) {
        let may = |role| if route.allow.admits(role, Reach::All) { "yes" } else { "–" };
        let [read, deploy, admin] = [Role::Read, Role::Deploy, Role::Admin].map(may);
        let Route { method, path, .. } = route;
        let note = if matches!(route.allow, Allow::Everywhere(_)) { "in all workspaces" } else { "" };
        writeln!(table, "| `{method} {path}` | {read} | {deploy} | {admin} | {note} |").expect("a text");
    }
    table.replace("|  |\n", "| |\n")
}

fn codes() -> String {
    let mut table = "| code | status | when, and what to do |\n| --- | --- | --- |\n".to_owned();
    for code in Code::ALL {
        let status = code.status().as_u16();
        writeln!(table, "| `{}` | {status} | {} |", code.as_str(), code.meaning()).expect("a text");
    }
    table
}

/// The page with a table in its place.
fn with(page: &str, mark: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {mark} -->\n"), "<!-- end -->");
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("{begin} is on the page"));
    let (_, after) = rest.split_once(end).expect("it ends");
    format!("{before}{begin}{table}{end}{after}")
}

#[test]
fn the_page_of_the_api_has_every_route_with_its_roles_and_every_code() {
    let page = std::fs::read_to_string(PAGE).expect("the page");
    let page = with(&with(&page, "roles", &roles()), "codes", &codes());
    expect_test::expect_file![PAGE].assert_eq(&page);
}
