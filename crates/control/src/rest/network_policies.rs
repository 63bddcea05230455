//! Network policies: what lets an environment's sentinels reach its deployments. Made by the workflow; users look.

use http::Method;
use model::{id::NetworkPolicyId, token::Role};
use serde_json::{Value, json};
use store::{ListedPolicy, NetworkPolicyFilter};

use super::{
    call::{Call, Reply},
    deployments::{APPLY_ERROR, show_apply_error},
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    places::cluster_id,
    problem::Problem,
    route::{Allow, Input, Output, Route},
    schema::{Kind, REGION, Shape, nullable, optional, required},
};

static POLICY: Shape = Shape {
    name: "NetworkPolicy",
    about: "Who may reach a deployment's instances in one cluster.",
    properties: &[
        required("id", Kind::Id("cnp"), "Its id."),
        required("workspace_id", Kind::Id("ws"), "Whose it is."),
        required("environment_id", Kind::Id("env"), "The environment of its deployment."),
        required("deployment_id", Kind::Id("dep"), "What it protects."),
        required("cluster_id", Kind::Text { min: 1, max: 256 }, "Where it is applied."),
        required("region", REGION, "The region of that."),
        required("shard", Kind::Text { min: 1, max: 63 }, "The shard of that."),
        required("namespace", Kind::Text { min: 1, max: 63 }, "The Kubernetes namespace."),
        required("name", Kind::Text { min: 1, max: 253 }, "What Kubernetes calls it."),
        required("policy", Kind::Opaque, "The policy, as Cilium reads it."),
        nullable("apply_error", Kind::Object(&APPLY_ERROR), "Why it cannot be applied."),
    ],
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/network-policies",
        name: "network-policies.list",
        about: "Network policies, the oldest first.",
        allow: Allow::Workspace(Role::Read),
        query: &[
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
            optional("workspace_id", Kind::Id("ws"), "Only those of this workspace."),
            optional("environment_id", Kind::Id("env"), "Only those of this environment."),
            optional("deployment_id", Kind::Id("dep"), "Only those of this deployment."),
        ],
        body: Input::Nothing,
        answer: Output::Page(&POLICY),
        handler: |call| Box::pin(list(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/network-policies/{network_policy_id}",
        name: "network-policies.get",
        about: "One network policy.",
        allow: Allow::Workspace(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&POLICY),
        handler: |call| Box::pin(get(call)),
    },
];

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<NetworkPolicyId>()?;
    let filter = NetworkPolicyFilter {
        workspace: call.workspace_filter()?,
        environment: call.filter("environment_id")?,
        deployment: call.filter("deployment_id")?,
        id: None,
    };
    let found = call.rest.store.list_network_policies(filter, wanted.after, wanted.ask()).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(found, |listed| listed.policy.id.to_string(), show))
}

async fn get(call: Call) -> Result<Reply, Problem> {
    let id: NetworkPolicyId = call.id(0)?;
    let filter = NetworkPolicyFilter { id: Some(id), ..NetworkPolicyFilter::default() };
    let found = call.rest.store.list_network_policies(filter, None, 1).await;
    let found = found.map_err(|error| Problem::store(&error))?.into_iter().next();
    let found = found.ok_or_else(|| Problem::not_found(&id))?;
    call.covers(found.workspace, &id)?;
    Ok(Reply::json(show(&found)))
}

fn show(listed: &ListedPolicy) -> Value {
    let policy = &listed.policy;
    json!({
        "id": policy.id.to_string(),
        "workspace_id": listed.workspace.to_string(),
        "environment_id": listed.environment.to_string(),
        "deployment_id": policy.deployment.to_string(),
        "cluster_id": cluster_id(&policy.placement),
        "region": policy.placement.region.to_string(),
        "shard": policy.placement.shard.as_str(),
        "namespace": policy.namespace.as_str(),
        "name": policy.name.as_str(),
        "policy": serde_json::from_str::<Value>(policy.policy.as_str()).unwrap_or_default(),
        "apply_error": listed.apply_error.as_ref().map(show_apply_error),
    })
}
