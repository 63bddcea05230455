//! `krane init`, `krane apply` and `krane diff`: an app as a document.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use control::document::{BYTES_MAX, Document};
use serde_json::Value;

use super::{
    End, Session,
    access::Access,
    client::{self, Content},
    follow::{Goal, follow},
    output::{Colour, Format, Paint, json, print, say, yaml},
};

const TEMPLATE: &str = include_str!("template.yaml");

const INIT_EXAMPLES: &str = "Examples:
  krane init
  krane init --app shop/web --image registry.example.com/shop/web:1.4.2 --file web.yaml
  krane init --schema > app.schema.json";

#[derive(Args)]
#[command(after_help = INIT_EXAMPLES)]
pub(crate) struct Init {
    /// The app: app, project/app or workspace/project/app
    #[arg(long, default_value = "shop/web")]
    app: String,
    /// What runs
    #[arg(long, default_value = "registry.example.com/shop/web:1.0.0")]
    image: String,
    /// Where to write it
    #[arg(short, long, default_value = "app.yaml")]
    file: PathBuf,
    /// Print the JSON schema of a document instead, for an editor
    #[arg(long, conflicts_with_all = ["app", "image", "file"])]
    schema: bool,
}

const APPLY_EXAMPLES: &str = "Examples:
  krane apply -f app.yaml
  krane apply -f app.yaml --dry-run
  krane apply -f - --detach";

#[derive(Args)]
#[command(after_help = APPLY_EXAMPLES)]
pub(crate) struct Apply {
    #[command(flatten)]
    document: DocumentFile,
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
    /// Do not wait for the deployment
    #[arg(long)]
    detach: bool,
}

const DIFF_EXAMPLES: &str = "Examples:
  krane diff -f app.yaml
  krane diff -f app.yaml --exit-code";

#[derive(Args)]
#[command(after_help = DIFF_EXAMPLES)]
pub(crate) struct Diff {
    #[command(flatten)]
    document: DocumentFile,
    /// Exit with 5 if anything would change
    #[arg(long)]
    exit_code: bool,
}

#[derive(Args)]
struct DocumentFile {
    /// The document, or - for standard input
    #[arg(short, long)]
    file: PathBuf,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    access: Access,
}

impl Init {
    pub(super) fn run(&self) -> anyhow::Result<End> {
        if self.schema {
            print(&json(&control::document::schema())?)?;
            return Ok(End::Done);
        }
        let text = TEMPLATE.replace("{app}", &self.app).replace("{image}", &self.image);
        if let Err(faults) = Document::parse(&text) {
            anyhow::bail!("what you gave makes no document:\n{faults}");
        }
        let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&self.file);
        let mut made = made.with_context(|| format!("cannot make {}", self.file.display()))?;
        std::io::Write::write_all(&mut made, text.as_bytes())?;
        say(&format!("wrote {0}; look at it, then: krane diff -f {0}", self.file.display()));
        Ok(End::Done)
    }
}

impl Apply {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let answer = self.document.send(session, self.dry_run).await?;
        self.document.show(&answer, session.paint)?;
        match answer["deployment_id"].as_str() {
            Some(id) if self.detach => {
                say(&format!("{id} is under way; follow it with: krane status {id} --follow"));
            }
            Some(id) => {
                let (client, entry) = self.document.access.open(session)?;
                return follow((&client, &entry), session, id, (Goal::Ready, None)).await;
            }
            None => {}
        }
        Ok(End::Done)
    }
}

impl Diff {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let answer = self.document.send(session, true).await?;
        self.document.show(&answer, session.paint)?;
        Ok(if self.exit_code && differs(&answer) { End::Differs } else { End::Done })
    }
}

