//! Why a call or a stream failed, and what its caller may do about it.

use connectrpc::ConnectError;

/// The codes of the protocol.
pub use connectrpc::ErrorCode as Code;

/// Characters of a message that are kept: it may come from anybody who answers.
const MESSAGE_CHARS: usize = 512;

/// The answer that was no answer, or that there was none. It never holds the caller's token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct CallError {
    pub code: Code,
    pub message: String,
}

impl CallError {
    pub fn new(code: Code, message: impl Into<String>) -> CallError {
        let message: String = message.into();
        let message = match message.char_indices().nth(MESSAGE_CHARS) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message,
        };
        CallError { code, message }
    }

    /// Whether the same call may succeed later, or elsewhere, without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        // A code that did not exist when this was written says nothing of the call.
        !matches!(
            self.code,
            Code::InvalidArgument
                | Code::NotFound
                | Code::AlreadyExists
                | Code::PermissionDenied
                | Code::FailedPrecondition
                | Code::OutOfRange
                | Code::Unimplemented
                | Code::Unauthenticated
        )
    }

    /// The term is not ours any more: look at the Lease, and begin again if it still is ours.
    pub fn begin_again(&self) -> bool {
        self.code == Code::FailedPrecondition
    }

    /// The token opens nothing here. Somebody has to do something; until then, trying seldom is enough.
    pub fn is_refusal(&self) -> bool {
        matches!(self.code, Code::Unauthenticated | Code::PermissionDenied)
    }

    /// Whether it speaks of the replica that was asked rather than of the call, so that another may do better.
    pub(crate) fn blames_replica(&self) -> bool {
        // A stream that is cut arrives as `internal`: its last words are missing.
        self.is_retryable() && self.code != Code::ResourceExhausted
    }
}

impl From<ConnectError> for CallError {
    fn from(error: ConnectError) -> CallError {
        CallError::new(error.code, error.message.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_tried_again_is_told_by_the_code_alone() {
        let retryable = |code| CallError::new(code, "").is_retryable();
        assert!([Code::Unavailable, Code::Internal, Code::ResourceExhausted].into_iter().all(retryable));
        assert!(![Code::InvalidArgument, Code::Unauthenticated].into_iter().any(retryable));
        let term = CallError::new(Code::FailedPrecondition, "another term");
        assert!(term.begin_again() && !term.is_retryable() && !term.is_refusal());
        assert!(CallError::new(Code::PermissionDenied, "").is_refusal());
        assert!(!CallError::new(Code::ResourceExhausted, "").blames_replica());
    }

    #[test]
    fn a_message_is_cut_to_a_length() {
        let error = CallError::new(Code::Internal, "ü".repeat(5000));
        assert_eq!(error.message.chars().count(), MESSAGE_CHARS + 1);
        assert_eq!(CallError::new(Code::Unavailable, "draining").to_string(), "unavailable: draining");
    }
}
