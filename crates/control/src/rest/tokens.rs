//! Tokens: made and shown once, listed, rotated and revoked.

use std::time::Duration;

use http::Method;
use model::{
    id::{TokenId, WorkspaceId},
    invalid::Problems,
    name::{Line, Placement},
    token::{Reach, Role, Scope, Token, TokenKind},
};
use serde_json::{Value, json};

use super::{
    call::{Call, Reply},
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    places::cluster_id,
    problem::{Code, Problem},
    route::{Allow, Input, Output, Route},
    schema::{Kind, LINE, REGION, Reader, Shape, choice_of, nullable, optional, required},
    time,
};
use crate::tokens::{NewToken, Tokens};

/// The longest life a token may be given: ten years. One without an end is asked for by leaving it out.
const LIFE_MAX: i64 = 10 * 365 * 24 * 60 * 60;

/// How long both tokens are good after a rotation, at most.
const OVERLAP_MAX: i64 = 7 * 24 * 60 * 60;

/// A token without what its bearer presents.
macro_rules! token_and {
    ($($more:expr),* $(,)?) => {
        &[
            required("id", Kind::Id("tok"), "Its id."),
            required("name", LINE, "What it is for."),
            required("kind", choice_of!(TokenKind), "Whose it is."),
            nullable("role", choice_of!(Role), "What its user may do."),
            nullable("workspace_id", Kind::Id("ws"), "Where its user may; null is everywhere."),
            nullable("cluster_id", Kind::Text { min: 1, max: 256 }, "Which cluster its agent speaks for."),
            required("created_at", Kind::Time, "When it was made."),
            nullable("expires_at", Kind::Time, "When it ends by itself."),
            nullable("revoked_at", Kind::Time, "When it was ended."),
            nullable("last_used_at", Kind::Time, "When it was last used, to the minute."),
            $($more),*
        ]
    };
}

static TOKEN: Shape = Shape { name: "Token", about: "What opens something.", properties: token_and![] };

static CREATED: Shape = Shape {
    name: "CreatedToken",
    about: "A new token, with what its bearer presents: it is shown now, and never again.",
    properties: token_and![nullable(
        "secret",
        Kind::Text { min: 1, max: 256 },
        "What goes into the `Authorization` header after `Bearer`. Null when the answer is given again."
    )],
};

static NEW: Shape = Shape {
    name: "NewToken",
    about: "A token to make.",
    properties: &[
        required("name", LINE, "What it is for."),
        optional("kind", choice_of!(TokenKind), "`user` by default."),
        optional("role", choice_of!(Role), "For a user: what they may do."),
        optional(
            "workspace_id",
            Kind::Id("ws"),
            "For a user: where; the own workspace by default, or everywhere.",
        ),
        optional(
            "place",
            REGION,
            "For an agent: which cluster, `aws/us-east-1:default`. The first token makes the place.",
        ),
        optional(
            "expires_in",
            Kind::Integer { min: 1, max: LIFE_MAX },
            "Seconds it is good for; without it, until it is revoked.",
        ),
    ],
};

static ROTATE: Shape = Shape {
    name: "Rotate",
    about: "How a token is replaced.",
    properties: &[optional(
        "overlap",
        Kind::Integer { min: 0, max: OVERLAP_MAX },
        "Seconds the old one is still good for; 3600 by default.",
    )],
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/tokens",
        name: "tokens.list",
        about: "Tokens, the oldest first, the ended ones too.",
        allow: Allow::Workspace(Role::Admin),
        query: &[
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
            optional("workspace_id", Kind::Id("ws"), "Only those of this workspace."),
        ],
        body: Input::Nothing,
        answer: Output::Page(&TOKEN),
        handler: |call| Box::pin(list(call)),
    },
    Route {
        method: Method::POST,
        path: "/v1/tokens",
        name: "tokens.create",
        about: "Makes a token. Those of agents and of all workspaces need a token of all workspaces.",
        allow: Allow::Workspace(Role::Admin),
        query: &[],
        body: Input::Json(&NEW),
        answer: Output::Created(&CREATED),
        handler: |call| Box::pin(create(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/tokens/{token_id}",
        name: "tokens.get",
        about: "One token.",
        allow: Allow::Workspace(Role::Admin),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&TOKEN),
        handler: |call| Box::pin(get(call)),
    },
    Route {
        method: Method::POST,
        path: "/v1/tokens/{token_id}/rotate",
        name: "tokens.rotate",
        about: "Makes a successor that opens the same; the old one ends after the overlap.",
        allow: Allow::Workspace(Role::Admin),
        query: &[],
        body: Input::JsonOrNothing(&ROTATE),
        answer: Output::Created(&CREATED),
        handler: |call| Box::pin(rotate(call)),
    },
    Route {
        method: Method::DELETE,
        path: "/v1/tokens/{token_id}",
        name: "tokens.revoke",
        about: "Ends a token now, and what is open with it within two seconds.",
        allow: Allow::Workspace(Role::Admin),
        query: &[],
        body: Input::Nothing,
        answer: Output::Nothing,
        handler: |call| Box::pin(revoke(call)),
    },
];

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<TokenId>()?;
    let workspace = call.workspace_filter()?;
    let found = call.rest.store.list_tokens(workspace, wanted.after, wanted.ask()).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(found, |token| token.id.to_string(), show))
}

async fn get(call: Call) -> Result<Reply, Problem> {
    let value = show(&call.token().await?);
    Ok(Reply::hashed(value))
}

