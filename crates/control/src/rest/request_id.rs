//! The id of a request: the caller's, if it has a good one, or ours; in every answer and every log line.

use http::{HeaderMap, HeaderName, HeaderValue};
use runtime::random::Random;

pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Longer ones are not kept.
const CHARS_MAX: usize = 64;

/// A short word that can be looked for in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// The one that the request came with, or a new one.
    pub fn of(headers: &HeaderMap, random: &Random) -> Self {
        let brought = headers.get(HEADER).and_then(|value| value.to_str().ok()).filter(|text| is_good(text));
        brought.map_or_else(|| Self(format!("req_{:016x}", random.u64())), |text| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).expect("letters, digits and a few marks")
    }
}

/// Nothing that could end a line or a quotation in a log.
fn is_good(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= CHARS_MAX && text.bytes().all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> RequestId {
        let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_str(value).unwrap())]);
        RequestId::of(&headers, &Random::seeded(1))
    }

    #[test]
    fn a_good_id_is_kept_and_another_is_replaced() {
        assert_eq!(of("abc-1.2_3").as_str(), "abc-1.2_3");
        for bad in ["", "a b", "a\"b", &"x".repeat(65)] {
            assert!(of(bad).as_str().starts_with("req_"), "{bad}");
        }
    }
}
