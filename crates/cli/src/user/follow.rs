//! Following a deployment until it ends: its steps and regions as they move, on a terminal or as plain lines.
//!
//! What is shown is a pure function of what the API says; only what differs from the last look is printed when nobody
//! looks at a terminal.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use runtime::clock::Clock;
use serde_json::Value;

use super::{
    End, Session,
    client::Client,
    context::Entry,
    door,
    get::list,
    kind::cell,
    output::{Colour, Paint, say},
};

/// How often a deployment is looked at.
const AGAIN: Duration = Duration::from_millis(300);
/// Reasons that are shown of one region.
const REASONS: usize = 3;

/// What a verb waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// It runs and has its traffic.
    Ready,
    /// The same, and it is what is live.
    Live,
    /// As many run as are wanted, wherever that can be known.
    Scaled,
    /// Nothing of it runs.
    Stopped,
    /// It goes no further.
    Over,
}

/// Looks at a deployment until it is where it is going, or never will be; says how to ask it, if it can be asked.
pub(crate) async fn follow(
    (client, entry): (&Client, &Entry),
    session: &Session,
    id: &str,
    (goal, timeout): (Goal, Option<Duration>),
) -> anyhow::Result<End> {
    let clock = Clock::system();
    let until = timeout.map(|timeout| clock.instant() + timeout);
    let mut screen = Screen::new();
    loop {
        let detail = client.get(&format!("/v1/deployments/{}", super::client::encode(id))).await?;
        let mut seen = lines(&detail, session.paint);
        seen.extend(canary(client, &detail, session.paint).await?);
        screen.show(&seen)?;
        let is_there = match goal {
            Goal::Live => is_live(client, &detail).await?,
            Goal::Scaled => is_scaled(&detail),
            Goal::Ready | Goal::Stopped | Goal::Over => true,
        };
        if let Some(end) = ended(&detail, goal).filter(|end| is_there || *end != End::Done) {
            say(&last_words(&detail, end, session.paint));
            if end == End::Done && matches!(goal, Goal::Ready | Goal::Live | Goal::Scaled) {
                for one in door::to_deployment(client, entry, &detail).await? {
                    say(&format!("  {}", one.line()));
                }
            }
            return Ok(end);
        }
        if until.is_some_and(|until| clock.instant() >= until) {
            say(&format!("{id} is still under way; follow it with: krane status {id} --follow"));
            return Ok(End::Late);
        }
        clock.sleep(AGAIN).await;
    }
}

/// How much of the traffic it has while it shares it, and how it was judged last.
async fn canary(client: &Client, detail: &Value, paint: Paint) -> anyhow::Result<Vec<String>> {
    if detail["status"] != "network" {
        return Ok(Vec::new());
    }
    let (id, environment) = (cell(detail.get("id")), cell(detail.get("environment_id")));
    let routes = list(client, "/v1/routes", &[("environment_id", &environment)]).await?;
    let query = [("deployment_id", Some(id.as_str())), ("kind", Some("canary.judged")), ("limit", Some("1"))];
    let judged = client.get(&super::client::path("/v1/events", &query)).await?;
    Ok(canary_lines(&id, &routes, &judged["data"][0], paint))
}

fn canary_lines(id: &str, routes: &[Value], judged: &Value, paint: Paint) -> Vec<String> {
    let shared = routes.iter().find_map(|route| {
        let targets = route["targets"].as_array().filter(|targets| targets.len() > 1)?;
        let own = targets.iter().find(|target| target["deployment_id"] == id)?["weight"].as_u64()?;
        let all: u64 = targets.iter().filter_map(|target| target["weight"].as_u64()).sum();
        Some(own * 100 / all.max(1))
    });
    let Some(share) = shared else { return Vec::new() };
    let share = paint.talk(Colour::Yellow, &format!("{share} % of the traffic"));
    let mut lines = vec![format!("  {:<11} {share}", "canary")];
    if let Some(fields) = judged["fields"].as_object() {
        let of = |name: &str| cell(fields.get(name));
        lines.push(format!(
            "    at {} %: {}: {}; {}",
            of("share"),
            of("verdict"),
            of("reason"),
            of("message")
        ));
    }
    lines
}

/// How it ended, if it has.
fn ended(detail: &Value, goal: Goal) -> Option<End> {
    let status = detail["status"].as_str().unwrap_or_default();
    let placed = || detail["topology"].as_array().into_iter().flatten();
    let is_gone = || placed().all(|place| place["desired_state"] == "stopped" && place["running"] == 0);
    match (status, goal) {
        ("failed", _) => Some(End::Failed),
        ("stopped", Goal::Stopped) => is_gone().then_some(End::Done),
        ("cancelled" | "stopped", Goal::Over)
        | ("ready", Goal::Ready | Goal::Live | Goal::Scaled | Goal::Over) => Some(End::Done),
        // What was stopped is started first when it is to be live.
        ("cancelled" | "superseded", _) | ("stopped", Goal::Ready | Goal::Scaled) => Some(End::Otherwise),
        _ => None,
    }
}

