//! What a verdict says in headers.

use std::fmt::Write;
use std::time::Duration;

use axum::http::header::HeaderName;
use axum::http::{HeaderMap, HeaderValue};
use towpath::limits::Verdict;

/// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers, one item per rule that may deny. With the older `X-RateLimit-*`,
/// which know one rule only, those of the binding rule, and seconds until all is as good as new.
pub(super) fn of(verdict: &Verdict, with_x: bool) -> HeaderMap {
    let (mut policies, mut states) = (String::new(), String::new());
    for (rule, said) in verdict.rules.iter().filter(|(rule, _)| !rule.is_shadow()) {
        let name = quoted(rule.name().as_str());
        let between = if policies.is_empty() { "" } else { ", " };
        let _to_a_string = write!(policies, "{between}{name};q={};w={}", rule.limit(), seconds_up(rule.window()));
        let _to_a_string = write!(states, "{between}{name};r={};t={}", said.remaining, seconds_up(said.reset));
    }
    let mut headers = HeaderMap::new();
    for (name, text) in [("ratelimit-policy", policies), ("ratelimit", states)] {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    if with_x {
        let numbers = [
            ("x-ratelimit-limit", verdict.limit),
            ("x-ratelimit-remaining", verdict.remaining),
            ("x-ratelimit-reset", seconds_up(verdict.reset)),
        ];
        headers.extend(numbers.map(|(name, number)| (HeaderName::from_static(name), HeaderValue::from(number))));
    }
    headers
}

/// A string of a structured field: printable ASCII, other bytes percent-encoded.
fn quoted(name: &str) -> String {
    let mut text = String::from("\"");
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _to_a_string = write!(text, "%{byte:02X}");
            }
        }
    }
    text.push('"');
    text
}

pub(super) fn seconds_up(length: Duration) -> u64 {
    length.as_secs() + u64::from(length.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_headers_are_strings_of_structured_fields() {
        assert_eq!(quoted("per_minute"), "\"per_minute\"");
        assert_eq!(quoted("a\"b\\ü"), "\"a\\\"b\\\\%C3%BC\"");
        assert_eq!(seconds_up(Duration::from_millis(1_001)), 2);
    }
}
