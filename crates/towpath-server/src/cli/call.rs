//! `towpath call`: calls a function and prints its answer.

use std::time::{Duration, Instant};

use clap::Args;
use towpath::TimeoutRetries;
use towpath_server::http::wire::calls::{CallAccepted, CallBody};
use towpath_server::http::wire::error::Effect;
use towpath_server::http::wire::functions::{FunctionBody, ScopeQuery};

use super::client::{Ask, Client, RequestError, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::follow::{Follow, LAST_ANSWER, follow};
use super::output::Output;
use super::pauses::Pauses;
use super::{ids, json_text, nested, outcome, time, words};

/// A waited call's time to live, unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A caller waits for the outcome, so it need not be kept for a day.
const RETAIN: Duration = Duration::from_secs(600);
/// A submit whose answer was lost is repeated for so long.
const RESEND_FOR: Duration = Duration::from_secs(30);
/// Silence this long deserves an explanation.
const EXPLAIN_AFTER: Duration = Duration::from_millis(700);
/// How long a function that is not known yet is waited for, unless told otherwise.
const WAIT_FOR_FUNCTION: Duration = Duration::from_secs(5);
/// A command ends this long after the time-out of its call at the latest, also if the server never answers.
const ALLOWANCE: Duration = Duration::from_secs(5);
/// The store ends a nested call at its deadline; this much later that must have become visible.
const GRACE: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  towpath call add '{\"a\":1,\"b\":2}'             prints 3
  towpath call resize @order.json --timeout 5m   parameters from a file
  jq -c .order in.json | towpath call price -    from standard input
  id=$(towpath call report --detach)             goes on by itself; later:
  towpath calls wait $id
  towpath call charge @c.json --idempotency-key order-17
                                                 sent twice, it runs once
  towpath call quote @q.json --timeout 15s --retries-on-timeout 3
                                                 up to four calls, 2 s apart";

/// Call a function and print its answer
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CallArgs {
    /// The function's name
    name: String,
    /// Parameters as JSON, @FILE, or - for standard input
    #[arg(value_name = "JSON", default_value = "{}", allow_negative_numbers = true)]
    params: String,
    /// The item that you are working on, carried along for the worker: JSON or @FILE
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    input_item: Option<String>,
    /// The scope in which the function is known
    #[arg(long)]
    scope: Option<String>,
    /// The call ends at the latest after this [default: 30s, with --detach 1d]
    #[arg(long, value_name = "LENGTH", value_parser = words::parse_length)]
    timeout: Option<Duration>,
    /// Do not wait: print the call's id and leave
    #[arg(long)]
    detach: bool,
    /// Calls of one function with the same key are the same call, from any caller
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Your own id for the call; sending it again is the same call
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
    /// How long to wait for a function that is not known yet [default: 5s, at most as long as --timeout]
    #[arg(long, value_name = "LENGTH", value_parser = words::parse_length)]
    wait_for_function: Option<Duration>,
    /// Call again, as a new call two seconds later, when the call times out; what ran may run twice
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["detach", "call_id", "idempotency_key"],
        value_parser = clap::value_parser!(u32).range(0..=i64::from(TimeoutRetries::MAX)))]
    retries_on_timeout: u32,
    /// Fail at once when no healthy worker serves the function
    #[arg(long)]
    no_wait_for_workers: bool,
}

impl CallArgs {
    fn wait_for_function(&self) -> Duration {
        self.wait_for_function.unwrap_or_else(|| self.timeout.map_or(WAIT_FOR_FUNCTION, |timeout| timeout.min(WAIT_FOR_FUNCTION)))
    }

    /// When the call must have been accepted; `None`: a detached call without a time-out.
    fn submit_until(&self) -> Option<Instant> {
        let timeout = self.timeout.or((!self.detach).then_some(TIMEOUT))?;
        time::now().checked_add(timeout.max(self.wait_for_function()) + ALLOWANCE)
    }
}

