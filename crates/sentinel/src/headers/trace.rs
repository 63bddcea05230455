//! W3C trace context: the trace goes on, under a span of our own.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// `00-<trace>-<span>-<flags>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub flags: u8,
}

/// Goes on with the trace of the request, or begins one; `made` is random.
pub fn trace(headers: &mut HeaderMap, made: [u8; 24]) -> TraceParent {
    let (trace, span) = made.split_at(16);
    let mut next = TraceParent {
        trace: trace.try_into().expect("sixteen of twenty-four"),
        span: span.try_into().expect("eight of twenty-four"),
        flags: 0,
    };
    let given = headers.get(TRACEPARENT).and_then(|given| TraceParent::parse(given.as_bytes()));
    match given {
        Some(given) => (next.trace, next.flags) = (given.trace, given.flags),
        // A state without its parent belongs to nothing.
        None => {
            headers.remove(TRACESTATE);
        }
    }
    let text = HeaderValue::from_str(&next.to_string()).expect("hexadecimal digits and hyphens");
    headers.insert(TRACEPARENT, text);
    next
}

impl TraceParent {
    /// Exactly as version 0 is written; of a later one, what version 0 has of it.
    pub fn parse(text: &[u8]) -> Option<TraceParent> {
        let is_whole = text.len() == 55 || (text.len() > 55 && text[55] == b'-' && !text.starts_with(b"00"));
        if !is_whole || [2, 35, 52].iter().any(|hyphen| text[*hyphen] != b'-') {
            return None;
        }
        let version: [u8; 1] = digits(&text[..2])?;
        let trace: [u8; 16] = digits(&text[3..35])?;
        let span: [u8; 8] = digits(&text[36..52])?;
        let [flags] = digits(&text[53..55])?;
        let is_valid = version != [0xff] && trace != [0; 16] && span != [0; 8];
        is_valid.then_some(TraceParent { trace, span, flags: flags & 1 })
    }
}

/// Lower-case hexadecimal digits, two for each byte.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{:02x}", self.flags)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(given: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_str(given).unwrap());
        headers.insert(TRACESTATE, HeaderValue::from_static("a=1"));
        trace(&mut headers, [7; 24]);
        let state = headers.get(TRACESTATE).map_or("", |state| state.to_str().unwrap());
        format!("{} {state}", headers[TRACEPARENT].to_str().unwrap())
    }

    #[test]
    fn a_trace_goes_on_under_a_new_span() {
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(after(given), "00-4bf92f3577b34da6a3ce929d0e0e4736-0707070707070707-01 a=1");
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert_eq!(after(later), "00-4bf92f3577b34da6a3ce929d0e0e4736-0707070707070707-01 a=1");
    }

    #[test]
    fn what_is_no_trace_begins_a_new_one() {
        let new = "00-07070707070707070707070707070707-0707070707070707-00 ";
        for bad in [
            "",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        ] {
            assert_eq!(after(bad), new, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(trace: [u8; 16], span: [u8; 8], flags in 0_u8..2) {
            let parent = TraceParent { trace, span, flags };
            let is_valid = trace != [0; 16] && span != [0; 8];
            prop_assert_eq!(TraceParent::parse(parent.to_string().as_bytes()), is_valid.then_some(parent));
        }

        #[test]
        fn arbitrary_bytes_never_panic(text: Vec<u8>) {
            let _ = TraceParent::parse(&text);
        }
    }
}
