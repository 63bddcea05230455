//! From times to rows.

use serde_json::{Value, json};

/// A figure of which nothing is asserted.
pub fn told(measure: &str, size: &str, value: f64, unit: &str) -> Value {
    row(measure, size, value, unit, None, None)
}

/// A figure with a goal, and whether it was met; nothing where that cannot be said.
pub fn held(measure: &str, size: &str, value: f64, unit: &str, goal: &str, ok: Option<bool>) -> Value {
    row(measure, size, value, unit, Some(goal), ok)
}

fn row(measure: &str, size: &str, value: f64, unit: &str, goal: Option<&str>, ok: Option<bool>) -> Value {
    let value = (value * 100.0).round() / 100.0;
    json!({ "measure": measure, "size": size, "value": value, "unit": unit, "goal": goal, "ok": ok })
}

pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{} {}, {cores} cores", std::env::consts::OS, std::env::consts::ARCH)
}

/// The value that this share of them does not exceed.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len().saturating_sub(1) as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// How far the middle half lies apart, in percent of the median.
pub fn spread(values: &[f64]) -> f64 {
    (quantile(values, 0.75) - quantile(values, 0.25)) / median(values) * 100.0
}
