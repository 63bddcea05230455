//! Every kind of thing that can be listed, once: where it is in the API and what its table shows.

use serde_json::Value;

/// A kind of thing.
pub(crate) struct Kind {
    /// One of them.
    pub(crate) name: &'static str,
    /// Many of them, as a table is asked for.
    pub(crate) plural: &'static str,
    /// Short names, as people know them.
    pub(crate) short: &'static [&'static str],
    pub(crate) path: &'static str,
    pub(crate) columns: &'static [Column],
}

/// A column of a kind's table.
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// A JSON pointer into what is listed.
    pub(crate) pointer: &'static str,
    /// Only with `-o wide`.
    pub(crate) wide: bool,
}

const fn column(title: &'static str, pointer: &'static str) -> Column {
    Column { title, pointer, wide: false }
}

const fn wide(title: &'static str, pointer: &'static str) -> Column {
    Column { title, pointer, wide: true }
}

pub(crate) static KINDS: &[Kind] = &[
    Kind {
        name: "workspace",
        plural: "workspaces",
        short: &["ws"],
        path: "/v1/workspaces",
        columns: &[
            column("SLUG", "/slug"),
            column("NAME", "/name"),
            column("CREATED", "/created_at"),
            wide("NAMESPACE", "/namespace"),
        ],
    },
    Kind {
        name: "project",
        plural: "projects",
        short: &["proj"],
        path: "/v1/projects",
        columns: &[
            column("SLUG", "/slug"),
            column("NAME", "/name"),
            column("CREATED", "/created_at"),
            wide("WORKSPACE", "/workspace_id"),
        ],
    },
    Kind {
        name: "app",
        plural: "apps",
        short: &[],
        path: "/v1/apps",
        columns: &[
            column("SLUG", "/slug"),
            column("NAME", "/name"),
            column("CREATED", "/created_at"),
            wide("PROJECT", "/project_id"),
        ],
    },
    Kind {
        name: "environment",
        plural: "environments",
        short: &["env", "envs"],
        path: "/v1/environments",
        columns: &[
            column("SLUG", "/slug"),
            column("APP", "/app_id"),
            column("REGIONS", "/settings/regions"),
            column("MIN", "/settings/scaling/min"),
            column("MAX", "/settings/scaling/max"),
            wide("STRATEGY", "/settings/strategy/kind"),
            wide("PROTECTED", "/delete_protection"),
            wide("CREATED", "/created_at"),
        ],
    },
    Kind {
        name: "deployment",
        plural: "deployments",
        short: &["dep", "deploy"],
        path: "/v1/deployments",
        columns: &[
            column("STATUS", "/status"),
            column("IMAGE", "/image"),
            column("ENVIRONMENT", "/environment"),
            column("CREATED", "/created_at"),
            column("REASON", "/reason"),
            wide("BRANCH", "/git/branch"),
            wide("APP", "/app_id"),
            wide("WANTED", "/desired_state"),
        ],
    },
    Kind {
        name: "route",
        plural: "routes",
        short: &[],
        path: "/v1/routes",
        columns: &[
            column("FOLLOWS", "/follows"),
            column("TARGETS", "/targets"),
            column("PREVIOUS", "/previous"),
            wide("AFFINITY", "/affinity"),
            wide("ENVIRONMENT", "/environment_id"),
        ],
    },
    Kind {
        name: "sentinel",
        plural: "sentinels",
        short: &["sen"],
        path: "/v1/sentinels",
        columns: &[
            column("REGION", "/region"),
            column("HEALTH", "/health"),
            column("READY", "/ready"),
            column("WANTED", "/replicas"),
            wide("IMAGE", "/running_image"),
            wide("ENVIRONMENT", "/environment_id"),
            wide("ADDRESS", "/address"),
        ],
    },
    Kind {
        name: "network-policy",
        plural: "network-policies",
        short: &["cnp"],
        path: "/v1/network-policies",
        columns: &[
            column("NAME", "/name"),
            column("REGION", "/region"),
            column("DEPLOYMENT", "/deployment_id"),
            wide("NAMESPACE", "/namespace"),
            wide("ERROR", "/apply_error/reason"),
        ],
    },
    Kind {
        name: "region",
        plural: "regions",
        short: &[],
        path: "/v1/regions",
        columns: &[column("REGION", "/region"), column("SCHEDULES", "/can_schedule")],
    },
    Kind {
        name: "cluster",
        plural: "clusters",
        short: &[],
        path: "/v1/clusters",
        columns: &[
            column("REGION", "/region"),
            column("SHARD", "/shard"),
            column("AGENT", "/reachability"),
            column("SCHEDULES", "/can_schedule"),
            column("VERSION", "/agent_version"),
            wide("LEASE", "/lease_expires_at"),
            wide("EPOCH", "/epoch"),
        ],
    },
    Kind {
        name: "token",
        plural: "tokens",
        short: &["tok"],
        path: "/v1/tokens",
        columns: &[
            column("NAME", "/name"),
            column("KIND", "/kind"),
            column("ROLE", "/role"),
            column("EXPIRES", "/expires_at"),
            column("USED", "/last_used_at"),
            wide("WORKSPACE", "/workspace_id"),
            wide("CLUSTER", "/cluster_id"),
            wide("REVOKED", "/revoked_at"),
        ],
    },
    Kind {
        name: "event",
        plural: "events",
        short: &["ev"],
        path: "/v1/events",
        columns: &[
            column("AT", "/at"),
            column("KIND", "/kind"),
            column("DEPLOYMENT", "/deployment_id"),
            column("CLUSTER", "/cluster_id"),
            wide("CHANGE", "/change_id"),
        ],
    },
    Kind {
        name: "audit-entry",
        plural: "audit-log",
        short: &["audit"],
        path: "/v1/audit-log",
        columns: &[
            column("AT", "/at"),
            column("ACTION", "/action"),
            column("SUBJECT", "/subject"),
            column("TOKEN", "/token_id"),
            wide("REQUEST", "/request_id"),
        ],
    },
];

