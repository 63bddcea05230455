//! From times to rows.

use std::time::Duration;

use serde_json::{Value, json};

/// Times of the same thing.
#[derive(Debug, Clone, Default)]
pub struct Times(Vec<f64>);

impl Times {
    pub fn add(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1000.0);
    }

    /// The time in milliseconds that this share of them did not exceed.
    pub fn at(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied().unwrap_or(f64::NAN)
    }
}

/// A figure of which nothing is asserted.
pub fn told(measure: &str, size: &str, value: f64, unit: &str) -> Value {
    row(measure, size, value, unit, None)
}

/// A figure with a goal, and whether it was met.
pub fn held(measure: &str, size: &str, value: f64, unit: &str, goal: &str, is_met: bool) -> Value {
    row(measure, size, value, unit, Some((goal, is_met)))
}

fn row(measure: &str, size: &str, value: f64, unit: &str, goal: Option<(&str, bool)>) -> Value {
    let value = (value * 100.0).round() / 100.0;
    let (goal, ok) = goal.unzip();
    json!({ "measure": measure, "size": size, "value": value, "unit": unit, "goal": goal, "ok": ok })
}

/// How a figure grows from the first size to the last: with the power of the size that this is.
pub fn slope(measure: &str, sizes: &[usize], values: &[f64]) -> Option<Value> {
    let ([first, .., last], [from, .., to]) = (sizes, values) else { return None };
    let power = (to / from).ln() / (*last as f64 / *first as f64).ln();
    Some(told("slope", &format!("{measure}, {first} to {last}"), power, "power of the size"))
}

pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{} {}, {cores} cores", std::env::consts::OS, std::env::consts::ARCH)
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
