//! Settings read back as they were written, every problem is told with its field, and a patch changes what it names.

use model::environment::Environment;
use proptest::{
    prelude::{Just, any, prop_assert_eq, prop_oneof, proptest},
    strategy::Strategy as _,
};
use serde_json::json;

use super::*;

fn full() -> Value {
    json!({
        "command": ["serve", "--fast"], "port": 9000, "protocol": "h2c",
        "resources": { "cpu": 500, "memory": 512, "storage": 1024 },
        "scaling": { "min": 1, "max": 4, "cpu": 70, "memory": 60 },
        "regions": ["aws/us-east-1", "aws/eu-west-1:b"],
        "health": { "path": "/up", "method": "POST", "interval": 3, "timeout": 2, "failure_threshold": 9, "initial_delay": 1 },
        "shutdown": { "signal": "SIGINT", "grace": 7 },
        "strategy": { "kind": "canary", "steps": [10, 100], "pause": 5 },
        "hostnames": ["example.com"], "secrets": "inject",
    })
}

fn problems(value: &Value) -> Vec<String> {
    let invalid = read(value).expect_err("it is not right");
    invalid.problems().iter().map(ToString::to_string).collect()
}

fn after(settings: &Settings, patch: &Value) -> Result<Settings, Invalid> {
    let mut problems = Problems::new();
    let settings = patched(settings, patch, &mut problems.whole());
    problems.complete(settings)
}

#[test]
fn settings_read_back_as_they_were_written() {
    let settings = read(&full()).unwrap();
    assert_eq!(write(&settings), full());
    for settings in [Settings::default(), Environment::sample().settings, settings] {
        assert_eq!(read(&write(&settings)), Ok(settings));
    }
    assert_eq!(read(&json!({})), Ok(Settings::default()));
}

#[test]
fn every_problem_is_told_with_its_field() {
    let value = json!({
        "port": 0, "resources": { "cpu": 1, "disk": 3 }, "scaling": { "min": 5, "max": 2 },
        "regions": ["aws/a", "nowhere", "aws/a"], "health": { "interval": 0 }, "colour": "red",
        "strategy": { "kind": "blue_green", "steps": [5] }, "hostnames": ["-"], "shutdown": { "signal": "SIGFOO" },
    });
    let told = problems(&value);
    for field in [
        "port",
        "resources.cpu",
        "resources.disk",
        "scaling.min",
        "regions[1]",
        "health.path",
        "health.interval",
        "colour",
        "strategy.steps",
        "hostnames[0]",
        "shutdown.signal",
    ] {
        assert!(told.iter().any(|problem| problem.starts_with(&format!("{field}:"))), "{field} in {told:#?}");
    }
    assert_eq!(told.len(), 11, "{told:#?}");
}

#[test]
fn what_is_absent_in_a_patch_stays_and_null_goes_back_to_the_default() {
    let settings = read(&full()).unwrap();
    let patch = json!({ "port": 1234, "health": null, "resources": { "storage": null, "cpu": 750 } });
    let changed = after(&settings, &patch).unwrap();
    let mut expected = full();
    expected["port"] = 1234.into();
    expected["health"] = Value::Null;
    expected["resources"] = json!({ "cpu": 750, "memory": 512, "storage": null });
    assert_eq!(write(&changed), expected);
    assert_eq!(after(&settings, &json!({})), Ok(settings.clone()));
    assert_eq!(
        after(&settings, &json!({ "health": { "path": null } })).unwrap_err().to_string(),
        "health.path: is required"
    );
    assert!(after(&settings, &json!([])).is_err());
}

#[test]
fn another_strategy_begins_with_its_own_defaults() {
    let settings = read(&full()).unwrap();
    let changed = after(&settings, &json!({ "strategy": { "kind": "blue_green" } })).unwrap();
    assert_eq!(write(&changed)["strategy"], json!({ "kind": "blue_green", "keep": 1800 }));
    let changed = after(&settings, &json!({ "strategy": { "pause": 9 } })).unwrap();
    assert_eq!(write(&changed)["strategy"], json!({ "kind": "canary", "steps": [10, 100], "pause": 9 }));
}

#[test]
fn a_fixed_number_needs_one_word() {
    assert_eq!(read(&json!({ "scaling": { "max": 3 } })).unwrap().scaling, Scaling::Fixed(Replicas::THREE));
    assert_eq!(read(&json!({ "scaling": { "min": 0 } })).unwrap().scaling, Scaling::Fixed(Replicas::MIN));
    let auto = read(&json!({ "scaling": { "min": 1, "max": 3 } })).unwrap().scaling;
    assert_eq!(write::scaling(&auto), json!({ "min": 1, "max": 3, "cpu": 80, "memory": null }));
}

fn any_json() -> impl proptest::strategy::Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z/.:0-9]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        let names = proptest::sample::select(vec![
            "port", "scaling", "min", "max", "health", "path", "strategy", "kind", "steps", "regions",
            "command", "x",
        ]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((names, inner), 0..5).prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_sent_is_read_or_refused(value in any_json()) {
        if let Ok(settings) = read(&value) {
            prop_assert_eq!(read(&write(&settings)), Ok(settings));
        }
        let _ = after(&Settings::default(), &value);
    }
}
