//! A user of the API: plain HTTP/1.1, one connection each, and every answer held to the shape that is published for it.

use std::{collections::BTreeMap, fmt::Write as _, net::SocketAddr, time::Duration};

use control::rest::{
    openapi::PROBLEM,
    route::{Found, Output, find},
    schema::Shape,
};
use http::Method;
use model::invalid::Problems;
use serde_json::{Value as Json, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Somebody with a token, or without one.
#[derive(Clone)]
pub struct User {
    pub address: SocketAddr,
    pub token: Option<String>,
}

/// What was answered.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Json,
    pub text: String,
}

/// An answer that goes on.
pub struct Stream {
    stream: TcpStream,
    read: String,
}

impl User {
    pub fn new(address: SocketAddr, token: &str) -> Self {
        Self { address, token: Some(token.to_owned()) }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], None).await
    }

    pub async fn post(&self, path: &str, body: Json) -> Answer {
        self.send(Method::POST, path, &[], Some(body)).await
    }

    pub async fn patch(&self, path: &str, body: Json) -> Answer {
        self.send(Method::PATCH, path, &[], Some(body)).await
    }

    /// Makes something, which must work.
    pub async fn make(&self, path: &str, body: Json) -> Json {
        let answer = self.post(path, body).await;
        assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
        answer.body
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Json>,
    ) -> Answer {
        let body = body.map(|body| body.to_string());
        let answer = self.send_text(&method, path, headers, body.as_deref()).await;
        answer.check(&method, path);
        answer
    }

    /// Any text as the body.
    pub async fn send_text(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Answer {
        let mut stream = self.begin(method, path, headers, body).await;
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(Duration::from_mins(1), stream.read_to_end(&mut bytes)).await;
        read.expect("an answer in time").expect("an answer");
        Answer::read(&bytes)
    }

    /// Opens a live stream.
    pub async fn open(&self, path: &str, headers: &[(&str, &str)]) -> Stream {
        let accept = [("accept", "text/event-stream")];
        let headers: Vec<_> = accept.iter().chain(headers).copied().collect();
        let stream = self.begin(&Method::GET, path, &headers, None).await;
        Stream { stream, read: String::new() }
    }

    async fn begin(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        if let Some(token) = &self.token {
            write!(head, "authorization: Bearer {token}\r\n").expect("a text");
        }
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").expect("a text");
        }
        if let Some(body) = body {
            if !headers.iter().any(|(name, _)| *name == "content-type") {
                head += "content-type: application/json\r\n";
            }
            write!(head, "content-length: {}\r\n", body.len()).expect("a text");
        }
        let message = format!("{head}\r\n{}", body.unwrap_or_default());
        stream.write_all(message.as_bytes()).await.expect("it reads");
        stream
    }
}