async fn create(call: Call) -> Result<Reply, Problem> {
    let value = call.json()?;
    let new = call.read(&value, |reader, problems| read_new(&call, reader, problems))?;
    call.may_grant(&new.scope)?;
    let workspace = workspace_of(&new.scope);
    if let Some(workspace) = workspace {
        call.rest.store.workspace(workspace).await.map_err(|error| Problem::store(&error))?;
    }
    let tokens = Tokens::new(&call.rest.store, &call.rest.clock, &call.rest.random);
    let created = tokens.draw(new);
    call.change(async |mut change| {
        Tokens::put(&mut change.write, &change.draft, &created.token).await?;
        let mut value = show(&created.token);
        value["secret"] = created.bearer.reveal().into();
        let id = created.token.id;
        Ok(change.done(workspace, &id, Reply::created(value, format!("/v1/tokens/{id}"))))
    })
    .await
}

async fn rotate(call: Call) -> Result<Reply, Problem> {
    let old = call.token().await?;
    call.may_grant(&old.scope)?;
    let value = call.json()?;
    let overlap = call.read(&value, |reader, _| Some(reader.integer("overlap").unwrap_or(3600)))?;
    let overlap = Duration::from_secs(u64::try_from(overlap).unwrap_or_default());
    if !old.is_good(call.now()) {
        return Err(Problem::new(Code::Conflict, "the token has expired or was revoked: make a new one"));
    }
    let tokens = Tokens::new(&call.rest.store, &call.rest.clock, &call.rest.random);
    let created = tokens.successor(&old);
    call.change(async |mut change| {
        let cause = change.cause;
        let new = change.write.rotate_token(old.id, &created.token, overlap, &cause).await?;
        change.write.put_event(&change.draft.token_created(&new)).await?;
        let mut value = show(&new);
        value["secret"] = created.bearer.reveal().into();
        let workspace = workspace_of(&new.scope);
        Ok(change.done(workspace, &old.id, Reply::created(value, format!("/v1/tokens/{}", new.id))))
    })
    .await
}

async fn revoke(call: Call) -> Result<Reply, Problem> {
    let token = call.token().await?;
    call.change(async |mut change| {
        let cause = change.cause;
        call.matches_hashed(&show(&change.write.lock_token(token.id).await?))?;
        if change.write.revoke_token(token.id, cause.at, &cause).await? {
            change.write.put_event(&change.draft.token_revoked(&token)).await?;
        }
        Ok(change.done(workspace_of(&token.scope), &token.id, Reply::nothing()))
    })
    .await
}

fn read_new(call: &Call, reader: &Reader<'_>, problems: &mut Problems) -> Option<NewToken> {
    let at = &mut problems.whole();
    let name: Option<Line> = reader.parse(at, "name");
    let kind = reader.parse(at, "kind").unwrap_or(TokenKind::User);
    let (of_user, of_agent) = (["role", "workspace_id"], ["place"]);
    let (own, foreign): (&[&str], &[&str]) = match kind {
        TokenKind::User => (&of_user, &of_agent),
        TokenKind::Agent => (&of_agent, &of_user),
    };
    for name in foreign {
        at.field(name).require(reader.value(name).is_none(), format!("is not for tokens of the kind {kind}"));
    }
    if !reader.is_given(own[0]) {
        at.field(own[0]).required(None::<()>);
    }
    let scope = match kind {
        TokenKind::User => {
            let workspace: Option<WorkspaceId> = reader.parse(at, "workspace_id");
            let reach = workspace.or_else(|| call.confined_to()).map_or(Reach::All, Reach::Workspace);
            reader.parse(at, "role").map(|role| Scope::User { role, reach })
        }
        TokenKind::Agent => {
            reader.parse::<Placement>(at, "place").map(|placement| Scope::Agent { placement })
        }
    };
    let seconds = reader.integer("expires_in").and_then(|seconds| u64::try_from(seconds).ok());
    let (name, scope) = name.zip(scope)?;
    Some(NewToken { name, scope, expires_in: seconds.map(Duration::from_secs) })
}

fn workspace_of(scope: &Scope) -> Option<WorkspaceId> {
    match scope {
        Scope::User { reach: Reach::Workspace(workspace), .. } => Some(*workspace),
        Scope::User { reach: Reach::All, .. } | Scope::Agent { .. } => None,
    }
}

impl Call {
    /// The token of the path. One that reaches further than the caller is as if it were not there.
    async fn token(&self) -> Result<Token, Problem> {
        let id: TokenId = self.id(0)?;
        let token = self.rest.store.token(id).await.map_err(|error| Problem::store(&error))?;
        match (self.confined_to(), workspace_of(&token.scope)) {
            (None, _) => Ok(token),
            (Some(own), Some(workspace)) if own == workspace => Ok(token),
            (Some(_), _) => Err(Problem::not_found(&id)),
        }
    }

    /// Nobody gives more than they have.
    fn may_grant(&self, scope: &Scope) -> Result<(), Problem> {
        let Some(own) = self.confined_to() else { return Ok(()) };
        match workspace_of(scope) {
            Some(workspace) if workspace == own => Ok(()),
            Some(workspace) => Err(Problem::not_found(&workspace)),
            None => Err(Problem::new(
                Code::Forbidden,
                "tokens of agents and of all workspaces need a token of all workspaces",
            )),
        }
    }
}

fn show(token: &Token) -> Value {
    let (role, cluster) = match &token.scope {
        Scope::User { role, .. } => (Some(role.as_str()), None),
        Scope::Agent { placement } => (None, Some(cluster_id(placement))),
    };
    json!({
        "id": token.id.to_string(),
        "name": token.name.as_str(),
        "kind": token.kind().as_str(),
        "role": role,
        "workspace_id": workspace_of(&token.scope).map(|id| id.to_string()),
        "cluster_id": cluster,
        "created_at": time::show(token.created_at),
        "expires_at": time::show_some(token.expires_at),
        "revoked_at": time::show_some(token.revoked_at),
        "last_used_at": time::show_some(token.last_used_at),
    })
}
