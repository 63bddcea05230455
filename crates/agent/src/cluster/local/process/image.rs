//! What a container runs: the command that stands for its image, or the one that it brings itself.

use std::collections::BTreeMap;

use serde_json::Value;

/// The commands that stand for images.
#[derive(Debug, Clone, Default)]
pub struct Images(BTreeMap<String, Vec<String>>);

impl Images {
    /// Ours, and those of the settings, which win.
    pub fn new(krane: &str, settings: &BTreeMap<String, Vec<String>>) -> Images {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let ours = [
            ("krane/sample".to_owned(), words(&[krane, "sample"])),
            // What it shall do is among its own arguments.
            ("krane/sentinel".to_owned(), words(&[krane])),
        ];
        let settings = settings.iter().map(|(image, words)| (image.clone(), words.clone()));
        Images(ours.into_iter().chain(settings).collect())
    }

    /// The words that a container runs, not yet with its variables in their places. Without an image or a command there
    /// is the sentence how to add one.
    pub fn words(&self, container: &Value) -> Result<Vec<String>, String> {
        let image = container["image"].as_str().unwrap_or_default();
        let list = |field: &str| {
            let words = container[field].as_array().into_iter().flatten();
            words.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        let (command, arguments) = (list("command"), list("args"));
        match self.find(image) {
            Some(words) => Ok([words, &arguments].concat()),
            None if !command.is_empty() => Ok([command, arguments].concat()),
            None => {
                let name = without_tag(image);
                Err(format!(
                    "a local cluster pulls no images: say what stands for {image} in the settings, \
                     [local.images] \"{name}\" = [\"./program\"], or give the deployment a command"
                ))
            }
        }
    }

    fn find(&self, image: &str) -> Option<&[String]> {
        self.0.get(image).or_else(|| self.0.get(without_tag(image))).map(Vec::as_slice)
    }
}

/// The name alone. A colon before the last slash is the port of a registry.
fn without_tag(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or_default();
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_image_is_found_with_or_without_its_tag() {
        for (image, name) in [
            ("krane/sample:1", "krane/sample"),
            ("registry:5000/a/b", "registry:5000/a/b"),
            ("registry:5000/a/b:2@sha256:00", "registry:5000/a/b"),
        ] {
            assert_eq!(without_tag(image), name);
        }
    }

    #[test]
    fn what_stands_for_an_image_wins_and_takes_the_arguments() {
        let settings = [("a:2".to_owned(), vec!["two".to_owned()]), ("a".to_owned(), vec!["any".to_owned()])];
        let images = Images::new("/bin/krane", &settings.into());
        let words = |container: Value| images.words(&container).map(|words| words.join(" "));
        assert_eq!(
            words(json!({ "image": "krane/sample:1", "command": ["node"] })).unwrap(),
            "/bin/krane sample"
        );
        let sentinel = json!({ "image": "krane/sentinel:1", "args": ["sentinel"] });
        assert_eq!(words(sentinel).unwrap(), "/bin/krane sentinel");
        assert_eq!(words(json!({ "image": "a:2" })).unwrap(), "two");
        assert_eq!(words(json!({ "image": "a:3" })).unwrap(), "any");
        assert_eq!(words(json!({ "image": "b", "command": ["node"], "args": ["x"] })).unwrap(), "node x");
        let told = words(json!({ "image": "ghcr.io/b:1" })).unwrap_err();
        assert!(told.contains("[local.images] \"ghcr.io/b\" = [\"./program\"]"), "{told}");
    }
}
