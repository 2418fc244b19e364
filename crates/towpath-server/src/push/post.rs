//! One call as one POST: signed, bounded in time and size, never redirected; its response is the handler's answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use towpath::{CallContext, Clock, HandlerError, Payload, RawHandler};

use super::guard::TargetPolicy;
use super::sign::{WebhookSecret, signature};
use crate::http::convert::claimed_call;
use crate::http::extract::{BODY_BYTES_MAX, is_too_deep};

/// A target has so long to answer, however much time the call has left.
const TIME_MAX: Duration = Duration::from_secs(30);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// So much of a refusal is kept for people to read.
const TAIL_CHARS: usize = 500;
const RETRY_AFTER_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Posts calls.
pub(crate) struct Poster {
    client: Client,
    policy: TargetPolicy,
    secrets: Vec<WebhookSecret>,
    clock: Arc<dyn Clock>,
}

impl Poster {
    pub(crate) fn new(policy: TargetPolicy, secrets: Vec<WebhookSecret>, clock: Arc<dyn Clock>) -> Result<Self, reqwest::Error> {
        let client = super::client::build(&policy, CONNECT_TIME_MAX)?;
        Ok(Self { client, policy, secrets, clock })
    }

    async fn post(&self, url: &str, ctx: &CallContext) -> Result<Payload, HandlerError> {
        // Checked at every call: the definition may be older than the policy, and addresses in URLs never reach the resolver.
        let url = self.policy.check(url).map_err(|refused| HandlerError::fatal("target_not_allowed", refused.to_string()))?;
        let response = self.send(url, ctx).await.map_err(|error| unreachable_target(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(response).await?;
        judge(status, &headers, &body)
    }

    async fn send(&self, url: Url, ctx: &CallContext) -> Result<Response, reqwest::Error> {
        let body = serde_json::to_vec(&claimed_call(ctx.delivery())).unwrap_or_default();
        let (id, timestamp) = (ctx.call_id().as_str(), self.clock.now().as_millis() / 1_000);
        let mut request = self
            .client
            .post(url)
            .timeout(ctx.remaining().min(TIME_MAX))
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature(&self.secrets, id, timestamp, &body));
        if let Some(trace) = ctx.traceparent() {
            request = request.header("traceparent", trace);
        }
        request.body(body).send().await
    }
}

/// A network error, with its causes but without the URL, which may hold a token.
fn unreachable_target(error: &reqwest::Error) -> HandlerError {
    let code = if error.is_timeout() { "push_timed_out" } else { "push_unreachable" };
    let mut message = String::from(if error.is_timeout() { "the target did not answer in time" } else { "the target cannot be reached" });
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        message += &format!(": {inner}");
        cause = inner.source();
    }
    HandlerError::retryable(code, message)
}

/// The body, as long as it is not longer than a result may be.
async fn read(mut response: Response) -> Result<Vec<u8>, HandlerError> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(part)) if body.len() + part.len() <= BODY_BYTES_MAX => body.extend_from_slice(&part),
            Ok(Some(_)) => {
                let message = format!("the target's response has more than {BODY_BYTES_MAX} bytes");
                return Err(HandlerError::fatal("push_response_too_large", message));
            }
            Ok(None) => return Ok(body),
            Err(error) => return Err(unreachable_target(&error)),
        }
    }
}

/// What a response means.
fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Result<Payload, HandlerError> {
    if status.is_success() {
        return result(headers, body);
    }
    let tail = tail(body);
    let message = if tail.is_empty() { format!("the target answered {status}") } else { format!("the target answered {status}: {tail}") };
    let busy = matches!(status.as_u16(), 408 | 425 | 429) || status.is_server_error();
    if !busy {
        return Err(HandlerError::fatal("push_refused", message));
    }
    let error = HandlerError::retryable("push_failed", message);
    Err(match retry_after(headers) {
        Some(wait) => error.retry_after(wait),
        None => error,
    })
}