impl Kind {
    /// The kind that somebody names, in one of its forms.
    pub(crate) fn find(word: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.name == word || kind.plural == word || kind.short.contains(&word))
    }

    pub(crate) fn titles(&self, is_wide: bool) -> Vec<&'static str> {
        std::iter::once("ID").chain(self.shown(is_wide).map(|column| column.title)).collect()
    }

    pub(crate) fn row(&self, item: &Value, is_wide: bool) -> Vec<String> {
        let cells = self.shown(is_wide).map(|column| cell(item.pointer(column.pointer)));
        std::iter::once(id(item)).chain(cells).collect()
    }

    fn shown(&self, is_wide: bool) -> impl Iterator<Item = &'static Column> + use<> {
        self.columns.iter().filter(move |column| is_wide || !column.wide)
    }
}

/// What a thing is called in paths; a route by its hostname.
pub(crate) fn id(item: &Value) -> String {
    cell(item.get("id").or_else(|| item.get("hostname")))
}

/// A value as a cell: a list by its elements, and nothing for nothing.
pub(crate) fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => {
            let items: Vec<String> = items.iter().map(|item| cell(Some(item))).collect();
            if items.is_empty() { "-".to_owned() } else { items.join(",") }
        }
        // The share of a deployment in a route.
        Some(Value::Object(target)) if target.contains_key("weight") => {
            format!("{}:{}", cell(target.get("deployment_id")), cell(target.get("weight")))
        }
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn no_word_means_two_kinds() {
        let mut seen = BTreeSet::new();
        for kind in KINDS {
            for word in [kind.name, kind.plural].iter().chain(kind.short) {
                assert!(seen.insert(*word), "{word}");
                assert_eq!(Kind::find(word).unwrap().name, kind.name);
            }
        }
    }

    #[test]
    fn a_cell_shows_what_there_is() {
        assert_eq!(cell(None), "-");
        assert_eq!(cell(Some(&json!(["a", 1]))), "a,1");
        assert_eq!(cell(Some(&json!(true))), "true");
    }
}