impl DocumentFile {
    /// Sends the document, once it makes sense by itself.
    async fn send(&self, session: &Session, dry_run: bool) -> anyhow::Result<Value> {
        let text = read(&self.file)?;
        Document::parse(&text).map_err(|faults| {
            let lines = faults.iter().map(|fault| format!("\n  {}:{fault}", self.file.display()));
            anyhow::anyhow!("the document is not right{}", lines.collect::<String>())
        })?;
        let (client, entry) = self.access.open(session)?;
        let query = [
            ("dry_run", dry_run.then_some("true")),
            ("workspace", entry.workspace.as_deref()),
            ("project", entry.project.as_deref()),
        ];
        Ok(client.post(&client::path("/v1/apply", &query), Content::Yaml(text)).await?)
    }

    fn show(&self, answer: &Value, paint: Paint) -> anyhow::Result<()> {
        match self.output {
            Format::Json => print(&json(answer)?),
            Format::Yaml => print(&yaml(answer)?),
            Format::Name => {
                print(&answer["deployment_id"].as_str().map(|id| format!("{id}\n")).unwrap_or_default())
            }
            Format::Table | Format::Wide => {
                if !differs(answer) {
                    say("nothing differs");
                }
                print(&difference(answer, &self.file, paint))
            }
        }
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let limit = BYTES_MAX as u64 + 1;
    let done = if file == Path::new("-") {
        std::io::stdin().take(limit).read_to_string(&mut text)
    } else {
        let opened = std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        opened.take(limit).read_to_string(&mut text)
    };
    done.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text)
}

fn differs(answer: &Value) -> bool {
    let some = |name: &str| answer[name].as_array().is_some_and(|list| !list.is_empty());
    some("created") || some("changes") || answer["deploys"] == true
}

/// What differs, as people know it from `diff`: a line that goes, a line that comes.
fn difference(answer: &Value, file: &Path, paint: Paint) -> String {
    if !differs(answer) {
        return String::new();
    }
    let list = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
    let name = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let mut lines = vec![
        paint.data(Colour::Bold, &format!("--- {} {}", name("app"), name("environment"))),
        paint.data(Colour::Bold, &format!("+++ {}", file.display())),
    ];
    for made in list("created") {
        let made = made.as_str().unwrap_or_default().to_owned();
        lines.push(paint.data(Colour::Green, &format!("+{made}: new")));
    }
    for change in list("changes") {
        let field = change["field"].as_str().unwrap_or_default();
        for (mark, colour, value) in
            [("-", Colour::Red, &change["from"]), ("+", Colour::Green, &change["to"])]
        {
            if !value.is_null() {
                lines.push(paint.data(colour, &format!("{mark}{field}: {}", plain(value))));
            }
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// A value as a document has it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_init_writes_is_a_document() {
        let text = TEMPLATE.replace("{app}", "shop/web").replace("{image}", "web:1");
        let document = Document::parse(&text).unwrap();
        assert_eq!(document.app.app.as_str(), "web");
        // Also with everything that it only mentions.
        let uncommented: Vec<&str> =
            text.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line)).collect();
        let document = Document::parse(&uncommented.join("\n")).unwrap();
        document.settings(&model::environment::Settings::default()).unwrap();
        for section in control::document::SECTIONS {
            assert!(
                document.change().contains_key(section.field.name),
                "{} is not mentioned",
                section.field.name
            );
        }
    }

    #[test]
    fn a_difference_reads_like_one() {
        let answer = json!({
            "app": "acme/shop/web", "environment": "production", "created": ["environment"], "deploys": true,
            "changes": [
                { "field": "image", "from": "web:1", "to": "web:2" },
                { "field": "regions", "from": [], "to": ["aws/a", "aws/b"] },
                { "field": "health.path", "from": "/a", "to": null },
            ],
        });
        let told = difference(&answer, Path::new("app.yaml"), Paint::never());
        let expected = "\
--- acme/shop/web production
+++ app.yaml
+environment: new
-image: web:1
+image: web:2
-regions: []
+regions: [aws/a, aws/b]
-health.path: /a
";
        assert_eq!(told, expected);
        assert!(!differs(&json!({ "created": [], "changes": [], "deploys": false })));
    }
}
