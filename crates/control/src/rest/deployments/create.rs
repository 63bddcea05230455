//! A new deployment: what the request says, over what its environment says.

use model::{
    deployment::Git,
    environment::Settings,
    id::EnvironmentId,
    invalid::{Field, Problems},
    name::{ImageRef, Message},
};
use serde_json::Value;

use super::show;
use crate::{
    deploy::{self, NewDeployment, Overrides},
    rest::{
        call::{Call, Reply},
        problem::Problem,
        schema::Reader,
        settings,
    },
};

pub(super) async fn create(call: Call) -> Result<Reply, Problem> {
    let value = call.json()?;
    let (environment, image, git) = call.read(&value, |reader, problems| {
        let at = &mut problems.whole();
        let environment: Option<EnvironmentId> = reader.parse(at, "environment_id");
        let image: Option<ImageRef> = reader.parse(at, "image");
        let git = reader.object("git").map(|git| read_git(&git, &mut at.field("git")));
        if let Some(own) = reader.object("settings") {
            // Only for its problems: what it means depends on what it is over.
            settings::from_reader(&own, &mut at.field("settings"));
        }
        let (environment, image) = environment.zip(image)?;
        Some((environment, image, git.unwrap_or_default()))
    })?;
    let found = call.environment(environment).await?.noun;
    call.change(async |mut change| {
        change.write.lock_workspace(found.workspace).await?;
        let settings = change.write.lock_environment(environment).await?.noun.settings;
        let overrides = overrides(&settings, &value["settings"])?;
        let new = NewDeployment { environment, image: image.clone(), git: git.clone(), overrides };
        let made = deploy::create(&mut change.write, &change.draft, &new).await?;
        let (made, progress) = change.write.deployment(made.id).await?;
        let mut reply = Reply::accepted(show(&made, &progress));
        reply.location = Some(format!("/v1/deployments/{}", made.id));
        Ok(change.done(Some(made.workspace), &made.id, reply))
    })
    .await
}

/// What the request names, each merged into what the environment has of it.
fn overrides(settings: &Settings, patch: &Value) -> Result<Overrides, Problem> {
    let Some(named) = patch.as_object() else { return Ok(Overrides::default()) };
    let mut problems = Problems::new();
    let merged = settings::patched(settings, patch, &mut problems.field("settings"));
    let merged = problems.complete(merged).map_err(|invalid| Problem::invalid(&invalid))?;
    let has = |name: &str| named.contains_key(name);
    Ok(Overrides {
        command: has("command").then_some(merged.command),
        port: has("port").then_some(merged.port),
        protocol: has("protocol").then_some(merged.protocol),
        resources: has("resources").then_some(merged.resources),
        scaling: has("scaling").then_some(merged.scaling),
        regions: has("regions").then_some(merged.regions),
        health: has("health").then_some(merged.health),
        shutdown: has("shutdown").then_some(merged.shutdown),
        strategy: has("strategy").then_some(merged.strategy),
        hostnames: has("hostnames").then_some(merged.hostnames),
        secrets: has("secrets").then_some(merged.secrets),
    })
}

fn read_git(reader: &Reader<'_>, at: &mut Field<'_>) -> Git {
    Git {
        sha: reader.parse(at, "sha"),
        branch: reader.parse(at, "branch"),
        message: reader.text("message").map(Message::cut),
        author: reader.parse(at, "author"),
        committed_at: reader.time(at, "committed_at"),
        repository: reader.parse(at, "repository"),
    }
}
