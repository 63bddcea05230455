//! What a document may say, what it is told when it is wrong, and what becomes of the settings.

use std::fmt::Write as _;

use expect_test::{Expect, expect, expect_file};
use model::environment::{Environment, Settings, Strategy};
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use serde_json::{Map, Value, json};

use super::{Document, SECTIONS, fields, reference, schema, settings};

const WHOLE: &str = "\
# The shop's front, as it runs for customers.
app: acme/shop/web
environment: production
image: registry.example.com/shop/web:1.4.2
command: [serve, --quiet]
port: 9000
protocol: h2c
resources: { cpu: 500, memory: 512, storage: 1024 }
scaling:
  min: 2
  max: 6
  cpu: 70
regions:
  - aws/us-east-1
  - gcp/europe-west4:b
health: { path: /health, interval: 5, failure_threshold: 2 }
shutdown: { signal: SIGINT, grace: 20 }
strategy: { kind: canary, steps: [10, 100], pause: 60 }
hostnames: [shop.example.com]
secrets: inject
";

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

fn wanted(text: &str) -> Settings {
    Document::parse(text).unwrap().settings(&Settings::default()).unwrap()
}

fn check_faults(text: &str, expected: Expect) {
    let told = match Document::parse(text).map(|document| document.settings(&Settings::default())) {
        Ok(Ok(_)) => "nothing is wrong".to_owned(),
        Ok(Err(faults)) | Err(faults) => faults.to_string(),
    };
    expected.assert_eq(&told);
}