pub(crate) async fn run(client: &Client, out: Output, args: CallArgs) -> Result<Exit, Failure> {
    let mut body = body_of(&args)?;
    let mut retries = Retries { left: args.retries_on_timeout, ran: None };
    loop {
        let failure = match once(client, out, &args, body.clone()).await {
            Err(failure) if failure.detail.code == "call_timed_out" && retries.left > 0 => failure,
            Err(failure) => return Err(retries.last(failure)),
            ended => return ended,
        };
        retries.left -= 1;
        out.note(&format!("{}; calling again in {}", failure.detail.message, words::length(TimeoutRetries::PAUSE)));
        retries.ran = (failure.detail.effect == Effect::Unknown).then_some(failure).or(retries.ran);
        tokio::select! {
            () = time::sleep(TimeoutRetries::PAUSE) => {}
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
        }
        body.call_id = Some(ids::call_id());
    }
}

/// The time-outs that are borne, as `TimeoutRetries` of the library counts them.
struct Retries {
    left: u32,
    /// The last try that timed out while it ran.
    ran: Option<Failure>,
}

impl Retries {
    /// What is told in the end: a try that may have run is not hidden by one that did nothing.
    fn last(self, failure: Failure) -> Failure {
        if failure.detail.effect == Effect::None { self.ran.unwrap_or(failure) } else { failure }
    }
}

async fn once(client: &Client, out: Output, args: &CallArgs, body: CallBody) -> Result<Exit, Failure> {
    let call_id = body.call_id.clone().unwrap_or_default();
    tokio::select! {
        ended = submit_and_wait(client, out, args, body) => ended,
        _ = tokio::signal::ctrl_c() => {
            out.note(&format!(
                "call {call_id} goes on without you: look at it with `towpath calls show {call_id}`, \
                 wait for it with `towpath calls wait {call_id}`, stop it with `towpath calls cancel {call_id}`"
            ));
            Ok(Exit::Interrupted)
        }
    }
}

fn body_of(args: &CallArgs) -> Result<CallBody, Failure> {
    let timeout = args.timeout.or((!args.detach).then_some(TIMEOUT));
    let keep_briefly = !args.detach && args.idempotency_key.is_none();
    Ok(CallBody {
        params: Some(json_text::read_argument("params", &args.params)?),
        input_item: args.input_item.as_deref().map(|item| json_text::read_argument("input item", item)).transpose()?,
        scope: args.scope.clone(),
        timeout_ms: timeout.map(words::millis),
        call_id: Some(args.call_id.clone().unwrap_or_else(ids::call_id)),
        idempotency_key: args.idempotency_key.clone(),
        wait_for_function_ms: Some(words::millis(args.wait_for_function())),
        fail_without_workers: args.no_wait_for_workers,
        parent_delivery_id: nested::parent_delivery(),
        retain_ms: keep_briefly.then(|| words::millis(RETAIN)),
        ..CallBody::default()
    })
}

async fn submit_and_wait(client: &Client, out: Output, args: &CallArgs, body: CallBody) -> Result<Exit, Failure> {
    if body.parent_delivery_id.is_some() && !args.detach {
        let until = time::now() + args.timeout.unwrap_or(TIMEOUT) + GRACE;
        return nested::call_and_wait(client, &args.name, body, until).await.map(|answer| nested::show(out, &answer));
    }
    let submitted = submit(client, out, args, &body).await?;
    let CallAccepted { call_id, durability, .. } = &submitted.accepted;
    let duplicate = submitted.accepted.existing && !submitted.resent;
    if args.detach {
        return Ok(say_accepted(out, &submitted.accepted, duplicate));
    }
    if duplicate {
        out.note(&format!("call {call_id} was made before; this is what becomes of it"));
    }
    // A call that was made before has its own deadline, which may be later than ours.
    let longest = args.timeout.unwrap_or(TIMEOUT) + ALLOWANCE.saturating_sub(LAST_ANSWER);
    let until = (!duplicate).then(|| time::now() + longest);
    let following = Follow { call_id, until, trouble_for: longest };
    match follow(client, out, &following).await {
        Ok(Some(detail)) => outcome::conclude(out, &detail, Some(durability)),
        Ok(None) => Err(not_seen(call_id, "no end of it was seen in time")),
        Err(failure) if failure.exit == Exit::Unreachable => Err(not_seen(call_id, &failure.detail.message)),
        Err(failure) => Err(failure),
    }
}