/// Whether most of what is live, or of its environment, is led to it.
async fn is_live(client: &Client, detail: &Value) -> anyhow::Result<bool> {
    let environment = cell(detail.get("environment_id"));
    let routes = list(client, "/v1/routes", &[("environment_id", &environment)]).await?;
    Ok(leads_to(&routes, &cell(detail.get("id"))))
}

fn leads_to(routes: &[Value], id: &str) -> bool {
    let of = |follows: &str| routes.iter().find(|route| route["follows"] == follows);
    let targets = of("live").or_else(|| of("environment")).and_then(|route| route["targets"].as_array());
    let heaviest = targets.into_iter().flatten().max_by_key(|target| target["weight"].as_u64());
    heaviest.is_some_and(|target| target["deployment_id"] == id)
}

fn is_scaled(detail: &Value) -> bool {
    let is_full = |place: &Value| {
        let (running, scaling) = (place["running"].as_u64().unwrap_or(0), &place["scaling"]);
        let bound = |name: &str| scaling[name].as_u64();
        running >= bound("min").unwrap_or(0) && bound("max").is_none_or(|max| running <= max)
    };
    let mut placed = detail["topology"].as_array().into_iter().flatten();
    placed.all(|place| place["reachability"] != "reachable" || is_full(place))
}

/// What there is to see of a deployment.
pub(crate) fn lines(detail: &Value, paint: Paint) -> Vec<String> {
    let mut lines = vec![format!(
        "{} {} {}",
        detail["id"].as_str().unwrap_or_default(),
        cell(detail.get("image")),
        coloured(detail["status"].as_str().unwrap_or_default(), paint)
    )];
    for step in detail["steps"].as_array().into_iter().flatten() {
        let name = step["step"].as_str().unwrap_or_default();
        let state = match (step["error"].as_str(), step["ended_at"].as_str()) {
            (Some(error), _) => paint.talk(Colour::Red, error),
            (None, Some(_)) => paint.talk(Colour::Green, "done"),
            (None, None) => step["note"].as_str().unwrap_or("…").to_owned(),
        };
        lines.push(format!("  {name:<11} {state}"));
    }
    for place in detail["topology"].as_array().into_iter().flatten() {
        lines.extend(place_lines(detail, place, paint));
    }
    lines
}

/// A region: instances that are ready of those that are wanted, and why others are not.
fn place_lines(detail: &Value, place: &Value, paint: Paint) -> Vec<String> {
    let (ready, wanted) =
        (place["running"].as_u64().unwrap_or(0), place["scaling"]["min"].as_u64().unwrap_or(0));
    let is_stopped = place["desired_state"] == "stopped";
    let colour = if ready >= wanted || is_stopped { Colour::Green } else { Colour::Yellow };
    let count = if is_stopped { format!("{ready} left") } else { format!("{ready}/{wanted} ready") };
    let mut line = format!("  {:<20} {}", cell(place.get("region")), paint.talk(colour, &count));
    if place["reachability"] == "unreachable" {
        line.push_str("  ");
        line.push_str(&paint.talk(Colour::Yellow, "unreachable"));
    }
    let mut lines = vec![line];
    let mut reasons: Vec<String> = Vec::new();
    if let Some(message) = place["apply_error"]["message"].as_str() {
        reasons.push(format!("{}: {message}", cell(place["apply_error"].get("reason"))));
    }
    for instance in detail["instances"].as_array().into_iter().flatten() {
        let is_here = instance["cluster_id"] == place["cluster_id"];
        if let (true, Some(reason)) = (is_here, instance["reason"].as_str()) {
            let message = instance["message"].as_str().map(|text| format!(": {text}")).unwrap_or_default();
            let told = format!("{reason}{message}");
            if !reasons.contains(&told) {
                reasons.push(told);
            }
        }
    }
    lines.extend(
        reasons.into_iter().take(REASONS).map(|reason| format!("    {}", paint.talk(Colour::Red, &reason))),
    );
    lines
}