#[test]
fn a_whole_document_says_everything() {
    let document = Document::parse(WHOLE).unwrap();
    assert_eq!(document.app.workspace.as_ref().unwrap().as_str(), "acme");
    assert_eq!(document.app.project.as_ref().unwrap().as_str(), "shop");
    assert_eq!(document.app.app.as_str(), "web");
    assert_eq!(document.image.as_ref().unwrap().to_string(), "registry.example.com/shop/web:1.4.2");
    let shown = Value::Object(settings::show(&wanted(WHOLE)));
    expect![[r#"{"command":["serve","--quiet"],"health":{"failure_threshold":2,"initial_delay":0,"interval":5,"method":"GET","path":"/health","timeout":5},"hostnames":["shop.example.com"],"port":9000,"protocol":"h2c","regions":["aws/us-east-1","gcp/europe-west4:b"],"resources":{"cpu":500,"memory":512,"storage":1024},"scaling":{"cpu":70,"max":6,"memory":null,"min":2},"secrets":"inject","shutdown":{"grace":20,"signal":"SIGINT"},"strategy":{"keep":null,"kind":"canary","pause":60,"steps":[10,100]}}"#]]
        .assert_eq(&shown.to_string());
}

#[test]
fn json_is_a_document_too() {
    let document =
        Document::parse(r#"{"app": "web", "image": "web:1", "scaling": {"min": 3, "max": 3}}"#).unwrap();
    assert_eq!(document.environment.as_str(), "production");
    assert_eq!(document.settings(&Settings::default()).unwrap().scaling.max().get(), 3);
}

#[test]
fn every_problem_is_told_at_once_with_its_line_and_column() {
    let text = "\
app: Shop
image: 'not an image'
prot: 8080
port: 0
resources:
  cpu: lots
  memory: 8
scaling: { min: 5, max: 2 }
regions: [aws/a, aws/a, nowhere]
health: {}
strategy: { kind: canary, steps: [50, 25], keep: 5 }
policies: []
variables: [TOKEN]
command: serve
";
    check_faults(
        text,
        expect![[r#"
            1:6: app: a slug cannot have 'S' at position 0; it is made of a-z, 0-9 and '-'
            2:8: image: an image reference cannot have ' ' at position 3; it is made of letters, digits and marks
            3:1: prot: is not a field; did you mean port?
            4:7: port: is a whole number from 1 to 65535, not 0
            6:8: resources.cpu: is a whole number, not a text
            7:11: resources.memory: is a whole number from 16 to 524288, not 8
            8:17: scaling.min: is 5, above max, which is 2
            9:25: regions[2]: a region is a platform and a name, like aws/us-east-1
            11:34: strategy.steps: the last step must be 100
            11:39: strategy.steps[1]: must be above the step before
            11:50: strategy.keep: is for blue_green, and the strategy is canary
            12:1: policies: cannot be declared yet; leave it out
            13:1: variables: cannot be declared yet; leave it out
            14:10: command: is a list of texts, not a text"#]],
    );
}

#[test]
fn what_only_shows_beside_the_settings_has_its_place_too() {
    check_faults("app: web\nhealth:\n  timeout: 3\n", expect!["3:3: health.path: is required"]);
    check_faults(
        "app: web\nscaling: { min: 3 }\n",
        expect!["2:17: scaling.min: is 3, above max, which is 1"],
    );
}

#[test]
fn a_key_that_nobody_knows_is_told_the_one_that_was_meant() {
    check_faults(
        "app: web\nregion: [aws/a]\ncpu: 250\nfrobnicate: 1\nscaling: { maxx: 2 }\n",
        expect![[r#"
        2:1: region: is not a field; did you mean regions?
        3:1: cpu: is not a field; did you mean resources.cpu?
        4:1: frobnicate: is not a field; there are app, environment, image, command, port, protocol, resources, scaling, regions, health, shutdown, strategy, hostnames, secrets, policies, variables
        5:12: scaling.maxx: is not a field; did you mean max?"#]],
    );
}

#[test]
fn what_is_no_yaml_is_told_where() {
    check_faults("app: [web\nimage: x\n", expect!["2:6: illegal placement of ':' indicator"]);
    check_faults("app: web\nport: 1\nport: 2\n", expect!["3:1: port is there twice"]);
    check_faults("- app\n", expect!["1:1: a document is an object with keys, like app and image"]);
    check_faults("", expect!["1:1: a document is an object with keys, like app and image"]);
    let two = expect!["2:1: this is more than one document, or far too much of one"];
    check_faults("app: web\n---\napp: other\n", two);
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        writeln!(text, "a{level}: &a{level} [{}]", below.trim_end_matches(", ")).unwrap();
    }
    assert!(Document::parse(&text).is_err());
    assert!(Document::parse(&"[".repeat(100_000)).is_err());
    assert!(Document::parse(&format!("app: {}", "a".repeat(super::BYTES_MAX))).is_err());
}

#[test]
fn what_is_absent_stays_and_null_removes() {
    let now = wanted(WHOLE);
    let apply = |text: &str| Document::parse(text).unwrap().settings(&now).unwrap();
    assert_eq!(apply("app: web\n"), now);

    let after =
        apply("app: web\nscaling: { max: 9 }\nresources: { storage: null }\nhealth: null\ncommand: null\n");
    assert_eq!(after.scaling.min().get(), 2);
    assert_eq!(after.scaling.max().get(), 9);
    assert_eq!(after.resources.storage, None);
    assert_eq!(after.resources.cpu.get(), 500);
    assert_eq!((after.health, after.command.is_empty()), (None, true));

    let all_null: Vec<_> = SECTIONS.iter().map(|section| format!("{}: null", section.field.name)).collect();
    assert_eq!(apply(&format!("app: web\n{}\n", all_null.join("\n"))), Settings::default());
}

#[test]
fn a_region_that_leaves_its_shard_to_us_stays_where_it_was_settled() {
    let settled = wanted("app: web\nregions: ['aws/a:b', aws/c]\n");
    let apply = |text: &str| Document::parse(text).unwrap().settings(&settled).unwrap();
    assert_eq!(apply("app: web\nregions: [aws/a, aws/c]\n"), settled);
    let moved = apply("app: web\nregions: ['aws/a:x', aws/d]\n").regions;
    assert_eq!(moved.iter().map(ToString::to_string).collect::<Vec<_>>(), ["aws/a:x", "aws/d"]);
}

#[test]
fn another_strategy_starts_from_its_own_defaults() {
    let now = wanted("app: web\nstrategy: { kind: blue_green, keep: 7 }\n");
    let change = object(json!({ "strategy": { "kind": "canary" } }));
    let canary = settings::merge(&now, &change).unwrap();
    assert_eq!(canary.strategy, Strategy::of("canary".parse().unwrap()));
    let invalid = settings::merge(&now, &object(json!({ "strategy": { "steps": [100] } }))).unwrap_err();
    expect!["strategy.steps: is for canary, and the strategy is blue_green"].assert_eq(&invalid.to_string());
}

#[test]
fn the_difference_is_told_field_by_field() {
    let now = wanted("app: web\nhealth: { path: /a }\n");
    let wanted = wanted("app: web\nscaling: { max: 3 }\nregions: [aws/a]\nstrategy: { kind: blue_green }\n");
    let told: Vec<_> = settings::diff(&now, &wanted)
        .iter()
        .map(|change| format!("{} {} -> {} {}", change.field, change.from, change.to, change.deploys()))
        .collect();
    expect![[r#"
        scaling.max 1 -> 3 true
        scaling.cpu null -> 80 true
        regions [] -> ["aws/a"] true
        health.path "/a" -> null true
        health.method "GET" -> null true
        health.interval 10 -> null true
        health.timeout 5 -> null true
        health.failure_threshold 3 -> null true
        health.initial_delay 0 -> null true
        strategy.kind "immediate" -> "blue_green" false
        strategy.keep null -> 1800 false"#]]
    .assert_eq(&told.join("\n"));
    assert_eq!(settings::diff(&now, &now), []);
}

#[test]
fn settings_are_read_back_as_they_are_shown() {
    for settings in [Settings::default(), wanted(WHOLE), Environment::sample().settings] {
        let shown = settings::show(&settings);
        assert_eq!(settings::merge(&Settings::default(), &shown).unwrap(), settings);
        assert_eq!(
            settings::merge(&wanted(WHOLE), &shown).unwrap(),
            settings,
            "nothing of what was there is left"
        );
    }
}

#[test]
fn every_field_has_a_sentence_and_a_row_in_the_schema_and_on_the_page() {
    let schema = schema();
    for field in fields() {
        assert!(field.about.ends_with('.'), "{}", field.name);
        assert_eq!(schema["properties"][field.name]["description"], json!(field.about));
    }
    expect_file!["schema.json"].assert_eq(&format!("{}\n", serde_json::to_string_pretty(&schema).unwrap()));
    let page = include_str!("../../../../docs/reference/document.md");
    assert!(
        page.contains(&reference()),
        "docs/reference/document.md has to hold this table:\n{}",
        reference()
    );
}

proptest! {
    #[test]
    fn no_text_is_too_odd_to_be_told_what_is_wrong(text in "\\PC{0,80}|([a-z]{1,8}: ?[\\[\\]{}a-z0-9&*!|>,-]{0,12}\n){0,6}") {
        if let Err(faults) = Document::parse(&text) {
            prop_assert!(faults.iter().all(|fault| fault.at.line >= 1 && fault.at.column >= 1));
        }
    }

    #[test]
    fn a_difference_that_is_applied_is_gone(min in 1_u32..9, more in 0_u32..9, port: u16, cpu in 10_u32..64_000, immediate: bool) {
        let kind = if immediate { "immediate" } else { "canary" };
        let change = json!({
            "scaling": { "min": min, "max": min + more }, "port": port.max(1), "resources": { "cpu": cpu },
            "strategy": { "kind": kind },
        });
        let (now, change) = (wanted(WHOLE), object(change));
        let then = settings::merge(&now, &change).unwrap();
        prop_assert_eq!(settings::diff(&then, &settings::merge(&then, &change).unwrap()), vec![]);
        let back: Map<String, Value> = settings::show(&now);
        prop_assert_eq!(settings::merge(&then, &back).unwrap(), now);
    }
}