/// JSON is the result itself, text is a JSON string, nothing is `null`.
fn result(headers: &HeaderMap, body: &[u8]) -> Result<Payload, HandlerError> {
    if body.trim_ascii().is_empty() {
        return Ok(Payload::null());
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let says_json = kind.split(';').next().is_some_and(|essence| essence.trim().ends_with("json"));
    let invalid = |what: String| HandlerError::fatal("push_invalid_response", format!("the target's response {what}"));
    if is_too_deep(body) {
        return Err(invalid("nests too deep".to_owned()));
    }
    let text = std::str::from_utf8(body).map_err(|_| invalid("is not UTF-8".to_owned()))?;
    match serde_json::from_str::<&serde_json::value::RawValue>(text) {
        Ok(json) if says_json || kind.is_empty() => Ok(Payload::from_json(json.get().to_owned())),
        Err(error) if says_json => Err(invalid(format!("is not the JSON that it says it is: {error}"))),
        _ => Ok(Payload::from_json(serde_json::Value::from(text).to_string())),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

fn tail(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let chars: Vec<char> = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    chars[chars.len().saturating_sub(TAIL_CHARS)..].iter().collect()
}

/// The handler of a function with a target.
pub(super) struct PushHandler {
    pub(super) poster: Arc<Poster>,
    pub(super) url: String,
}

#[async_trait]
impl RawHandler for PushHandler {
    async fn run(&self, ctx: CallContext) -> Result<Payload, HandlerError> {
        tokio::select! {
            answer = self.poster.post(&self.url, &ctx) => answer,
            () = ctx.cancelled() => Err(HandlerError::cancelled()),
        }
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        [(name.parse().unwrap(), HeaderValue::from_static(value))].into_iter().collect()
    }

    #[test]
    fn a_good_response_is_the_result() {
        let cases = [
            ("application/json", r#" {"a": 1e400} "#, r#"{"a": 1e400}"#),
            ("application/problem+json; charset=utf-8", "[1]", "[1]"),
            ("text/plain", "5", r#""5""#),
            ("text/plain", "say \"hi\"\n", r#""say \"hi\"\n""#),
            ("", "5", "5"),
            ("", "five", r#""five""#),
            ("application/json", "", "null"),
        ];
        for (kind, body, expected) in cases {
            assert_eq!(result(&headers("content-type", kind), body.as_bytes()).unwrap().as_str(), expected, "{kind}: {body}");
        }
    }

    #[test]
    fn a_response_that_is_not_what_it_says_fails_for_good() {
        let json = headers("content-type", "application/json");
        for body in [&b"<html>"[..], b"{\"a\":", "[".repeat(1_000).as_bytes(), b"\xff"] {
            let error = result(&json, body).unwrap_err();
            assert!(matches!(&error, HandlerError::Final { failure } if failure.code == "push_invalid_response"), "{error:?}");
        }
    }

    #[test]
    fn busy_targets_are_tried_again_and_refusals_are_not() {
        for status in [408, 425, 429, 500, 502, 503, 504] {
            let answer = judge(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), b"");
            assert!(matches!(answer, Err(HandlerError::Retryable { retry_after: None, .. })), "{status}");
        }
        for status in [301, 302, 307, 400, 401, 403, 404, 410, 422] {
            let answer = judge(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), b"no such thing");
            let Err(HandlerError::Final { failure }) = answer else { panic!("{status}: {answer:?}") };
            assert_eq!(failure.code, "push_refused");
            assert!(failure.message.ends_with("no such thing"), "{}", failure.message);
        }
    }

    #[test]
    fn a_target_says_when_to_come_back() {
        let wait = |value: &'static str| match judge(StatusCode::TOO_MANY_REQUESTS, &headers("retry-after", value), b"") {
            Err(HandlerError::Retryable { retry_after, .. }) => retry_after,
            other => panic!("{other:?}"),
        };
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait("99999999999"), Some(RETRY_AFTER_MAX));
        assert_eq!(wait("soon"), None);
    }

    #[test]
    fn only_the_end_of_a_long_refusal_is_kept() {
        let body = format!("{}the end", "x".repeat(10_000));
        assert_eq!(tail(body.as_bytes()).chars().count(), TAIL_CHARS);
        assert!(tail(body.as_bytes()).ends_with("the end"));
    }
}
