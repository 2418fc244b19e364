//! One batch as one POST: signed, bounded in time and size, never redirected.

use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, Url};
use serde_json::Value;
use towpath::Timestamp;
use towpath::batches::{Delivered, Delivery, Parcel};

use crate::push::{WebhookSecret, signature};

/// So much of a response is read.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// So much of it is kept for people to read.
const SHOWN_BYTES_MAX: usize = 2 * 1024;

/// Posts a batch and says how it went.
pub(super) async fn post(client: &Client, url: Url, secrets: &[WebhookSecret], parcel: &Parcel, now: Timestamp) -> Delivery {
    let exchange = async {
        let response = request(client, url, secrets, parcel, now).send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok::<_, reqwest::Error>((status, headers, read(response).await?))
    };
    match tokio::time::timeout(parcel.settings.timeout, exchange).await {
        Err(_elapsed) => Delivery::unanswered(format!("the target did not answer within {:?}", parcel.settings.timeout), "timeout"),
        Ok(Err(error)) => unreachable_target(&error),
        Ok(Ok((status, headers, body))) => judge(status, &headers, &body, parcel.settings.error_field.as_deref(), now),
    }
}

fn request(client: &Client, url: Url, secrets: &[WebhookSecret], parcel: &Parcel, now: Timestamp) -> reqwest::RequestBuilder {
    let (id, timestamp, body) = (parcel.batch.batch_id.as_str(), now.as_millis() / 1_000, parcel.payload.to_bytes());
    client
        .post(url)
        .header(CONTENT_TYPE, "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature(secrets, id, timestamp, &body))
        .header("idempotency-key", id)
        .header("towpath-attempt", parcel.batch.attempt)
        .body(body)
}

/// As much of the body as is looked at. What is longer is cut, and the connection with it.
async fn read(mut response: Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await? {
        let room = RESPONSE_BYTES_MAX - body.len();
        body.extend_from_slice(&part[..part.len().min(room)]);
        if part.len() >= room {
            break;
        }
    }
    Ok(body)
}

/// A network error, with its causes but without the URL, which may hold a token.
fn unreachable_target(error: &reqwest::Error) -> Delivery {
    let (mut message, label) = match error.is_timeout() {
        true => ("the target did not answer in time".to_owned(), "timeout"),
        false => ("the target cannot be reached".to_owned(), "unreachable"),
    };
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        message += &format!(": {inner}");
        cause = inner.source();
    }
    Delivery::unanswered(message, label)
}

fn judge(status: u16, headers: &HeaderMap, body: &[u8], error_field: Option<&str>, now: Timestamp) -> Delivery {
    let label = match status {
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    };
    let has_error_field = (200..300).contains(&status) && error_field.is_some_and(|field| has_truthy(body, field));
    let error = match (label, has_error_field) {
        ("2xx", false) => String::new(),
        ("2xx", true) => format!("the target answered {status} with an error: {}", shown(body)),
        _ => format!("the target answered {status}: {}", shown(body)),
    };
    let retry_after = retry_after(headers, now);
    Delivery { delivered: Delivered::Answered { status, retry_after, has_error_field }, error, label }
}

/// Whether the body is an object that has the field, and a script would take it for true.
fn has_truthy(body: &[u8], field: &str) -> bool {
    let Ok(Value::Object(object)) = serde_json::from_slice(body) else { return false };
    match object.get(field) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(_) => true,
    }
}

/// How long the target wants to be left alone: seconds, or a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let at_ms = at.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis();
    Some(Timestamp::from_millis(i64::try_from(at_ms).ok()?).since(now))
}

fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(784_111_777_000); // Sun, 06 Nov 1994 08:49:37 GMT

    fn judged(status: u16, retry: Option<&'static str>, body: &str, error_field: Option<&str>) -> Delivery {
        let mut headers = HeaderMap::new();
        if let Some(retry) = retry {
            headers.insert(RETRY_AFTER, retry.parse().unwrap());
        }
        judge(status, &headers, body.as_bytes(), error_field, NOW)
    }

    #[test]
    fn a_target_says_when_to_come_back_in_seconds_or_by_a_date() {
        let wait = |text: &'static str| match judged(429, Some(text), "", None).delivered {
            Delivered::Answered { retry_after, .. } => retry_after,
            other => panic!("{other:?}"),
        };
        assert_eq!(wait("3"), Some(Duration::from_secs(3)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:47 GMT"), Some(Duration::from_secs(10)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO), "a date that is over");
        for nonsense in ["soon", "-1", "1.5"] {
            assert_eq!(wait(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_good_status_with_an_error_in_it_is_a_failure_where_that_is_wanted() {
        for (body, field, expected) in [
            (r#"{"error": "no"}"#, Some("error"), true),
            (r#"{"error": "no"}"#, None, false),
            (r#"{"error": null}"#, Some("error"), false),
            (r#"{"error": ""}"#, Some("error"), false),
            (r#"{"error": 0}"#, Some("error"), false),
            (r#"{"error": {}}"#, Some("error"), true),
            (r#"["error"]"#, Some("error"), false),
            ("error", Some("error"), false),
        ] {
            let Delivered::Answered { has_error_field, .. } = judged(200, None, body, field).delivered else { panic!("{body}") };
            assert_eq!(has_error_field, expected, "{body}");
        }
    }

    #[test]
    fn a_refusal_is_shown_without_control_characters_and_not_whole() {
        let error = judged(400, None, &format!("a\u{7}b{}", "x".repeat(10_000)), None).error;
        assert!(error.starts_with("the target answered 400: a bx") && error.len() < 2_200, "{error}");
    }
}