fn last_words(detail: &Value, end: End, paint: Paint) -> String {
    let (id, status) = (cell(detail.get("id")), cell(detail.get("status")));
    let reason = detail["reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
    match end {
        End::Done => paint.talk(Colour::Green, &format!("{id} is {status}")),
        End::Failed => {
            let told = paint.talk(Colour::Red, &format!("{id} failed{reason}"));
            format!("{told}\n  what served before still serves; see more with: krane status {id}")
        }
        _ => format!("{id} is {status}{reason}"),
    }
}

fn coloured(status: &str, paint: Paint) -> String {
    let colour = match status {
        "ready" => Colour::Green,
        "failed" => Colour::Red,
        _ => Colour::Yellow,
    };
    paint.talk(colour, status)
}

/// A few lines that are painted over on a terminal, and otherwise only grow.
#[derive(Default)]
struct Screen {
    is_terminal: bool,
    painted: usize,
    said: Vec<String>,
}

impl Screen {
    fn new() -> Screen {
        Screen { is_terminal: io::stderr().is_terminal(), ..Screen::default() }
    }

    fn show(&mut self, lines: &[String]) -> anyhow::Result<()> {
        let mut out = io::stderr().lock();
        if self.is_terminal {
            if self.painted > 0 {
                // Up to where we began, and away with what was there.
                write!(out, "\u{1b}[{}A\u{1b}[J", self.painted)?;
            }
            for line in lines {
                writeln!(out, "{line}")?;
            }
            self.painted = lines.len();
        } else {
            for line in news(&self.said, lines) {
                writeln!(out, "{}", line.trim_start())?;
            }
            lines.clone_into(&mut self.said);
        }
        Ok(out.flush()?)
    }
}

/// The lines that were not said at the last look.
fn news<'a>(said: &[String], lines: &'a [String]) -> Vec<&'a String> {
    lines.iter().filter(|line| !said.contains(line)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn detail(status: &str) -> Value {
        json!({
            "id": "dep_1", "image": "web:1", "status": status, "reason": null,
            "steps": [
                { "step": "starting", "ended_at": "2026-11-18T00:00:00Z", "note": null, "error": null },
                { "step": "deploying", "ended_at": null, "note": "waiting for aws/a", "error": null },
            ],
            "topology": [
                { "cluster_id": "a", "region": "aws/a", "reachability": "reachable", "desired_state": "running",
                  "running": 1, "scaling": { "min": 2 }, "apply_error": null },
                { "cluster_id": "b", "region": "aws/b", "reachability": "unreachable", "desired_state": "running",
                  "running": 0, "scaling": { "min": 2 }, "apply_error": null },
            ],
            "instances": [
                { "cluster_id": "a", "reason": "ImagePullBackOff", "message": "no such image" },
                { "cluster_id": "a", "reason": "ImagePullBackOff", "message": "no such image" },
                { "cluster_id": "a", "reason": null, "message": null },
            ],
        })
    }

    #[test]
    fn steps_regions_and_reasons_are_seen() {
        let expected = "\
dep_1 web:1 deploying
  starting    done
  deploying   waiting for aws/a
  aws/a                1/2 ready
    ImagePullBackOff: no such image
  aws/b                0/2 ready  unreachable";
        assert_eq!(lines(&detail("deploying"), Paint::never()).join("\n"), expected);
    }

    #[test]
    fn a_canary_shows_its_share_and_how_it_was_judged() {
        let routes = [
            json!({ "targets": [{ "deployment_id": "dep_1", "weight": 100 }] }),
            json!({ "targets": [
                { "deployment_id": "dep_0", "weight": 75 }, { "deployment_id": "dep_1", "weight": 25 },
            ] }),
        ];
        let judged = json!({ "fields": {
            "share": "5", "verdict": "promote", "reason": "as good", "message": "canary: 0 %; baseline: 1 %",
        } });
        let told = canary_lines("dep_1", &routes, &judged, Paint::never());
        let expected =
            ["  canary      25 % of the traffic", "    at 5 %: promote: as good; canary: 0 %; baseline: 1 %"];
        assert_eq!(told, expected);
        assert_eq!(canary_lines("dep_1", &routes, &Value::Null, Paint::never()).len(), 1);
        assert_eq!(canary_lines("dep_2", &routes, &judged, Paint::never()), [] as [String; 0]);
    }

    #[test]
    fn piped_lines_are_said_once() {
        let first = lines(&detail("deploying"), Paint::never());
        assert_eq!(news(&[], &first).len(), first.len());
        let second = lines(&detail("network"), Paint::never());
        assert_eq!(news(&first, &second), ["dep_1 web:1 network"]);
    }

    #[test]
    fn it_is_live_once_the_live_route_leads_to_it_and_scaled_once_as_many_run() {
        let route = |follows: &str, id: &str| {
            json!({ "follows": follows, "targets": [
                { "deployment_id": id, "weight": 75 }, { "deployment_id": "dep_9", "weight": 25 },
            ] })
        };
        let routes = [route("deployment", "dep_1"), route("environment", "dep_1"), route("live", "dep_0")];
        assert!(leads_to(&routes, "dep_0") && !leads_to(&routes, "dep_1"));
        assert!(leads_to(&routes[..2], "dep_1") && !leads_to(&routes[..1], "dep_1"));
        let scaled = |running: u64, reachability: &str| {
            is_scaled(&json!({ "topology": [
                { "running": running, "reachability": reachability, "scaling": { "min": 3, "max": 4 } },
            ] }))
        };
        assert!(!scaled(2, "reachable") && scaled(3, "reachable") && scaled(4, "reachable"));
        assert!(!scaled(5, "reachable") && scaled(0, "unreachable"));
    }

    #[test]
    fn every_end_has_its_code() {
        for (status, goal, end) in [
            ("deploying", Goal::Ready, None),
            ("ready", Goal::Ready, Some(End::Done)),
            ("failed", Goal::Ready, Some(End::Failed)),
            ("superseded", Goal::Ready, Some(End::Otherwise)),
            ("cancelled", Goal::Ready, Some(End::Otherwise)),
            ("cancelled", Goal::Over, Some(End::Done)),
            ("stopped", Goal::Ready, Some(End::Otherwise)),
            ("stopped", Goal::Stopped, None),
        ] {
            assert_eq!(ended(&detail(status), goal), end, "{status} {goal:?}");
        }
    }
}
