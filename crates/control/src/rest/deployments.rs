//! Deployments: one image with its settings each; what is asked of them is begun here and done by workflows.

mod create;
mod shapes;
mod verbs;

use std::collections::BTreeMap;

use http::Method;
use model::{
    cluster::Reachability,
    deployment::{Deployment, Progress, Status},
    id::DeploymentId,
    name::{Branch, Placement},
    token::Role,
};
use serde_json::Value;
use store::DeploymentFilter;

pub(super) use self::shapes::{APPLY_ERROR, show, show_apply_error};
use self::shapes::{DEPLOYMENT, DETAIL, NEW, ROLLBACK, SCALE};
use super::{
    call::{Call, Reply},
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    problem::Problem,
    route::{Allow, Handler, Input, Output, Route},
    schema::{Kind, LINE, choice_of, optional},
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/deployments",
        name: "deployments.list",
        about: "Deployments, the newest first.",
        allow: Allow::Workspace(Role::Read),
        query: &[
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
            optional("workspace_id", Kind::Id("ws"), "Only those of this workspace."),
            optional("app_id", Kind::Id("app"), "Only those of this app."),
            optional("environment_id", Kind::Id("env"), "Only those of this environment."),
            optional("status", choice_of!(Status), "Only those that have come so far."),
            optional("branch", LINE, "Only those of this git branch."),
        ],
        body: Input::Nothing,
        answer: Output::Page(&DEPLOYMENT),
        handler: |call| Box::pin(list(call)),
    },
    Route {
        method: Method::POST,
        path: "/v1/deployments",
        name: "deployments.create",
        about: "Deploys an image: settings are the environment's, but for those that are named.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body: Input::Json(&NEW),
        answer: Output::Accepted(&DEPLOYMENT),
        handler: |call| Box::pin(create::create(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/deployments/{deployment_id}",
        name: "deployments.get",
        about: "One deployment, with its steps, where it runs, and its instances.",
        allow: Allow::Workspace(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&DETAIL),
        handler: |call| Box::pin(get(call)),
    },
    verb(
        "/v1/deployments/{deployment_id}/promote",
        "deployments.promote",
        "Makes it live, whatever is live now. One that is stopped is started first.",
        Input::Nothing,
        |call| Box::pin(verbs::promote(call)),
    ),
    verb(
        "/v1/deployments/{deployment_id}/rollback",
        "deployments.rollback",
        "Takes the environment back from it, to what was live before or to `to`.",
        Input::JsonOrNothing(&ROLLBACK),
        |call| Box::pin(verbs::rollback(call)),
    ),
    verb(
        "/v1/deployments/{deployment_id}/stop",
        "deployments.stop",
        "Stops it; refused while a route leads to it.",
        Input::Nothing,
        |call| Box::pin(verbs::stop(call)),
    ),
    verb(
        "/v1/deployments/{deployment_id}/start",
        "deployments.start",
        "Starts it again where it ran before.",
        Input::Nothing,
        |call| Box::pin(verbs::start(call)),
    ),
    verb(
        "/v1/deployments/{deployment_id}/cancel",
        "deployments.cancel",
        "Ends it while it is on its way; routes stay where they are.",
        Input::Nothing,
        |call| Box::pin(verbs::cancel(call)),
    ),
    verb(
        "/v1/deployments/{deployment_id}/scale",
        "deployments.scale",
        "Changes how many instances it has, everywhere or in some regions.",
        Input::Json(&SCALE),
        |call| Box::pin(verbs::scale(call)),
    ),
];

/// A verb is a POST that begins something.
const fn verb(
    path: &'static str,
    name: &'static str,
    about: &'static str,
    body: Input,
    handler: Handler,
) -> Route {
    Route {
        method: Method::POST,
        path,
        name,
        about,
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body,
        answer: Output::Accepted(&DEPLOYMENT),
        handler,
    }
}

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<DeploymentId>()?;
    let filter = DeploymentFilter {
        workspace: call.workspace_filter()?,
        app: call.filter("app_id")?,
        environment: call.filter("environment_id")?,
        status: call.filter("status")?,
        branch: call.filter::<Branch>("branch")?,
    };
    let found = call.rest.store.list_deployments(&filter, wanted.after, wanted.ask()).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(
        found,
        |(deployment, _)| deployment.id.to_string(),
        |(deployment, progress)| show(deployment, progress),
    ))
}

async fn get(call: Call) -> Result<Reply, Problem> {
    let (deployment, progress) = call.deployment(call.id(0)?).await?;
    call.detail(&deployment, &progress).await.map(Reply::json)
}

impl Call {
    /// A deployment that the caller may know of.
    pub(super) async fn deployment(&self, id: DeploymentId) -> Result<(Deployment, Progress), Problem> {
        let found = self.rest.store.deployment(id).await.map_err(|error| Problem::store(&error))?;
        self.covers(found.0.workspace, &id)?;
        Ok(found)
    }

    /// Everything that is known of a deployment.
    async fn detail(&self, deployment: &Deployment, progress: &Progress) -> Result<Value, Problem> {
        let (store, id) = (&self.rest.store, deployment.id);
        let all = async {
            let (steps, placed) = (store.steps_of(id).await?, store.placed(id).await?);
            let (instances, clusters) = (store.instances_of(id).await?, store.clusters().await?);
            let reachable: BTreeMap<Placement, Reachability> =
                clusters.into_iter().map(|cluster| (cluster.placement, cluster.reachability)).collect();
            Ok((steps, placed, instances, reachable))
        };
        let (steps, placed, instances, reachable) = all.await.map_err(|error| Problem::store(&error))?;
        Ok(shapes::show_detail(deployment, progress, &steps, &placed, &instances, &reachable))
    }
}
