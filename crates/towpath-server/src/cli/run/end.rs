//! `towpath run wait`: the end of a run, as data on standard output or as a failure with its exit code.

use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::json;
use towpath_server::http::wire::Json;
use towpath_server::http::wire::runs::{RunBody, RunWaitQuery};

use crate::cli::client::{Ask, Client, RequestError, routes};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::pauses::Pauses;
use crate::cli::{json_text, time, words};

/// How long one request waits.
const WAIT: Duration = Duration::from_secs(20);
/// How long a server may be out of reach while a run is awaited.
const TROUBLE_FOR: Duration = Duration::from_secs(60);
/// A server that stops answers at once; it is not asked more often than this.
const APART: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
pub(super) struct WaitArgs {
    /// The run's id
    #[arg(value_name = "ID")]
    run_id: String,
    /// Wait no longer than this; the run goes on
    #[arg(long, value_name = "LENGTH", value_parser = words::parse_length)]
    timeout: Option<Duration>,
}

/// What programs get of a run that completed.
#[derive(Serialize)]
struct Completed<'a> {
    run_id: &'a str,
    state: &'a str,
    data: Json,
}

pub(super) async fn wait(client: &Client, out: Output, args: &WaitArgs) -> Result<Exit, Failure> {
    follow(client, out, &args.run_id, args.timeout).await
}

/// Waits for the end of a run and tells it.
pub(super) async fn follow(client: &Client, out: Output, run_id: &str, timeout: Option<Duration>) -> Result<Exit, Failure> {
    let until = timeout.map(|length| time::now() + length);
    tokio::select! {
        ended = follow_until(client, out, run_id, until) => ended,
        _ = tokio::signal::ctrl_c() => {
            out.note(&format!("run {run_id} goes on without you: wait for it with `towpath run wait {run_id}`"));
            Ok(Exit::Interrupted)
        }
    }
}

async fn follow_until(client: &Client, out: Output, run_id: &str, until: Option<Instant>) -> Result<Exit, Failure> {
    let mut pauses = Pauses::of(run_id);
    let (mut trouble_since, mut was_found): (Option<Instant>, bool) = (None, false);
    loop {
        let begun = time::now();
        let wait = until.map_or(WAIT, |until| until.saturating_duration_since(begun).min(WAIT));
        match look(client, run_id, wait).await {
            Ok(run) if run.closed_at.is_some() => return conclude(out, &run),
            Ok(run) => {
                (trouble_since, was_found) = (None, true);
                pauses.reset();
                if until.is_some_and(|until| time::now() >= until) {
                    return Err(not_over(&run));
                }
                time::sleep_until(begun + APART).await;
            }
            Err(error) => {
                // The first look must succeed: a server that is not there is told at once.
                let since = *trouble_since.get_or_insert(begun);
                let is_over = until.is_some_and(|until| time::now() >= until) || time::now().saturating_duration_since(since) > TROUBLE_FOR;
                if !was_found || !error.may_pass() || is_over {
                    return Err(error.into());
                }
                if pauses.is_fresh() {
                    out.note(&format!("{}; the run goes on, trying again", error.brief()));
                }
                time::sleep(pauses.next(error.retry_after())).await;
            }
        }
    }
}

async fn look(client: &Client, run_id: &str, wait: Duration) -> Result<RunBody, RequestError> {
    let query = RunWaitQuery { wait_ms: Some(words::millis(wait)) };
    client.ask(Ask::get(&routes::with_query(&routes::run_verb(run_id, "wait"), &query)).waiting(wait)).await
}

fn not_over(run: &RunBody) -> Failure {
    let (id, why) = (&run.run_id, run.why.as_deref().unwrap_or_default());
    Failure::new(Exit::NotNow, "still_going", format!("run {id} is not over yet, it is {}: {why}", run.state))
        .hint(format!("wait on with `towpath run wait {id}`"))
}

/// Shows the result of a run that completed; any other end is a failure.
fn conclude(out: Output, run: &RunBody) -> Result<Exit, Failure> {
    let outcome = run.outcome.as_ref();
    if run.state != "completed" {
        return Err(failure_of(run));
    }
    let data = outcome.and_then(|outcome| outcome.data.clone()).unwrap_or_else(json_text::null);
    if out.is_json() {
        out.json(&Completed { run_id: &run.run_id, state: &run.state, data });
    } else if out.stdout_is_terminal() {
        out.line(&json_text::pretty(data.get()));
    } else {
        out.line(data.get());
    }
    Ok(Exit::Done)
}

fn failure_of(run: &RunBody) -> Failure {
    let (id, outcome) = (&run.run_id, run.outcome.as_ref());
    let error = outcome.and_then(|outcome| outcome.error.as_ref());
    let reason = outcome.and_then(|outcome| outcome.reason.as_deref());
    let said = error.map(|error| format!("{}: {}", error.code, error.message)).or_else(|| reason.map(str::to_owned));
    let said = said.map(|said| format!(": {said}")).unwrap_or_default();
    let (code, verb) = match run.state.as_str() {
        "failed" => ("run_failed", "failed"),
        "cancelled" => ("run_cancelled", "was cancelled"),
        _terminated => ("run_terminated", "was terminated"),
    };
    Failure::new(Exit::Failed, code, format!("run {id} of '{}' {verb}{said}", run.workflow))
        .hint(format!("see what it did with `towpath run show {id} --journal`"))
        .details(&json!({ "run_id": id, "state": run.state, "error": error, "reason": reason }))
        .effect_unknown()
}
