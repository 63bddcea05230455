//! What can become of a request.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::{Value, json};

/// What becomes of one request.
#[derive(Clone)]
pub enum Fate {
    /// The API server answers it.
    Pass,
    /// It never gets there; this is the answer.
    Answer(Answer),
    /// There is nobody to ask: no connection.
    Refused,
    /// The API server answers it after this much time.
    Late(Duration),
    /// It is carried out, and then the connection breaks: whoever asked cannot know.
    Lost,
    /// It is carried out, and the answer never comes.
    Held,
    /// Each event of a watch becomes these: none, if it is dropped.
    Events(Arc<Rewrite>),
}

pub type Rewrite = dyn Fn(Value) -> Vec<Value> + Send + Sync;

/// An answer that is not the API server's.
#[derive(Debug, Clone)]
pub struct Answer {
    pub code: u16,
    pub retry_after: Option<u64>,
    pub body: String,
}

impl Fate {
    pub fn answer(code: u16, reason: &str) -> Fate {
        Fate::Answer(Answer::status(code, reason))
    }

    pub fn events(rewrite: impl Fn(Value) -> Vec<Value> + Send + Sync + 'static) -> Fate {
        Fate::Events(Arc::new(rewrite))
    }
}

impl Answer {
    pub fn status(code: u16, reason: &str) -> Answer {
        let message = format!("the test says {reason}");
        let status = json!({ "kind": "Status", "code": code, "reason": reason, "message": message });
        Answer { code, retry_after: None, body: status.to_string() }
    }

    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Answer {
        Answer { retry_after: Some(seconds), ..self }
    }
}

impl fmt::Debug for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Pass => f.write_str("Pass"),
            Fate::Answer(answer) => write!(f, "Answer({})", answer.code),
            Fate::Refused => f.write_str("Refused"),
            Fate::Late(delay) => write!(f, "Late({delay:?})"),
            Fate::Lost => f.write_str("Lost"),
            Fate::Held => f.write_str("Held"),
            Fate::Events(_) => f.write_str("Events"),
        }
    }
}
