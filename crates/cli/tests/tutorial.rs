//! The tutorial, as it stands on its page: every command is run, in order, and prints what the page shows.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

#[path = "support/dev.rs"]
mod dev;
#[path = "tutorial/metrics.rs"]
mod metrics;
#[path = "tutorial/page.rs"]
mod page;
#[path = "tutorial/shell.rs"]
mod shell;

use self::{page::commands, shell::Shell};

const PAGE: &str = include_str!("../../../docs/tutorial.md");

#[test]
fn every_command_of_the_tutorial_prints_what_the_page_shows() {
    let all = commands(PAGE);
    for word in ["dev", "deploy", "scale", "rollback", "check", "diff", "apply", "promote"] {
        assert!(all.iter().any(|one| one.text.contains(&format!("krane {word}"))), "krane {word} is shown");
    }
    let home = tempfile::tempdir().expect("a directory");
    let mut shell = Shell::start(home.path());
    for command in &all {
        println!("$ {}", command.text);
        let printed = shell.run(&command.text);
        println!("{printed}");
        command.check(&printed);
    }
    metrics::every_metric_has_a_value(&shell.home());
    shell.end();
}

#[test]
fn what_is_shown_must_be_printed_in_its_order() {
    let all = commands("```console\n$ one\na … c\nd\n$ two <<'END'\nx\nEND\n```\n");
    assert_eq!(all.len(), 2);
    assert!(all[0].differs("a b c\nother\nd\n").is_none());
    assert!(all[0].differs("a\u{1b}[1m b\u{1b}[0m c\nd\n").is_none(), "colours are not looked at");
    assert!(all[0].differs("d\na b c\n").is_some() && all[0].differs("a b\nd\n").is_some());
    assert_eq!(all[1].text, "two <<'END'\nx\nEND");
}
