//! Calls that a program of `towpath worker --exec` makes while it serves a call itself. They are waited for in the request that submits
//! them, because the parent gives its place back for as long as that request is open: a function can call itself to any depth.

use std::time::{Duration, Instant};

use serde::Deserialize;
use towpath_server::http::wire::Json;
use towpath_server::http::wire::calls::{CallAnswer, CallBody};

use super::client::{Ask, Client, RequestError, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::pauses::Pauses;
use super::{json_text, time, words};

/// How long one request waits; then the same call is asked for again.
const WAIT: Duration = Duration::from_secs(30);

/// The delivery that this process works on, as `towpath worker --exec` told it.
pub(crate) fn parent_delivery() -> Option<String> {
    std::env::var("TOWPATH_DELIVERY_ID").ok().filter(|id| !id.is_empty())
}

/// The trace context of the process that started this one.
pub(crate) fn traceparent() -> Option<String> {
    let told = std::env::var("TOWPATH_TRACEPARENT").or_else(|_| std::env::var("TRACEPARENT"));
    told.ok().filter(|trace| !trace.is_empty())
}

/// Makes the call and waits for it, under one id however often the request has to be repeated.
pub(crate) async fn call_and_wait(client: &Client, name: &str, mut body: CallBody, until: Instant) -> Result<CallAnswer, Failure> {
    body.wait_ms = Some(words::millis(WAIT));
    let path = format!("{}/call", routes::function(name));
    let patience = WAIT + Duration::from_millis(body.wait_for_function_ms.unwrap_or_default());
    let mut pauses = Pauses::of(body.call_id.as_deref().unwrap_or_default());
    let mut may_have_happened = false;
    loop {
        let asked: Result<Answer, RequestError> = client.ask(Ask::post(&path, &body).waiting(patience).traceparent(traceparent())).await;
        match asked {
            Ok(answer) if answer.success => return Ok(answer.ended()),
            Ok(_goes_on) => may_have_happened = true,
            Err(error) if keep_trying(&error, may_have_happened) && time::now() < until => {
                may_have_happened = true;
                time::sleep(pauses.next(error.retry_after())).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A request is repeated when it may have been heard, or once it has been: then only the network or a restart is in the way.
fn keep_trying(error: &RequestError, may_have_happened: bool) -> bool {
    let ended = matches!(error, RequestError::Refused { detail, .. } if detail.code.starts_with("call_"));
    !ended && error.may_pass() && (may_have_happened || error.may_have_happened())
}

/// Both good answers in one: the call has ended well, or it goes on.
#[derive(Deserialize)]
struct Answer {
    call_id: String,
    durability: String,
    #[serde(default)]
    success: bool,
    /// Absent also when it is `null`.
    #[serde(default)]
    data: Option<Json>,
}

impl Answer {
    fn ended(self) -> CallAnswer {
        let data = self.data.unwrap_or_else(json_text::null);
        CallAnswer { call_id: self.call_id, success: true, data, durability: self.durability }
    }
}

/// Shows the data of a call that ended well.
pub(crate) fn show(out: Output, answer: &CallAnswer) -> Exit {
    if out.is_json() {
        out.json(answer);
    } else {
        out.line(answer.data.get());
    }
    Exit::Done
}
