//! `towpath run start`

use std::time::Duration;

use clap::Args;
use towpath_server::http::wire::runs::{RunStarted, SendBody, StartRunBody};

use super::end;
use crate::cli::client::{Ask, Client, RequestError, routes};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::pauses::Pauses;
use crate::cli::{json_text, nested, time, words};

/// A start with a reference whose answer was lost is repeated for this long.
const RESEND_FOR: Duration = Duration::from_secs(30);

#[derive(Args, Debug)]
pub(super) struct StartArgs {
    /// The workflow, and its version behind an @; without one, the only version that is known
    #[arg(value_name = "WORKFLOW[@VERSION]")]
    workflow: String,
    /// Its input as JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", default_value = "null", allow_hyphen_values = true)]
    input: String,
    /// Your own name for the run, unique per workflow: starting it again is the same run
    #[arg(long, value_name = "TEXT")]
    reference: Option<String>,
    /// Take the run that has the reference, even if it has another input
    #[arg(long, requires = "reference")]
    return_existing: bool,
    /// Start a new run if the one that has the reference has closed
    #[arg(long, requires = "reference")]
    reuse_closed: bool,
    /// The shard whose workers execute it
    #[arg(long, value_name = "NAME")]
    shard: Option<String>,
    /// Start it after this
    #[arg(long, value_name = "LENGTH", value_parser = words::parse_length)]
    delay: Option<Duration>,
    /// Cancel it after this, if it is still open
    #[arg(long, value_name = "LENGTH", value_parser = words::parse_length)]
    deadline: Option<Duration>,
    /// How long it can be read after its end [default: 7d]
    #[arg(long, value_name = "LENGTH", value_parser = words::parse_length)]
    retain: Option<Duration>,
    /// An event that the run receives, whether it is new or was started before
    #[arg(long, value_name = "NAME")]
    event: Option<String>,
    /// The data of the event as JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", requires = "event", allow_hyphen_values = true)]
    data: Option<String>,
    /// Wait for its end and print its result
    #[arg(long)]
    wait: bool,
}

pub(super) async fn start(client: &Client, out: Output, args: StartArgs) -> Result<Exit, Failure> {
    let (body, wait) = (body_of(&args)?, args.wait);
    let started = send(client, out, &body).await?;
    if wait {
        warn(out, &started);
        out.note(&format!("run {} is {}", started.run_id, started.state));
        return end::follow(client, out, &started.run_id, None).await;
    }
    if out.is_json() {
        out.json(&started);
    } else {
        out.line(&started.run_id);
    }
    warn(out, &started);
    if started.existing {
        out.note(&format!("it had been started before and is {}; nothing new was started", started.state));
        return Ok(Exit::Duplicate);
    }
    out.note(&format!("started ({}); look at it with `towpath run show {}`", started.durability, started.run_id));
    Ok(Exit::Done)
}

fn warn(out: Output, started: &RunStarted) {
    if started.warnings.iter().any(|warning| warning == "no_worker_seen") {
        out.note("no worker is known to have served this workflow in this version: the run waits for one");
    }
}

fn body_of(args: &StartArgs) -> Result<StartRunBody, Failure> {
    let (workflow, version) = match args.workflow.rsplit_once('@') {
        Some((workflow, version)) => (workflow.to_owned(), Some(version.to_owned())),
        None => (args.workflow.clone(), None),
    };
    let data = args.data.as_deref().map(|data| json_text::read_argument("data", data)).transpose()?;
    Ok(StartRunBody {
        workflow,
        version,
        shard: args.shard.clone(),
        input: Some(json_text::read_argument("input", &args.input)?),
        reference: args.reference.clone(),
        on_conflict: args.return_existing.then(|| "return_existing".to_owned()),
        reuse: args.reuse_closed.then(|| "after_closed".to_owned()),
        delay_ms: args.delay.map(words::millis),
        deadline_ms: args.deadline.map(words::millis),
        retain_ms: args.retain.map(words::millis),
        event: args.event.clone().map(|event| SendBody { event, data, reference: None }),
    })
}

/// Starts the run; when the answer is lost and the run has a reference, again: it is the same run.
async fn send(client: &Client, out: Output, body: &StartRunBody) -> Result<RunStarted, Failure> {
    let mut pauses = Pauses::of(body.reference.as_deref().unwrap_or_default());
    let begun = time::now();
    loop {
        let ask = Ask::post(routes::RUNS, body).traceparent(nested::traceparent());
        let error = match client.ask(ask).await {
            Ok(started) => return Ok(started),
            Err(error) => error,
        };
        let can_repeat = body.reference.is_some() && error.may_have_happened() && error.may_pass();
        if !can_repeat || time::now().saturating_duration_since(begun) > RESEND_FOR {
            return Err(give_up(error, body));
        }
        if pauses.is_fresh() {
            out.note(&format!("{}; sending the same start again", error.brief()));
        }
        time::sleep(pauses.next(error.retry_after())).await;
    }
}

fn give_up(error: RequestError, body: &StartRunBody) -> Failure {
    if body.reference.is_some() || !error.may_have_happened() {
        return error.into();
    }
    Failure::new(Exit::Unreachable, "start_unknown", format!("the run may or may not have been started: {}", error.brief()))
        .hint(format!("look with `towpath run ls --workflow {}`; with --reference, a start can be repeated", body.workflow))
        .effect_unknown()
}
