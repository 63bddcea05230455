//! Structured logs: JSON for machines, lines for a terminal, and a level that can be changed while running.

use std::fmt;
use std::io::{self, IsTerminal};

use serde::{Deserialize, Serialize};
use tracing::Dispatch;
use tracing::dispatcher;
use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::clock::Clock;

/// How log records look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// `Pretty` on a terminal, `Json` everywhere else.
    #[default]
    Auto,
    Json,
    Pretty,
}

/// Changes what is logged while the process runs.
#[derive(Clone)]
pub struct LogLevels(reload::Handle<EnvFilter, Registry>);

/// Why the log could not be set up, or its level not be changed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("the log filter {filter:?} is not valid")]
    Filter {
        filter: String,
        #[source]
        source: ParseError,
    },
    #[error("this process already has a log")]
    Twice(#[source] dispatcher::SetGlobalDefaultError),
    #[error("the log is gone")]
    Gone(#[source] reload::Error),
}

/// Sets up the log of the process, on standard error. `filter` is like `info` or `info,store=debug`.
pub fn init(filter: &str, format: LogFormat, clock: &Clock) -> Result<LogLevels, LogError> {
    let is_terminal = io::stderr().is_terminal();
    let (dispatch, levels) = build(filter, format, is_terminal, clock, io::stderr)?;
    dispatcher::set_global_default(dispatch).map_err(LogError::Twice)?;
    Ok(levels)
}

fn build(
    filter: &str,
    format: LogFormat,
    is_terminal: bool,
    clock: &Clock,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Result<(Dispatch, LogLevels), LogError> {
    let (filter, handle) = reload::Layer::new(parse(filter)?);
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_timer(Timer(clock.clone()));
    let is_json = match format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !is_terminal,
    };
    let layer = if is_json {
        // The fields of all spans around a record are in it: that is how one change is followed through it all.
        layer.json().flatten_event(true).with_current_span(false).with_span_list(true).boxed()
    } else {
        layer.with_ansi(is_terminal).boxed()
    };
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(filter).with(layer));
    Ok((dispatch, LogLevels(handle)))
}

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::builder()
        .parse(filter)
        .map_err(|source| LogError::Filter { filter: filter.to_owned(), source })
}

/// What is wrong with a filter, for whoever validates settings.
pub fn check_levels(filter: &str) -> Result<(), String> {
    parse(filter).map(drop).map_err(|_| {
        format!("{filter:?} is neither a level (error, warn, info, debug, trace, off) nor levels by module, like info,store=debug")
    })
}

impl LogLevels {
    /// Logs by another filter from now on. One that is not valid changes nothing.
    pub fn set(&self, filter: &str) -> Result<(), LogError> {
        self.0.reload(parse(filter)?).map_err(LogError::Gone)
    }

    /// The filter in force.
    pub fn current(&self) -> Result<String, LogError> {
        self.0.with_current(ToString::to_string).map_err(LogError::Gone)
    }
}

struct Timer(Clock);

impl FormatTime for Timer {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", self.0.now())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::clock::Timestamp;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is written while `log` runs.
    fn written(filter: &str, format: LogFormat, log: impl FnOnce(&LogLevels)) -> String {
        let buffer = Buffer::default();
        let made = buffer.clone();
        let clock = Clock::simulated(Timestamp::from_millis(0));
        let (dispatch, levels) = build(filter, format, false, &clock, move || made.clone()).unwrap();
        dispatcher::with_default(&dispatch, || log(&levels));
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn json_records_carry_the_fields_of_the_spans_around_them() {
        let text = written("info", LogFormat::Auto, |_| {
            let _span = tracing::info_span!("apply", change_id = 7).entered();
            tracing::info!(region = "north", "applied");
        });
        let record: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(record["timestamp"], "1970-01-01T00:00:00.000Z");
        assert_eq!(record["level"], "INFO");
        assert_eq!(record["message"], "applied");
        assert_eq!(record["region"], "north");
        assert_eq!(record["spans"][0]["change_id"], 7);
    }

    #[tokio::test(start_paused = true)]
    async fn pretty_records_are_lines() {
        let text = written("info", LogFormat::Pretty, |_| tracing::info!(answer = 42, "ready"));
        assert!(text.starts_with("1970-01-01T00:00:00.000Z  INFO"), "{text}");
        assert!(text.ends_with("ready answer=42\n"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_level_changes_while_running_and_a_bad_one_changes_nothing() {
        let text = written("info", LogFormat::Pretty, |levels| {
            tracing::debug!("one");
            levels.set("debug").unwrap();
            tracing::debug!("two");
            assert!(matches!(levels.set("store=loud"), Err(LogError::Filter { .. })));
            assert_eq!(levels.current().unwrap(), "debug");
            tracing::debug!("three");
        });
        assert!(!text.contains("one") && text.contains("two") && text.contains("three"), "{text}");
    }

    #[test]
    fn a_filter_that_is_not_valid_is_named() {
        let clock = Clock::system();
        let error = build("store=loud", LogFormat::Json, false, &clock, io::sink).err().unwrap();
        assert_eq!(error.to_string(), "the log filter \"store=loud\" is not valid");
        assert!(std::error::Error::source(&error).is_some());
    }
}
