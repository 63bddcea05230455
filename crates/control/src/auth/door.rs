//! The layer's side for users: who may make a request of the API, and refusals as problem details.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response, request::Parts};

use super::{Gate, Shape, User, gate::Refusal};
use crate::rest::{
    Admitted,
    problem::{Code, Problem},
    request_id::RequestId,
    route::{self, Allow, Found, Route},
};

/// Lets a request in and hands it on, or says why not.
pub(super) async fn answer<B, F>(
    gate: &Gate,
    request: Request<B>,
    inner: impl FnOnce(Request<B>) -> F,
) -> Response<Body>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    let (mut head, body) = request.into_parts();
    let id = RequestId::of(&head.headers, gate.random());
    let answering = async {
        let (route, params, user) = enter(gate, &head).await?;
        head.headers.remove(http::header::AUTHORIZATION);
        head.extensions.insert(Admitted { route, params, user, request: id.clone() });
        let Ok(response) = inner(Request::from_parts(head, body)).await;
        Ok(response)
    };
    let answered = tokio::select! {
        biased;
        answered = answering => answered,
        () = gate.patience() => {
            gate.count(Refusal::Late);
            Err(problem(Refusal::Late))
        }
    };
    answered.unwrap_or_else(|problem: Problem| problem.into_response(&id))
}

/// Who they are is asked first: strangers are not told what there is.
async fn enter(gate: &Gate, head: &Parts) -> Result<(&'static Route, Vec<String>, Option<User>), Problem> {
    let path = head.uri.path();
    let found = route::find(&head.method, path);
    if let Found::Route(route @ Route { allow: Allow::Anyone, .. }, params) = found {
        return Ok((route, params, None));
    }
    let refused = |refusal| {
        gate.count(refusal);
        problem(refusal)
    };
    let identity = gate.identify(&head.headers, Some(Shape::Request)).await.map_err(refused)?;
    let user = identity.user().ok_or_else(|| refused(Refusal::Kind))?;
    let (route, params) = match found {
        Found::Route(route, params) => (route, params),
        Found::Method(methods) => {
            let detail = format!("{path} has no {}", head.method);
            return Err(Problem::new(Code::MethodNotAllowed, detail).allowing(methods));
        }
        Found::Nothing => return Err(Problem::not_found(&path)),
    };
    if !route.allow.admits(user.role(), user.reach()) {
        gate.count(Refusal::Role);
        return Err(too_weak(route, &user));
    }
    Ok((route, params, Some(user)))
}

fn too_weak(route: &Route, user: &User) -> Problem {
    let needed = crate::rest::openapi::allowed(route.allow);
    Problem::new(Code::Forbidden, format!("this token has the role `{}`. {needed}", user.role()))
}

fn problem(refusal: Refusal) -> Problem {
    let said = refusal.message();
    match refusal {
        Refusal::NoToken | Refusal::Garbage | Refusal::Unknown | Refusal::Ended => {
            Problem::new(Code::Unauthenticated, said)
        }
        Refusal::Path | Refusal::Kind | Refusal::Role => Problem::new(Code::Forbidden, said),
        Refusal::Opens | Refusal::Requests => Problem::new(Code::RateLimited, said).after(1),
        Refusal::Busy | Refusal::Late => Problem::new(Code::Unavailable, said).after(1),
    }
}
