//! `towpath calls`: what was asked, what runs, how it ended.

use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::Cell;
use towpath_core::call::CallState;
use towpath_server::http::wire::calls::{CallDetail, CallList, CallQuery, CancelAnswer, FailureBody};

use super::client::{Ask, Client, routes};
use super::exit::Exit;
use super::failure::Failure;
use super::follow::{Follow, follow};
use super::output::{self, Output};
use super::{json_text, outcome, time, words};

/// The largest page that the server gives.
const PAGE: u32 = 200;
/// How long `calls wait` puts up with a server that has stopped answering.
const TROUBLE_FOR: Duration = Duration::from_secs(60);

const EXAMPLES: &str = "\
Examples:
  towpath calls                                the newest calls
  towpath calls --state running,delayed        those that are not over
  towpath calls --function add --limit 5
  towpath calls show ID                        all that is known of one
  towpath calls wait ID                        prints its data when it is over
  towpath calls cancel ID";

/// List, show, await or cancel calls
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CallsArgs {
    #[command(subcommand)]
    command: Option<CallsCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Subcommand, Debug)]
enum CallsCommand {
    /// List calls, newest first (the default)
    #[command(alias = "list")]
    Ls(ListArgs),
    /// Show one call
    Show(IdArgs),
    /// Wait for a call's end and print its data
    Wait(WaitArgs),
    /// Cancel a call: one that waits will not run, one that runs is asked to stop
    Cancel(IdArgs),
}

#[derive(Args, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListArgs {
    /// Only calls in these states, separated by commas
    #[arg(long, value_name = "STATES")]
    state: Option<String>,
    /// Only calls of this function
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Only calls in this scope
    #[arg(long)]
    scope: Option<String>,
    /// Only calls that this worker holds or last held
    #[arg(long, value_name = "ID")]
    worker: Option<String>,
    /// At most this many [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: Option<u32>,
    /// With parameters and results; for --json
    #[arg(long)]
    payloads: bool,
}

#[derive(Args, Debug)]
struct IdArgs {
    /// The call's id
    #[arg(value_name = "ID")]
    call_id: String,
}

#[derive(Args, Debug)]
struct WaitArgs {
    /// The call's id
    #[arg(value_name = "ID")]
    call_id: String,
    /// Wait no longer than this; the call goes on
    #[arg(long, value_name = "LENGTH", value_parser = words::parse_length)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(client: &Client, out: Output, args: CallsArgs) -> Result<Exit, Failure> {
    // Clap could refuse this itself, but then it would refuse `towpath calls --json ls` too.
    if args.command.is_some() && args.list != ListArgs::default() {
        return Err(Failure::usage("usage", "options that choose calls stand behind `ls`, or without any other word"));
    }
    match args.command.unwrap_or(CallsCommand::Ls(args.list)) {
        CallsCommand::Ls(args) => list(client, out, &args).await,
        CallsCommand::Show(args) => show(client, out, &args.call_id).await,
        CallsCommand::Wait(args) => wait(client, out, &args).await,
        CallsCommand::Cancel(args) => cancel(client, out, &args.call_id).await,
    }
}

async fn list(client: &Client, out: Output, args: &ListArgs) -> Result<Exit, Failure> {
    check_states(args.state.as_deref())?;
    let query = CallQuery {
        state: args.state.clone(),
        function: args.function.clone(),
        scope: args.scope.clone(),
        worker: args.worker.clone(),
        payloads: args.payloads,
        ..CallQuery::default()
    };
    let page = |after, limit| routes::with_query(routes::CALLS, &CallQuery { after, limit, ..query.clone() });
    let found = pages(client, args.limit.unwrap_or(50), page).await?;
    show_list(out, &found, "no call matches");
    Ok(Exit::Done)
}

/// A misspelt state is told here with the words there are.
fn check_states(states: Option<&str>) -> Result<(), Failure> {
    let unknown = states.unwrap_or_default().split(',').filter(|word| !word.is_empty()).find(|word| CallState::parse(word).is_none());
    match unknown {
        None => Ok(()),
        Some(word) => {
            let known = CallState::ALL.map(CallState::as_str).join(", ");
            Err(Failure::usage("unknown_state", format!("'{word}' is no state of a call"))
                .field("state")
                .hint(format!("states are {known}")))
        }
    }
}

/// Follows a list page by page until there are enough. `page` makes the path of the page after another, of some size.
pub(crate) async fn pages<P>(client: &Client, limit: u32, page: P) -> Result<CallList, Failure>
where
    P: Fn(Option<String>, Option<u32>) -> String,
{
    let mut found = CallList { calls: Vec::new(), next: None };
    loop {
        let missing = limit.saturating_sub(u32::try_from(found.calls.len()).unwrap_or(u32::MAX));
        let more: CallList = client.get(&page(found.next.take(), Some(missing.min(PAGE)))).await?;
        found.calls.extend(more.calls);
        found.next = more.next;
        if found.next.is_none() || found.calls.len() >= limit as usize {
            return Ok(found);
        }
    }
}

/// Shows calls as a table.
pub(crate) fn show_list(out: Output, list: &CallList, nothing: &str) {
    if out.is_json() {
        return out.json(list);
    }
    if list.calls.is_empty() {
        return out.note(nothing);
    }
    let mut table = output::table(["call", "function", "state", "attempt", "submitted", "took", "worker", "error"]);
    for call in &list.calls {
        table.add_row(row(call));
    }
    out.table(&table);
    if list.next.is_some() {
        out.note("there are more; see them with a larger --limit");
    }
}