fn not_seen(call_id: &str, why: &str) -> Failure {
    Failure::new(Exit::Unreachable, "outcome_not_seen", format!("call {call_id} was accepted, but {why}"))
        .hint(format!("it is safe in the store: ask later with `towpath calls wait {call_id}`"))
        .effect_unknown()
}

fn say_accepted(out: Output, accepted: &CallAccepted, duplicate: bool) -> Exit {
    let id = &accepted.call_id;
    if out.is_json() {
        out.json(accepted);
    } else {
        out.line(id);
    }
    if duplicate {
        out.note(&format!("it had been accepted before and is {}; nothing new was done", accepted.state));
        return Exit::Duplicate;
    }
    out.note(&format!("accepted ({}); wait for it with `towpath calls wait {id}`", accepted.durability));
    Exit::Done
}

struct Submission {
    accepted: CallAccepted,
    /// It was sent more than once, so "existing" may well mean our own first try.
    resent: bool,
}

/// Submits the call; when the answer is lost, again under the same id.
async fn submit(client: &Client, out: Output, args: &CallArgs, body: &CallBody) -> Result<Submission, Failure> {
    let mut pauses = Pauses::of(body.call_id.as_deref().unwrap_or_default());
    let mut lost_since: Option<Instant> = None;
    let (until, traceparent) = (args.submit_until(), nested::traceparent());
    let left = || until.map_or(Duration::MAX, |until| until.saturating_duration_since(time::now()));
    loop {
        let ask = Ask::post(&routes::detached_calls(&args.name), body).waiting(args.wait_for_function()).traceparent(traceparent.clone());
        let asking = client.ask(ask.no_longer_than(left()));
        tokio::pin!(asking);
        let answered = tokio::select! {
            answered = &mut asking => answered,
            () = explain_silence(client, out, args) => asking.await,
        };
        let error = match answered {
            Ok(accepted) => return Ok(Submission { accepted, resent: lost_since.is_some() }),
            Err(error) => error,
        };
        if lost_since.is_none() && error.may_have_happened() && error.may_pass() {
            lost_since = Some(time::now());
            if !left().is_zero() {
                out.note(&format!("{}; sending the same call again", error.brief()));
            }
        }
        let in_time = lost_since.is_some_and(|since| time::now().saturating_duration_since(since) < RESEND_FOR) && !left().is_zero();
        let again = in_time && error.may_pass();
        if !again {
            return Err(give_up(error, body.call_id.as_deref().unwrap_or_default(), lost_since.is_some()));
        }
        time::sleep(pauses.next(error.retry_after()).min(left())).await;
    }
}

/// After a moment, says that the function is not known yet, if that is why nothing happens.
async fn explain_silence(client: &Client, out: Output, args: &CallArgs) {
    time::sleep(EXPLAIN_AFTER).await;
    let query = ScopeQuery { scope: args.scope.clone() };
    let found: Result<FunctionBody, _> = client.get(&routes::with_query(&routes::function(&args.name), &query)).await;
    if found.is_err_and(|error| error.is_not_found()) {
        let (name, wait) = (&args.name, words::length(args.wait_for_function()));
        out.note(&format!("no function '{name}' is known yet; waiting up to {wait} for one (--wait-for-function)"));
    }
}

fn give_up(error: RequestError, call_id: &str, may_have_happened: bool) -> Failure {
    if !may_have_happened {
        return error.into();
    }
    let message = format!("call {call_id} may or may not have been accepted: {}", error.brief());
    Failure::new(Exit::Unreachable, "submit_unknown", message)
        .hint(format!("ask with `towpath calls show {call_id}`, or make the same call with --call-id {call_id}: it will not run twice"))
        .effect_unknown()
}
