//! What can be found wrong: a table of checks over what was asked for.

use std::collections::BTreeMap;

use serde_json::Value;

/// Everything that was asked for. A list that could not be had says why: `forbidden`, `unauthenticated`, or a sentence.
#[derive(Debug)]
pub(super) struct Facts {
    pub url: String,
    pub has_token: bool,
    pub description: Result<Value, String>,
    pub lists: BTreeMap<&'static str, Result<Vec<Value>, String>>,
}

impl Default for Facts {
    fn default() -> Facts {
        let (url, lists) = (String::new(), BTreeMap::new());
        Facts { url, has_token: false, description: Ok(Value::Null), lists }
    }
}

/// What one check found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub check: &'static str,
    pub grade: Grade,
    pub found: String,
    pub advice: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grade {
    Well,
    /// It could not be looked at, with this token or now.
    Unknown,
    Wrong,
}

impl Grade {
    pub(super) fn word(self) -> &'static str {
        match self {
            Grade::Well => "ok",
            Grade::Unknown => "unknown",
            Grade::Wrong => "wrong",
        }
    }
}

/// One thing that can be wrong.
struct Check {
    name: &'static str,
    look: Look,
    advice: &'static str,
}

/// How it is seen.
enum Look {
    /// At everything.
    All(fn(&Facts) -> Result<String, String>),
    /// At each thing of a list: what is wrong with it, if anything.
    Each(&'static str, fn(&Value) -> Option<String>),
    /// That a list is not empty.
    Some(&'static str),
}

const CHECKS: &[Check] = &[
    Check {
        name: "the control plane answers",
        look: Look::All(|facts| match &facts.description {
            Ok(_) => Ok(facts.url.clone()),
            Err(error) => Err(error.lines().next().unwrap_or_default().to_owned()),
        }),
        advice: "start it, or log in to the right one: krane login URL",
    },
    Check {
        name: "it is a control plane",
        look: Look::All(|facts| match &facts.description {
            Ok(description) if description["info"]["title"] == "Krane" => Ok(String::new()),
            Ok(_) => Err("it describes something else".to_owned()),
            Err(_) => Err("it did not say".to_owned()),
        }),
        advice: "see where you are: krane context",
    },
    Check {
        name: "it is of this version",
        look: Look::All(|facts| {
            let theirs = facts.description.as_ref().ok().and_then(|it| it["info"]["version"].as_str());
            match theirs {
                Some(theirs) if theirs == env!("CARGO_PKG_VERSION") => Ok(theirs.to_owned()),
                Some(theirs) => Err(format!("it is {theirs}, this is {}", env!("CARGO_PKG_VERSION"))),
                None => Err("it did not say".to_owned()),
            }
        }),
        advice: "use a krane of its version",
    },
    Check {
        name: "what is sent to it cannot be read on the way",
        look: Look::All(|facts| {
            let local = ["http://127.", "http://localhost", "http://[::1]"];
            let is_safe =
                facts.url.starts_with("https://") || local.iter().any(|start| facts.url.starts_with(start));
            if is_safe {
                Ok(String::new())
            } else {
                Err(format!("{} is neither https nor this machine", facts.url))
            }
        }),
        advice: "give the control plane a certificate (docs/control.md), and log in to https://",
    },
    Check {
        name: "there is a token",
        look: Look::All(
            |facts| if facts.has_token { Ok(String::new()) } else { Err("there is none".to_owned()) },
        ),
        advice: "log in: krane login URL",
    },
    Check {
        name: "the token is good",
        look: Look::All(|facts| match facts.lists.get("workspaces") {
            Some(Err(code)) if code == "unauthenticated" => {
                Err("it is not known, has expired, or was revoked".to_owned())
            }
            Some(Ok(_)) => Ok(String::new()),
            _ => Err("nobody said".to_owned()),
        }),
        advice: "get another and log in: krane login URL",
    },
    Check {
        name: "there is a workspace",
        look: Look::Some("workspaces"),
        advice: "make one: POST /v1/workspaces",
    },
    Check {
        name: "there is a region",
        look: Look::Some("regions"),
        advice: "make a token for its agent: krane tokens create --name agent --cluster PLATFORM/NAME:default",
    },
    Check {
        name: "regions take what is new",
        look: Look::Each("regions", |region| {
            (region["can_schedule"] == false).then(|| text(region, "region"))
        }),
        advice: "open it again: PATCH /v1/regions/{id} with can_schedule",
    },
    Check {
        name: "clusters take what is new",
        look: Look::Each("clusters", |cluster| {
            (cluster["can_schedule"] == false).then(|| text(cluster, "id"))
        }),
        advice: "open it again: PATCH /v1/clusters/{id} with can_schedule",
    },
    Check {
        name: "every agent was seen once",
        look: Look::Each("clusters", |cluster| {
            (cluster["reachability"] == "never_seen").then(|| text(cluster, "id"))
        }),
        advice: "install the agent there: krane install --print agent",
    },
    Check {
        name: "agents renew their leases",
        look: Look::Each("clusters", |cluster| {
            (cluster["reachability"] == "unreachable").then(|| text(cluster, "id"))
        }),
        advice: "look at the agent's log and whether it reaches the control plane; what runs there goes on",
    },
    Check {
        name: "agents are of this version",
        look: Look::Each("clusters", |cluster| {
            let theirs = cluster["agent_version"].as_str()?;
            let is_ours = theirs.contains(env!("CARGO_PKG_VERSION"));
            (!is_ours).then(|| format!("{} has {theirs}", text(cluster, "id")))
        }),
        advice: "upgrade the agent",
    },
    Check {
        name: "no deletion waits for a word",
        look: Look::Each("clusters", |cluster| {
            let mut held = cluster["held_back"].as_array()?.iter().filter(|held| held["confirmed"] == false);
            let held = held.next()?;
            Some(format!("{} holds back {} of {}", text(cluster, "id"), held["count"], text(held, "kind")))
        }),
        advice: "look at the list, and if it is meant: krane clusters confirm ID --kind KIND --hash HASH",
    },
    Check {
        name: "agents can apply what they are told",
        look: Look::Each("clusters", |cluster| counted(cluster, "failing")),
        advice: "see why: krane get deployments -o wide, krane events --kind apply.failed",
    },
    Check {
        name: "nothing is there that nobody accounts for",
        look: Look::Each("clusters", |cluster| counted(cluster, "orphans")),
        advice: "they are kept until somebody deletes them by kubectl (docs/agent.md)",
    },
    Check {
        name: "sentinels take requests",
        look: Look::Each("sentinels", |sentinel| {
            (sentinel["desired_state"] == "running" && sentinel["health"] == "unhealthy")
                .then(|| text(sentinel, "id"))
        }),
        advice: "see its pods: krane get sentinel ID",
    },
    Check {
        name: "sentinels are all there",
        look: Look::Each("sentinels", |sentinel| {
            let (ready, wanted) = (sentinel["available"].as_u64()?, sentinel["replicas"].as_u64()?);
            let is_short = sentinel["desired_state"] == "running" && ready < wanted;
            is_short.then(|| format!("{} has {ready} of {wanted}", text(sentinel, "id")))
        }),
        advice: "see whether its region has room: krane get sentinel ID",
    },
    Check {
        name: "sentinels can be applied",
        look: Look::Each("sentinels", |sentinel| {
            let reason = sentinel["apply_error"]["message"].as_str()?;
            Some(format!("{}: {reason}", text(sentinel, "id")))
        }),
        advice: "mend what the cluster says; it is tried again by itself",
    },
    Check {
        name: "environments have a region",
        look: Look::Each("environments", |environment| {
            environment["settings"]["regions"].as_array()?.is_empty().then(|| text(environment, "slug"))
        }),
        advice: "name one in the document, and apply it",
    },
    Check {
        name: "no newest deployment has failed",
        look: Look::All(|facts| {
            let Some(Ok(all)) = facts.lists.get("deployments") else { return Err(UNSEEN.to_owned()) };
            let mut newest: BTreeMap<&str, &Value> = BTreeMap::new();
            for one in all {
                newest.entry(one["environment_id"].as_str().unwrap_or_default()).or_insert(one);
            }
            let failed = newest.values().filter(|one| one["status"] == "failed");
            told(failed.map(|one| format!("{}: {}", text(one, "id"), text(one, "reason"))).collect())
        }),
        advice: "see why: krane status ID",
    },
    Check {
        name: "routes lead somewhere",
        look: Look::Each("routes", |route| {
            route["targets"].as_array()?.is_empty().then(|| text(route, "hostname"))
        }),
        advice: "deploy, or promote something: krane promote ID",
    },
];

/// What stands for a list that could not be had.
const UNSEEN: &str = "forbidden";

/// What every check finds, in the order in which to mend it.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    CHECKS
        .iter()
        .map(|check| {
            let (grade, found) = match look(facts, &check.look) {
                Ok(found) => (Grade::Well, found),
                Err(found) if found == UNSEEN => (Grade::Unknown, "this token may not see it".to_owned()),
                Err(found) if found == "unauthenticated" => {
                    (Grade::Unknown, "there is no good token".to_owned())
                }
                Err(found) => (Grade::Wrong, found),
            };
            let advice = (grade == Grade::Wrong).then_some(check.advice);
            Finding { check: check.name, grade, found, advice }
        })
        .collect()
}

fn look(facts: &Facts, look: &Look) -> Result<String, String> {
    let list = |name: &str| match facts.lists.get(name) {
        Some(Ok(items)) => Ok(items.as_slice()),
        Some(Err(why)) => Err(why.lines().next().unwrap_or_default().to_owned()),
        None => Err(UNSEEN.to_owned()),
    };
    match look {
        Look::All(look) => look(facts),
        Look::Each(name, wrong) => told(list(name)?.iter().filter_map(wrong).collect()),
        Look::Some(name) => match list(name)?.len() {
            0 => Err("there is none".to_owned()),
            count => Ok(count.to_string()),
        },
    }
}

/// A few of what is wrong; nothing is well.
fn told(wrong: Vec<String>) -> Result<String, String> {
    match wrong.as_slice() {
        [] => Ok(String::new()),
        [one] => Err(one.clone()),
        [one, rest @ ..] => Err(format!("{one}, and {} more", rest.len())),
    }
}

fn counted(cluster: &Value, what: &str) -> Option<String> {
    let all: u64 = cluster["counts"].as_array()?.iter().filter_map(|counts| counts[what].as_u64()).sum();
    (all > 0).then(|| format!("{} has {all}", text(cluster, "id")))
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or("?").to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn well() -> Facts {
        let cluster = json!({
            "id": "aws.a.default", "can_schedule": true, "reachability": "reachable",
            "agent_version": env!("CARGO_PKG_VERSION"), "counts": [{ "failing": 0, "orphans": 0 }], "held_back": [],
        });
        let sentinel = json!({
            "id": "sen_1", "desired_state": "running", "health": "healthy", "available": 1, "replicas": 1, "apply_error": null,
        });
        let lists = [
            ("workspaces", json!([{ "slug": "acme" }])),
            ("regions", json!([{ "region": "aws/a", "can_schedule": true }])),
            ("clusters", json!([cluster])),
            ("sentinels", json!([sentinel])),
            ("environments", json!([{ "slug": "production", "settings": { "regions": ["aws/a"] } }])),
            (
                "deployments",
                json!([
                    { "id": "dep_2", "environment_id": "env_1", "status": "ready" },
                    { "id": "dep_1", "environment_id": "env_1", "status": "failed", "reason": "it was older" },
                ]),
            ),
            ("routes", json!([{ "hostname": "a.localhost", "targets": [{}] }])),
        ];
        Facts {
            url: "http://127.0.0.1:8080".to_owned(),
            has_token: true,
            description: Ok(json!({ "info": { "title": "Krane", "version": env!("CARGO_PKG_VERSION") } })),
            lists: lists
                .into_iter()
                .map(|(name, list)| (name, Ok(list.as_array().unwrap().clone())))
                .collect(),
        }
    }

    /// The checks that find something wrong once the facts are changed so.
    fn wrong(change: impl FnOnce(&mut Facts)) -> Vec<&'static str> {
        let mut facts = well();
        change(&mut facts);
        let found = findings(&facts).into_iter().filter(|finding| finding.grade == Grade::Wrong);
        found
            .inspect(|finding| assert!(finding.advice.is_some(), "{finding:?}"))
            .map(|finding| finding.check)
            .collect()
    }

