//! How long a page of a list takes, however long the list is.
//!
//! `cargo xtask bench list [-- --sizes 600,6000,60000 --rounds 30]`. On both databases: so many deployments in one
//! environment among others; the first page of 100, as it is, of the workspace and of the environment; and then all pages.

#[path = "../tests/edge/edge.rs"]
mod edge;
#[path = "../tests/rest/rest.rs"]
mod rest;

use std::time::Duration;

use edge::{database::Database, trial::block_on};
use model::{
    deployment::{Deployment, DesiredState, Progress, Status},
    id::{EnvironmentId, WorkspaceId},
    time::Millis,
};
use rest::{client::User, suite::plane};
use runtime::clock::Clock;
use serde_json::{Value as Json, json};
use store::Store;

/// A page of 100 takes no longer than this.
const GOAL_MS: f64 = 100.0;

/// How many deployments are written at a time.
const WRITTEN: u128 = 500;

fn main() {
    let out = option("--out").expect("--out FILE");
    let sizes = option("--sizes").unwrap_or_else(|| "600,6000,60000".to_owned());
    let sizes: Vec<u128> = sizes.split(',').map(|size| size.parse().expect("a size")).collect();
    let rounds: usize = option("--rounds").map_or(30, |rounds| rounds.parse().expect("a number"));
    let mut rows = Vec::new();
    for (name, database) in [("sqlite", Database::Sqlite), ("postgres", Database::postgres())] {
        block_on(measure(name, &database, &sizes, rounds, &mut rows));
    }
    let is_missed = rows.iter().any(|row| row["ok"] == false);
    let result = json!({ "bench": "list", "machine": machine(), "rows": rows });
    std::fs::write(out, format!("{result:#}\n")).expect("the result can be written");
    assert!(!is_missed, "a page took longer than {GOAL_MS} ms");
}

/// The sizes one after the other, on one database that grows.
async fn measure(name: &str, database: &Database, sizes: &[u128], rounds: usize, rows: &mut Vec<Json>) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    let lists = [
        ("first_page_of_all", "/v1/deployments?limit=100".to_owned()),
        (
            "first_page_of_workspace",
            format!("/v1/deployments?limit=100&workspace_id={}", WorkspaceId::sample(1)),
        ),
        (
            "first_page_of_environment",
            format!("/v1/deployments?limit=100&environment_id={}", EnvironmentId::sample(2)),
        ),
        ("first_page_of_failed", "/v1/deployments?limit=100&status=failed".to_owned()),
    ];
    let mut there = 1000;
    let mut earlier: Vec<(u128, f64)> = Vec::new();
    for size in sizes {
        write(&plane.ground.store, there, 1000 + size).await;
        there = 1000 + size;
        for (measure, path) in &lists {
            let mut times = Vec::new();
            for _ in 0..rounds {
                times.push(page(admin, path).await.0);
            }
            rows.push(row(&format!("{name}_{measure}"), *size, p99(&mut times), Some(GOAL_MS)));
        }
        let (pages, whole, slowest) = walk(admin).await;
        rows.push(row(&format!("{name}_slowest_page_of_all"), *size, slowest, Some(GOAL_MS)));
        rows.push(row(&format!("{name}_page_in_the_middle_of_all"), *size, whole / pages, None));
        earlier.push((*size, whole / pages));
    }
    if let [first, .., last] = earlier[..] {
        rows.push(json!({
            "measure": format!("{name}_growth_of_a_page"), "size": last.0.to_string(), "value": rounded(last.1 / first.1),
            "unit": format!("× of {}", first.0), "goal": "-", "ok": null,
        }));
    }
    plane.end().await;
}

/// Walks through the whole list: how many pages, how long in all, and the slowest.
async fn walk(admin: &User) -> (f64, f64, f64) {
    let (mut pages, mut whole, mut slowest) = (0.0, 0.0, 0.0_f64);
    let mut cursor = String::new();
    loop {
        let (time, next) = page(admin, &format!("/v1/deployments?limit=100{cursor}")).await;
        pages += 1.0;
        whole += time;
        slowest = slowest.max(time);
        let Some(next) = next else { return (pages, whole, slowest) };
        cursor = format!("&cursor={next}");
    }
}

/// One page over a connection of its own, in milliseconds, and what the next begins with.
async fn page(admin: &User, path: &str) -> (f64, Option<String>) {
    let clock = Clock::system();
    let started = clock.instant();
    let answer = admin.send_text(&http::Method::GET, path, &[], None).await;
    let took: Duration = clock.instant().saturating_duration_since(started);
    assert_eq!(answer.status, 200, "{}", answer.text);
    (took.as_secs_f64() * 1000.0, answer.body["next"].as_str().map(str::to_owned))
}

async fn write(store: &Store, from: u128, to: u128) {
    for first in (from..to).step_by(usize::try_from(WRITTEN).expect("a few hundred")) {
        let mut write = store.begin().await.expect("a write");
        for number in first..to.min(first + WRITTEN) {
            let mut deployment = Deployment::sample().numbered(number).with_branch("main");
            // A few of each hundred are in the environment that is looked at, and a few failed.
            deployment.environment = EnvironmentId::sample(if number % 50 == 0 { 2 } else { 1 });
            let status = if number % 20 == 0 { Status::Failed } else { Status::Ready };
            let (desired, updated_at) = (DesiredState::Running, Millis(1_700_000_000_000));
            let progress = Progress { status, desired, reason: None, updated_at };
            write.put_deployment(&deployment, &progress).await.expect("a deployment");
        }
        write.commit().await.expect("it commits");
    }
}

fn row(measure: &str, size: u128, value: f64, goal: Option<f64>) -> Json {
    json!({
        "measure": measure, "size": size.to_string(), "value": rounded(value), "unit": "ms",
        "goal": goal.map_or("-".to_owned(), |goal| format!("≤ {goal}")), "ok": goal.map(|goal| value <= goal),
    })
}

fn p99(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * 99 / 100]
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{} {}, {cores} cores", std::env::consts::OS, std::env::consts::ARCH)
}
