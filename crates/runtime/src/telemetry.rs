//! What a process says of itself: the log on standard error, and numbers to be scraped.

mod log;
mod metrics;

pub use log::{LogError, LogFormat, LogLevels, check_levels, init};
pub use metrics::{Build, Counter, Family, Gauge, Histogram, Metrics};
