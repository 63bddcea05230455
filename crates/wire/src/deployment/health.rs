//! The health check, which travels as JSON.

use model::{deployment::Healthcheck, invalid::Field, limits, size::Seconds};
use serde::{Deserialize, Serialize};

use crate::read;

/// Longer than any health check: the longest path, all of it escaped, and the numbers.
const BYTES_MAX: usize = 8 * limits::HEALTH_PATH_BYTES;

/// What is told of why it is no JSON: the text in it may be as long as it likes.
const REASON_CHARS: usize = 200;

/// The shape that other agents know.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Json {
    method: String,
    path: String,
    interval_seconds: i64,
    timeout_seconds: i64,
    failure_threshold: i64,
    initial_delay_seconds: i64,
}

pub(super) fn json(health: &Healthcheck) -> Vec<u8> {
    let json = Json {
        method: health.method.to_string(),
        path: health.path.to_string(),
        interval_seconds: health.interval().get().into(),
        timeout_seconds: health.timeout().get().into(),
        failure_threshold: health.failure_threshold().into(),
        initial_delay_seconds: health.initial_delay.get().into(),
    };
    serde_json::to_vec(&json).expect("a shape of texts and numbers")
}

pub(super) fn read(mut field: Field<'_>, bytes: &[u8]) -> Option<Healthcheck> {
    if !read::bytes_at_most(field.field(""), bytes, BYTES_MAX) {
        return None;
    }
    let json = serde_json::from_slice(bytes).map_err(|error| {
        let reason: String = error.to_string().chars().take(REASON_CHARS).collect();
        format!("is no health check: {reason}")
    });
    let json: Json = field.keep(json)?;
    let mut seconds = |name, number, least: i64| {
        let mut field = field.field(name);
        let is_enough =
            field.require(number >= least, format_args!("is {number}, and must be at least {least}"));
        is_enough.then(|| field.keep(Seconds::new(number))).flatten()
    };
    let interval = seconds("intervalSeconds", json.interval_seconds, 1);
    let timeout = seconds("timeoutSeconds", json.timeout_seconds, 1);
    let initial_delay = seconds("initialDelaySeconds", json.initial_delay_seconds, 0);
    let method = field.field("method").parse(&json.method);
    let path = field.field("path").parse(&json.path);
    // What does not fit is out of bounds, which is said of it then.
    let failures = u32::try_from(json.failure_threshold).unwrap_or(u32::MAX);
    let check = Healthcheck::get(path?).with_rhythm(interval?, timeout?, failures);
    let mut check = field.nest(check)?;
    (check.method, check.initial_delay) = (method?, initial_delay?);
    Some(check)
}
