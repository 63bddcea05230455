//! No configuration, however wrong, makes loading panic or an error lose its place.

use proptest::prelude::*;

use super::*;

/// Values of every kind, most of them wrong wherever they stand.
fn values() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("1".to_owned()),
        Just("-1.5".to_owned()),
        Just("true".to_owned()),
        Just("\"30s\"".to_owned()),
        Just("\"a\"".to_owned()),
        Just("[]".to_owned()),
        Just("[1, 'a', {}]".to_owned()),
        Just("{}".to_owned()),
        Just("{ name = 1 }".to_owned()),
        Just("{ disk = {} }".to_owned()),
        Just("[{ port = 1 }]".to_owned()),
    ]
}

fn keys() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "listen", "replicas", "timeout", "grace", "buffer", "verbose", "tags", "limits", "peers", "backend",
        "region", "password", "colour",
    ])
}

proptest! {
    #[test]
    fn no_text_makes_loading_panic(text: String, value: String) {
        let _ = read(&text, &[("KRANE_AGENT__REGION__NAME", &value), ("KRANE_AGENT__LISTEN", &value)]);
    }

    #[test]
    fn no_tree_makes_loading_panic_or_an_error_go_unplaced(
        settings in prop::collection::btree_map(keys(), values(), 0..13),
    ) {
        let lines: Vec<String> = settings.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        if let Err(errors) = read(&lines.join("\n"), &[]) {
            for error in errors.iter() {
                let top = error.key.split(['.', '[']).next().unwrap();
                let expected = settings.keys().position(|key| *key == top).map(|index| index + 1);
                let name = "agent.toml".to_owned();
                prop_assert_eq!(&error.place, &Place::File { name, line: expected });
            }
        }
    }
}