impl Answer {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
        let mut lines = head.lines();
        let status =
            lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let body = body.to_owned();
        let json = serde_json::from_str(&body).unwrap_or(Json::Null);
        Self { status: status.expect("a status"), headers, body: json, text: body }
    }

    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or("ok")
    }

    pub fn etag(&self) -> &str {
        self.headers.get("etag").map_or("", String::as_str)
    }

    pub fn data(&self) -> &[Json] {
        self.body["data"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The fields that are wrong.
    pub fn fields(&self) -> Vec<&str> {
        let errors = self.body["errors"].as_array().map_or(&[][..], Vec::as_slice);
        errors.iter().filter_map(|error| error["field"].as_str()).collect()
    }

    /// Every answer has its request's id, and is what the document says it is.
    fn check(&self, method: &Method, path: &str) {
        assert!(self.headers.contains_key("x-request-id"), "{method} {path}: {self:?}");
        let path = path.split('?').next().unwrap_or_default();
        if self.status >= 400 {
            assert_eq!(self.headers["content-type"], "application/problem+json", "{method} {path}: {self:?}");
            assert_eq!(self.body["status"], self.status, "{method} {path}");
            assert_eq!(self.body["request_id"], self.headers["x-request-id"], "{method} {path}");
            return fits(&PROBLEM, &self.body, &format!("{method} {path}"));
        }
        let Found::Route(route, _) = find(method, path) else { panic!("{method} {path} is in no table") };
        let name = route.name;
        match route.answer {
            Output::One(shape) => self.is(200, shape, name),
            Output::Created(shape) => self.is(201, shape, name),
            Output::Accepted(shape) => self.is(202, shape, name),
            Output::Page(shape) | Output::PageOrEvents(shape) => {
                assert_eq!(self.status, 200, "{name}");
                self.data().iter().for_each(|one| fits(shape, one, name));
                assert!(self.body.get("next").is_some(), "{name}");
            }
            Output::Nothing => assert_eq!((self.status, self.text.as_str()), (204, ""), "{name}"),
            Output::Other(_) => assert_eq!(self.status, 200, "{name}"),
        }
    }

    fn is(&self, status: u16, shape: &'static Shape, name: &str) {
        assert_eq!(self.status, status, "{name}");
        fits(shape, &self.body, name);
    }
}

fn fits(shape: &'static Shape, value: &Json, what: &str) {
    let mut problems = Problems::new();
    shape.check(value, &mut problems.whole());
    if let Err(invalid) = problems.finish(()) {
        panic!("{what} answers what is not published: {invalid}\n{value:#}");
    }
}

impl Stream {
    /// Reads until a text has come, and says all that came. What keeps coming does not keep it waiting.
    pub async fn until(&mut self, text: &str) -> &str {
        let came = tokio::time::timeout(Duration::from_secs(30), self.read_until(text)).await;
        assert!(came.is_ok(), "{text:?} did not come: {}", self.read);
        &self.read
    }

    async fn read_until(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.read.contains(text) {
            let read = self.stream.read(&mut buffer).await.expect("it is read");
            assert!(read > 0, "it ended before {text:?}: {}", self.read);
            self.read += &String::from_utf8_lossy(&buffer[..read]);
        }
    }

    /// Whether the other side ends it within this time.
    pub async fn ends_within(&mut self, limit: Duration) -> bool {
        let mut rest = Vec::new();
        tokio::time::timeout(limit, self.stream.read_to_end(&mut rest)).await.is_ok()
    }

    /// The numbers of the events that came, in their order.
    pub fn numbers(&self) -> Vec<u64> {
        self.read.lines().filter_map(|line| line.trim().strip_prefix("id: ")?.parse().ok()).collect()
    }
}

/// A workspace with a project, an app and an environment in it.
pub struct Tree {
    pub workspace: String,
    pub project: String,
    pub app: String,
    pub environment: String,
}

impl Tree {
    /// Made by a user of all workspaces.
    pub async fn make(user: &User, slug: &str) -> Self {
        let workspace = user.make("/v1/workspaces", json!({ "slug": slug })).await;
        let project =
            user.make("/v1/projects", json!({ "workspace_id": workspace["id"], "slug": "shop" })).await;
        let app = user.make("/v1/apps", json!({ "project_id": project["id"], "slug": "web" })).await;
        let body = json!({ "app_id": app["id"], "slug": "production", "settings": { "regions": ["aws/us-east-1"] } });
        let environment = user.make("/v1/environments", body).await;
        let id = |noun: &Json| noun["id"].as_str().expect("an id").to_owned();
        Self {
            workspace: id(&workspace),
            project: id(&project),
            app: id(&app),
            environment: id(&environment),
        }
    }

    /// A token for this workspace.
    pub async fn user(&self, admin: &User, role: &str) -> User {
        let body = json!({ "name": role, "role": role, "workspace_id": self.workspace });
        let made = admin.make("/v1/tokens", body).await;
        User::new(admin.address, made["secret"].as_str().expect("it is shown"))
    }
}
