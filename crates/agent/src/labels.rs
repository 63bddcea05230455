//! Whose an object is: one type that makes the labels, reads them back, and makes the selectors.

use std::{collections::BTreeMap, str::FromStr};

use model::{
    id::{AppId, DeploymentId, EnvironmentId, NetworkPolicyId, ProjectId, SentinelId, WorkspaceId},
    kind::Kind,
    name::Shard,
    watch::Key,
};
use serde_json::Value;

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const KRANE: &str = "krane";
const COMPONENT: &str = "app.kubernetes.io/component";
const WORKSPACE: &str = "unkey.com/workspace.id";
const PROJECT: &str = "unkey.com/project.id";
const APP: &str = "unkey.com/app.id";
const ENVIRONMENT: &str = "unkey.com/environment.id";
const DEPLOYMENT: &str = "unkey.com/deployment.id";
const SENTINEL: &str = "unkey.com/sentinel.id";
const NETWORK_POLICY: &str = "unkey.com/networkpolicy.id";
pub(crate) const SHARD: &str = "unkey.com/shard";

/// What an object belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub kind: Kind,
    pub subject: Subject,
    pub belonging: Belonging,
    /// A namespace, and what it has once, is shared by all shards of a cluster.
    pub shard: Option<Shard>,
}

/// Which of a kind's things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Deployment(DeploymentId),
    Sentinel(SentinelId),
    NetworkPolicy(NetworkPolicyId),
    /// Something that all of the kind's things in one environment share.
    Environment,
    /// A namespace, or what it has once.
    Namespace,
}

/// The user's containers it is in. A network policy says only what its author said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Belonging {
    pub workspace: Option<WorkspaceId>,
    pub project: Option<ProjectId>,
    pub app: Option<AppId>,
    pub environment: Option<EnvironmentId>,
}

impl Owner {
    /// Whether the objects of several keys are this one.
    pub fn is_shared(&self) -> bool {
        match self.subject {
            Subject::Deployment(_) | Subject::Sentinel(_) | Subject::NetworkPolicy(_) => false,
            Subject::Environment | Subject::Namespace => true,
        }
    }

    /// What its stream calls the thing that it belongs to; nothing, if it is shared.
    pub fn key(&self) -> Option<Key> {
        match &self.subject {
            Subject::Deployment(id) => Some(Key::new(id.to_string())),
            Subject::Sentinel(id) => Some(Key::new(id.to_string())),
            Subject::NetworkPolicy(id) => Some(Key::new(id.to_string())),
            Subject::Environment | Subject::Namespace => None,
        }
    }

    pub fn labels(&self) -> BTreeMap<&'static str, String> {
        let Belonging { workspace, project, app, environment } = self.belonging;
        let subject = match &self.subject {
            Subject::Deployment(id) => Some((DEPLOYMENT, id.to_string())),
            Subject::Sentinel(id) => Some((SENTINEL, id.to_string())),
            Subject::NetworkPolicy(id) => Some((NETWORK_POLICY, id.to_string())),
            Subject::Environment | Subject::Namespace => None,
        };
        let some = |key, id: Option<String>| id.map(|id| (key, id));
        let all = [
            Some((MANAGED_BY, KRANE.to_owned())),
            Some((COMPONENT, self.kind.as_str().to_owned())),
            some(WORKSPACE, workspace.map(|id| id.to_string())),
            some(PROJECT, project.map(|id| id.to_string())),
            some(APP, app.map(|id| id.to_string())),
            some(ENVIRONMENT, environment.map(|id| id.to_string())),
            subject,
            some(SHARD, self.shard.as_ref().map(ToString::to_string)),
        ];
        all.into_iter().flatten().collect()
    }

    /// Reads the labels of an object; nothing, if it is none of ours or does not say whose it is.
    pub fn read(labels: &Value) -> Option<Owner> {
        if labels[MANAGED_BY] != KRANE {
            return None;
        }
        let kind: Kind = parsed(&labels[COMPONENT])?;
        let belonging = read_belonging(labels);
        let own = match kind {
            Kind::Deployment => &labels[DEPLOYMENT],
            Kind::Sentinel => &labels[SENTINEL],
            Kind::NetworkPolicy => &labels[NETWORK_POLICY],
        };
        let subject = match kind {
            _ if own.is_null() && belonging.environment.is_some() => Subject::Environment,
            _ if own.is_null() => Subject::Namespace,
            Kind::Deployment => Subject::Deployment(parsed(own)?),
            Kind::Sentinel => Subject::Sentinel(parsed(own)?),
            Kind::NetworkPolicy => Subject::NetworkPolicy(parsed(own)?),
        };
        Some(Owner { kind, subject, belonging, shard: parsed(&labels[SHARD]) })
    }

    /// What the pods of a `ReplicaSet` or Deployment are found by. It can never be changed, so nothing else is in it.
    pub fn pod_selector(&self) -> BTreeMap<&'static str, String> {
        let keys = [DEPLOYMENT, SENTINEL];
        self.labels().into_iter().filter(|(key, _)| keys.contains(key)).collect()
    }
}

/// What a kind's pods of one environment are found by, whichever deployment or sentinel they are of.
///
/// # Panics
/// If it is not said which environment.
pub fn environment_selector(kind: Kind, belonging: &Belonging) -> BTreeMap<&'static str, String> {
    let Belonging { workspace, environment, .. } = belonging;
    let (workspace, environment) = workspace.zip(*environment).expect("it is in an environment");
    [
        (COMPONENT, kind.as_str().to_owned()),
        (WORKSPACE, workspace.to_string()),
        (ENVIRONMENT, environment.to_string()),
    ]
    .into()
}

/// What the labels of an object that somebody else wrote say of where it belongs.
pub fn read_belonging(labels: &Value) -> Belonging {
    Belonging {
        workspace: parsed(&labels[WORKSPACE]),
        project: parsed(&labels[PROJECT]),
        app: parsed(&labels[APP]),
        environment: parsed(&labels[ENVIRONMENT]),
    }
}

/// Selects everything of ours in one shard; without one, also what no shard has for itself.
pub fn selector(kind: Option<Kind>, shard: Option<&Shard>) -> String {
    let terms = [
        Some(format!("{MANAGED_BY}={KRANE}")),
        kind.map(|kind| format!("{COMPONENT}={kind}")),
        shard.map(|shard| format!("{SHARD}={shard}")),
    ];
    let terms: Vec<String> = terms.into_iter().flatten().collect();
    terms.join(",")
}

fn parsed<T: FromStr>(label: &Value) -> Option<T> {
    label.as_str()?.parse().ok()
}
