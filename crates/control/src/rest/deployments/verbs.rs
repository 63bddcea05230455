//! What is asked of a deployment that is there. Each verb is a function of `deploy`, made in one audited change.

use std::collections::BTreeMap;

use model::{id::DeploymentId, invalid::Problems, name::RegionKey};
use store::Write;

use super::show;
use crate::{
    deploy::{self, Refused, Scale},
    event::Draft,
    rest::{
        call::{Call, Reply},
        problem::Problem,
        schema::Reader,
        settings::read_scaling,
    },
};

enum Verb {
    Promote,
    Rollback(Option<DeploymentId>),
    Stop,
    Start,
    Cancel,
    Scale(Scale),
}

pub(super) async fn promote(call: Call) -> Result<Reply, Problem> {
    call.verb(&Verb::Promote).await
}

pub(super) async fn stop(call: Call) -> Result<Reply, Problem> {
    call.verb(&Verb::Stop).await
}

pub(super) async fn start(call: Call) -> Result<Reply, Problem> {
    call.verb(&Verb::Start).await
}

pub(super) async fn cancel(call: Call) -> Result<Reply, Problem> {
    call.verb(&Verb::Cancel).await
}

pub(super) async fn rollback(call: Call) -> Result<Reply, Problem> {
    // Before the body is judged: to a stranger there is nothing to judge it for.
    call.deployment(call.id(0)?).await?;
    let value = call.json()?;
    let to = call.read(&value, |reader, problems| Some(reader.parse(&mut problems.whole(), "to")))?;
    call.verb(&Verb::Rollback(to)).await
}

pub(super) async fn scale(call: Call) -> Result<Reply, Problem> {
    call.deployment(call.id(0)?).await?;
    let value = call.json()?;
    let scale = call.read(&value, read_scale)?;
    call.verb(&Verb::Scale(scale)).await
}

fn read_scale(reader: &Reader<'_>, problems: &mut Problems) -> Option<Scale> {
    let at = &mut problems.whole();
    match (reader.object("scaling"), reader.objects("regions")) {
        (Some(all), None) => read_scaling(&all, &mut at.field("scaling")).map(Scale::All),
        (None, Some(items)) => {
            let mut wanted = BTreeMap::new();
            for (nth, item) in items {
                let (mut regions, one) = (at.field("regions"), item?);
                let mut field = regions.index(nth);
                let region: Option<RegionKey> = one.parse(&mut field, "region");
                let scaling = one.object("scaling");
                let scaling = scaling.and_then(|scaling| read_scaling(&scaling, &mut field.field("scaling")));
                let (region, scaling) = region.zip(scaling)?;
                let is_new = wanted.insert(region, scaling).is_none();
                field.field("region").require(is_new, "is there already");
            }
            Some(Scale::Regions(wanted))
        }
        (Some(_), Some(_)) => {
            at.add("has either `scaling` or `regions`, not both");
            None
        }
        (None, None) => {
            at.add("needs `scaling` or `regions`");
            None
        }
    }
}

impl Verb {
    /// Does it, and says which deployment it is about from then on.
    async fn act(&self, write: &mut Write, draft: &Draft, id: DeploymentId) -> Result<DeploymentId, Refused> {
        match self {
            Verb::Promote => deploy::promote(write, draft, id).await.map(|made| made.id),
            Verb::Rollback(to) => deploy::rollback(write, draft, id, *to).await.map(|made| made.id),
            Verb::Stop => deploy::stop(write, draft, id).await.map(|made| made.id),
            Verb::Start => deploy::start(write, draft, id).await.map(|made| made.id),
            Verb::Cancel => deploy::cancel(write, draft, id).await.map(|made| made.id),
            Verb::Scale(scale) => deploy::scale(write, draft, id, scale).await.map(|_| id),
        }
    }
}

impl Call {
    /// Does one thing to the deployment of the path, and answers with the deployment that it is about from then on.
    async fn verb(&self, verb: &Verb) -> Result<Reply, Problem> {
        let (deployment, _) = self.deployment(self.id(0)?).await?;
        self.change(async |mut change| {
            let about = verb.act(&mut change.write, &change.draft, deployment.id).await?;
            let (about, progress) = change.write.deployment(about).await?;
            let reply = Reply::accepted(show(&about, &progress));
            Ok(change.done(Some(deployment.workspace), &deployment.id, reply))
        })
        .await
    }
}