fn row(call: &CallDetail) -> Vec<Cell> {
    let took = call.ended_at.map_or_else(String::new, |at| words::between(call.submitted_at, at));
    let error =
        failure_of(call).map_or_else(String::new, |failure| json_text::brief(&format!("{}: {}", failure.code, failure.message), 60));
    vec![
        Cell::new(&call.call_id),
        Cell::new(&call.function_name),
        output::state(&call.state),
        output::count(u64::from(call.attempt)),
        Cell::new(words::ago(call.submitted_at)),
        Cell::new(took),
        Cell::new(call.worker_id.as_deref().unwrap_or_default()),
        Cell::new(error),
    ]
}

/// What went wrong last, unless all is well since.
fn failure_of(call: &CallDetail) -> Option<&FailureBody> {
    let of_the_end = call.outcome.as_ref().and_then(|outcome| outcome.error.as_ref());
    of_the_end.or(call.last_failure.as_ref().filter(|_| call.state != "completed"))
}

async fn show(client: &Client, out: Output, call_id: &str) -> Result<Exit, Failure> {
    let call: CallDetail = client.get(&routes::call(call_id)).await?;
    show_one(out, &call);
    Ok(Exit::Done)
}

/// Shows everything that is known of a call.
pub(crate) fn show_one(out: Output, call: &CallDetail) {
    if out.is_json() {
        out.json(call);
    } else {
        out.line(&output::facts(&facts(call)));
    }
}

fn facts(call: &CallDetail) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("call", call.call_id.clone()),
        ("function", call.function_name.clone()),
        ("scope", call.scope.clone()),
        (
            "state",
            if call.cancel_requested && call.outcome.is_none() { format!("{}, asked to stop", call.state) } else { call.state.clone() },
        ),
        ("attempt", format!("{} ({} failed, {} lost with their worker)", call.attempt, call.failures, call.crashes)),
        ("submitted", format!("{}, {}", words::instant(call.submitted_at), words::ago(call.submitted_at))),
        ("deadline", words::instant(call.deadline)),
    ];
    facts.extend(call.started_at.map(|at| ("started", words::instant(at))));
    facts.extend(call.next_attempt_at.map(|at| ("next attempt", words::instant(at))));
    facts.extend(
        call.ended_at
            .map(|at| ("ended", format!("{}, {} after it was submitted", words::instant(at), words::between(call.submitted_at, at)))),
    );
    facts.extend(call.waits_because.clone().map(|why| ("waits because", why)));
    facts.extend(call.worker_id.clone().map(|id| ("worker", id)));
    facts.extend(call.depth.filter(|depth| *depth > 0).map(|depth| ("depth", depth.to_string())));
    facts.extend(call.parent_call_id.clone().map(|id| ("called by", id)));
    facts.extend(call.idempotency_key.clone().map(|key| ("idempotency key", key)));
    facts.extend(call.traceparent.clone().map(|trace| ("traceparent", trace)));
    facts.extend(call.replayed_as.clone().map(|id| ("replayed as", id)));
    facts.extend(call.progress.as_ref().map(|progress| ("progress", json_text::pretty(progress.value.get()))));
    facts.extend(failure_of(call).map(|failure| ("error", format!("{}: {}", failure.code, failure.message))));
    facts.extend(call.params.as_ref().map(|params| ("params", json_text::pretty(params.get()))));
    facts.extend(call.input_item.as_ref().map(|item| ("input item", json_text::pretty(item.get()))));
    facts.extend(
        call.outcome
            .as_ref()
            .filter(|outcome| outcome.kind == "ok")
            .map(|outcome| ("data", outcome.data.as_ref().map_or_else(|| "null".to_owned(), |data| json_text::pretty(data.get())))),
    );
    facts
}

async fn wait(client: &Client, out: Output, args: &WaitArgs) -> Result<Exit, Failure> {
    let id = &args.call_id;
    // Asked once without waiting: an unknown id or a server that is not there is told at once.
    let first: CallDetail = client.get(&routes::call(id)).await?;
    if first.outcome.is_some() {
        return outcome::conclude(out, &first, None);
    }
    let following = Follow { call_id: id, until: args.timeout.map(|length| time::now() + length), trouble_for: TROUBLE_FOR };
    match follow(client, out, &following).await? {
        Some(detail) => outcome::conclude(out, &detail, None),
        None => {
            let message = format!("call {id} is not over yet; it goes on");
            Err(Failure::new(Exit::NotNow, "still_going", message).hint(format!("wait on with `towpath calls wait {id}`")))
        }
    }
}

async fn cancel(client: &Client, out: Output, call_id: &str) -> Result<Exit, Failure> {
    let answer: CancelAnswer = client.ask(Ask::delete(&routes::call(call_id))).await?;
    if out.is_json() {
        out.json(&answer);
    }
    let (said, exit) = match answer.result.as_str() {
        "cancelled" => (format!("cancelled: call {call_id} will not run"), Exit::Done),
        "requested" => (format!("requested: call {call_id} runs, and its worker is asked to stop"), Exit::Done),
        _already_ended => (format!("call {call_id} had ended before; nothing changed"), Exit::Duplicate),
    };
    if !out.is_json() {
        out.line(&said);
    }
    Ok(exit)
}