    fn set(list: &'static str, pointer: &'static str, value: Value) -> impl FnOnce(&mut Facts) {
        move |facts| {
            let items = facts.lists.get_mut(list).unwrap().as_mut().unwrap();
            *items[0].pointer_mut(pointer).unwrap() = value;
        }
    }

    #[test]
    fn all_is_well_when_all_is_well() {
        assert_eq!(wrong(|_| ()), Vec::<&str>::new());
        assert!(CHECKS.len() >= 20);
    }

    #[test]
    fn every_check_fails_when_its_thing_is_wrong() {
        let mut seen = vec![
            wrong(|facts| facts.description = Err("cannot reach it".to_owned())),
            wrong(|facts| facts.description = Ok(json!({ "info": { "title": "Other", "version": "0" } }))),
            wrong(|facts| facts.url = "http://krane.example.com".to_owned()),
            wrong(|facts| facts.has_token = false),
            wrong(|facts| drop(facts.lists.insert("workspaces", Err("unauthenticated".to_owned())))),
            wrong(|facts| drop(facts.lists.insert("workspaces", Ok(vec![])))),
            wrong(|facts| drop(facts.lists.insert("regions", Ok(vec![])))),
            wrong(set("regions", "/can_schedule", json!(false))),
            wrong(set("clusters", "/can_schedule", json!(false))),
            wrong(set("clusters", "/reachability", json!("never_seen"))),
            wrong(set("clusters", "/reachability", json!("unreachable"))),
            wrong(set("clusters", "/agent_version", json!("0.0.0-old"))),
            wrong(set(
                "clusters",
                "/held_back",
                json!([{ "kind": "deployment", "count": 7, "confirmed": false }]),
            )),
            wrong(set("clusters", "/counts/0/failing", json!(1))),
            wrong(set("clusters", "/counts/0/orphans", json!(2))),
            wrong(set("sentinels", "/health", json!("unhealthy"))),
            wrong(set("sentinels", "/available", json!(0))),
            wrong(set("sentinels", "/apply_error", json!({ "message": "forbidden by quota" }))),
            wrong(set("environments", "/settings/regions", json!([]))),
            wrong(set("deployments", "/status", json!("failed"))),
            wrong(set("routes", "/targets", json!([]))),
        ];
        // One cause each, but for a server that is not there.
        for found in &seen[2..] {
            assert_eq!(found.len(), 1, "{found:?}");
        }
        let seen: std::collections::BTreeSet<_> = seen.drain(..).flatten().collect();
        let missing: Vec<_> =
            CHECKS.iter().filter(|check| !seen.contains(check.name)).map(|check| check.name).collect();
        assert_eq!(missing, Vec::<&str>::new(), "no test makes these fail");
    }

    #[test]
    fn what_a_token_may_not_see_is_unknown_and_not_wrong() {
        let mut facts = well();
        facts.lists.insert("clusters", Err("forbidden".to_owned()));
        let unknown = findings(&facts).into_iter().filter(|finding| finding.grade == Grade::Unknown);
        assert_eq!(unknown.count(), 7);
    }
}
