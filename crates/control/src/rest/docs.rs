//! The published document, and the page that shows it: both without a token, and without any other server.

use axum::body::Body;
use http::Method;

use super::{
    call::Reply,
    openapi,
    route::{Allow, Input, Output, Route},
};

/// It reads `/openapi.json` and shows it; nothing in it comes from elsewhere.
const PAGE: &str = include_str!("docs/page.html");

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/openapi.json",
        name: "docs.openapi",
        about: "This document.",
        allow: Allow::Anyone,
        query: &[],
        body: Input::Nothing,
        answer: Output::Other("application/json"),
        handler: |_| Box::pin(std::future::ready(Ok(document()))),
    },
    Route {
        method: Method::GET,
        path: "/docs",
        name: "docs.page",
        about: "A page that shows this document.",
        allow: Allow::Anyone,
        query: &[],
        body: Input::Nothing,
        answer: Output::Other("text/html; charset=utf-8"),
        handler: |_| Box::pin(std::future::ready(Ok(page()))),
    },
];

fn document() -> Reply {
    Reply::json(openapi::document())
}

fn page() -> Reply {
    Reply::other("text/html; charset=utf-8", Body::from(PAGE))
}
