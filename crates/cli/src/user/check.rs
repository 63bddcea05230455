//! `krane check`: what is wrong with a control plane and its clusters, and what to do about it.
//!
//! ```text
//! ask for everything once ─▶ Facts ─▶ findings: pure, one for each thing that can be wrong ─▶ a line each
//! ```

mod findings;

use clap::Args;
use serde_json::{Value, json};

use self::findings::{Facts, Finding, Grade, findings};
use super::{
    End, Session,
    access::Access,
    client::Client,
    get::list,
    output::{self, Colour, Format, Paint, print},
    trouble::Trouble,
};

const EXAMPLES: &str = "Exit codes: 0 all is well, 1 nothing could be asked, 6 something is wrong.

Examples:
  krane check
  krane check -o json
  krane check --context work";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    access: Access,
}

impl Check {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<End> {
        let (client, entry) = self.access.open(session)?;
        let mut facts =
            Facts { url: entry.url.clone(), has_token: entry.token.is_some(), ..Facts::default() };
        facts.description = client.get("/openapi.json").await.map_err(|trouble| trouble.to_string());
        for (name, path) in LISTS {
            facts.lists.insert(name, ask(&client, path).await);
        }
        let found = findings(&facts);
        self.show(&found, session.paint)?;
        let is_well = found.iter().all(|finding| finding.grade != Grade::Wrong);
        Ok(if is_well { End::Done } else { End::Unwell })
    }

    fn show(&self, found: &[Finding], paint: Paint) -> anyhow::Result<()> {
        let shown = |finding: &Finding| {
            json!({
                "check": finding.check, "grade": finding.grade.word(), "found": finding.found, "advice": finding.advice,
            })
        };
        let whole = json!({ "data": found.iter().map(shown).collect::<Vec<_>>() });
        print(&match self.output {
            Format::Json => output::json(&whole)?,
            Format::Yaml => output::yaml(&whole)?,
            Format::Name => {
                let wrong = found.iter().filter(|finding| finding.grade == Grade::Wrong);
                wrong.map(|finding| format!("{}\n", finding.check)).collect::<Vec<_>>().concat()
            }
            Format::Table | Format::Wide => {
                found.iter().map(|finding| line(finding, paint)).collect::<Vec<_>>().concat()
            }
        })
    }
}

/// What is asked for.
const LISTS: [(&str, &str); 7] = [
    ("workspaces", "/v1/workspaces"),
    ("regions", "/v1/regions"),
    ("clusters", "/v1/clusters"),
    ("sentinels", "/v1/sentinels"),
    ("environments", "/v1/environments"),
    ("deployments", "/v1/deployments"),
    ("routes", "/v1/routes"),
];

/// A list, or why there is none: a code, or a sentence.
async fn ask(client: &Client, path: &str) -> Result<Vec<Value>, String> {
    list(client, path, &[]).await.map_err(|error| match error.downcast_ref::<Trouble>() {
        Some(trouble) if trouble.is("forbidden") => "forbidden".to_owned(),
        Some(trouble) if trouble.is("unauthenticated") => "unauthenticated".to_owned(),
        _ => error.to_string(),
    })
}

fn line(finding: &Finding, paint: Paint) -> String {
    let (mark, colour) = match finding.grade {
        Grade::Well => ("ok", Colour::Green),
        Grade::Unknown => ("??", Colour::Faint),
        Grade::Wrong => ("NO", Colour::Red),
    };
    let found = if finding.found.is_empty() { String::new() } else { format!(": {}", finding.found) };
    let advice = match (&finding.advice, finding.grade) {
        (Some(advice), Grade::Wrong) => format!("      {advice}\n"),
        _ => String::new(),
    };
    format!("{}  {}{found}\n{advice}", paint.data(colour, mark), finding.check)
}
