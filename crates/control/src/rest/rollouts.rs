//! Rollouts: a new image or size for every sentinel there is, one after the other.

use http::Method;
use model::{
    id::RolloutId,
    invalid::Problems,
    name::ImageRef,
    rollout::{FleetRollout, FleetTarget, RolloutState},
    size::{CpuMillis, MemoryMib},
    token::Role,
};
use serde_json::{Value, json};
use store::Write;

use super::{
    call::{Call, Reply},
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    problem::Problem,
    route::{Allow, Handler, Input, Output, Route},
    schema::{COUNT, Kind, MESSAGE, Reader, Shape, choice_of, nullable, optional, required},
    sentinels::{CPU, IMAGE, MEMORY},
    time,
};
use crate::{
    deploy::{self, Refused},
    event::Draft,
};

static ROLLOUT: Shape = Shape {
    name: "Rollout",
    about: "A new image or size on its way through the fleet of sentinels.",
    properties: &[
        required("id", Kind::Id("roll"), "Its id."),
        required("state", choice_of!(RolloutState), "How far it is."),
        required("rolls_back", Kind::Boolean, "Whether it takes back what it did."),
        nullable("image", IMAGE, "What sentinels are to run; nothing, if each keeps what it runs."),
        nullable("cpu", CPU, "What each is to get, in thousandths of a core."),
        nullable("memory", MEMORY, "What each is to get, in MiB."),
        nullable("sentinel_id", Kind::Id("sen"), "The sentinel that is under way."),
        required("changed", COUNT, "How many sentinels have what it brings, that one included."),
        nullable("reason", MESSAGE, "Why it is paused."),
        required("created_at", Kind::Time, "When it was begun."),
        required("updated_at", Kind::Time, "When it last came further."),
    ],
};

static NEW: Shape = Shape {
    name: "NewRollout",
    about: "What sentinels are to have. At least one of them; what is not named stays as each has it.",
    properties: &[
        optional("image", IMAGE, "What they are to run."),
        optional("cpu", CPU, "What each is to get, in thousandths of a core."),
        optional("memory", MEMORY, "What each is to get, in MiB."),
    ],
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/sentinels/rollouts",
        name: "rollouts.list",
        about: "Rollouts, the newest first.",
        allow: Allow::Everywhere(Role::Read),
        query: &[LIMIT_PARAMETER, CURSOR_PARAMETER],
        body: Input::Nothing,
        answer: Output::Page(&ROLLOUT),
        handler: |call| Box::pin(list(call)),
    },
    Route {
        method: Method::POST,
        path: "/v1/sentinels/rollouts",
        name: "rollouts.create",
        about: "Begins one: the next sentinel only when the last is healthy with what it brings. There is one at a time.",
        allow: Allow::Everywhere(Role::Admin),
        query: &[],
        body: Input::Json(&NEW),
        answer: Output::Accepted(&ROLLOUT),
        handler: |call| Box::pin(create(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/sentinels/rollouts/{rollout_id}",
        name: "rollouts.get",
        about: "One rollout.",
        allow: Allow::Everywhere(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&ROLLOUT),
        handler: |call| Box::pin(get(call)),
    },
    verb(
        "/v1/sentinels/rollouts/{rollout_id}/pause",
        "rollouts.pause",
        "Lets the sentinel that is under way finish, and tells no other.",
        |call| Box::pin(ask(call, async |write, draft, id| deploy::pause_rollout(write, draft, id).await)),
    ),
    verb(
        "/v1/sentinels/rollouts/{rollout_id}/resume",
        "rollouts.resume",
        "Goes on with one that is paused, in the direction it had.",
        |call| Box::pin(ask(call, async |write, draft, id| deploy::resume_rollout(write, draft, id).await)),
    ),
    verb(
        "/v1/sentinels/rollouts/{rollout_id}/cancel",
        "rollouts.cancel",
        "Ends it; sentinels keep what they have.",
        |call| Box::pin(ask(call, async |write, draft, id| deploy::cancel_rollout(write, draft, id).await)),
    ),
    verb(
        "/v1/sentinels/rollouts/{rollout_id}/rollback",
        "rollouts.rollback",
        "Gives every sentinel what it had, the last first, one after the other.",
        |call| {
            Box::pin(ask(call, async |write, draft, id| deploy::roll_back_rollout(write, draft, id).await))
        },
    ),
];

/// What can be asked of one that is open.
const fn verb(path: &'static str, name: &'static str, about: &'static str, handler: Handler) -> Route {
    Route {
        method: Method::POST,
        path,
        name,
        about,
        allow: Allow::Everywhere(Role::Admin),
        query: &[],
        body: Input::Nothing,
        answer: Output::Accepted(&ROLLOUT),
        handler,
    }
}

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<RolloutId>()?;
    let found = call.rest.store.list_rollouts(wanted.after, wanted.ask()).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(found, |rollout| rollout.id.to_string(), show))
}

async fn get(call: Call) -> Result<Reply, Problem> {
    let found = call.rest.store.rollout(call.id(0)?).await.map_err(|error| Problem::store(&error))?;
    Ok(Reply::json(show(&found)))
}

async fn create(call: Call) -> Result<Reply, Problem> {
    let target = call.read(&call.json()?, |reader, problems| Some(read(reader, problems)))?;
    call.change(async |mut change| {
        let rollout = deploy::begin_rollout(&mut change.write, &change.draft, &target).await?;
        Ok(change.done(None, &rollout.id, Reply::accepted(show(&rollout))))
    })
    .await
}

async fn ask(
    call: Call,
    verb: impl AsyncFn(&mut Write, &Draft, RolloutId) -> Result<FleetRollout, Refused>,
) -> Result<Reply, Problem> {
    let id: RolloutId = call.id(0)?;
    call.change(async |mut change| {
        let rollout = verb(&mut change.write, &change.draft, id).await?;
        Ok(change.done(None, &rollout.id, Reply::accepted(show(&rollout))))
    })
    .await
}

fn read(reader: &Reader<'_>, problems: &mut Problems) -> FleetTarget {
    let at = &mut problems.whole();
    let target = FleetTarget {
        image: reader.parse::<ImageRef>(at, "image"),
        cpu: reader.number(at, "cpu", CpuMillis::new),
        memory: reader.number(at, "memory", MemoryMib::new),
    };
    at.require(!target.is_empty(), "name an image, a cpu or a memory");
    target
}

fn show(rollout: &FleetRollout) -> Value {
    let FleetTarget { image, cpu, memory } = &rollout.target;
    let under_way = rollout.under_way().filter(|_| rollout.state.is_open());
    json!({
        "id": rollout.id.to_string(),
        "state": rollout.state.as_str(),
        "rolls_back": rollout.back,
        "image": image.as_ref().map(ToString::to_string),
        "cpu": cpu.map(CpuMillis::get),
        "memory": memory.map(MemoryMib::get),
        "sentinel_id": under_way.as_ref().map(ToString::to_string),
        "changed": rollout.previous.len(),
        "reason": rollout.reason.as_ref().map(ToString::to_string),
        "created_at": time::show(rollout.created_at),
        "updated_at": time::show(rollout.updated_at),
    })
}
