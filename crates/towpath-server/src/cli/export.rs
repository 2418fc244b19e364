//! `towpath export`: open calls, and what they need, into a file.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use towpath_server::http::wire::batches::{BatcherList, SettingsBody};
use towpath_server::http::wire::calls::{AttemptsBeforeBody, CallDetail, CallList, CallQuery};
use towpath_server::http::wire::config::ConfigBody;
use towpath_server::http::wire::functions::{DefineBody, FunctionBody, FunctionList};
use towpath_server::http::wire::health::HealthBody;

use super::client::{Client, routes};
use super::exit::Exit;
use super::export_file::{ExportWriter, FORMAT, Header, Line, MovedCall};
use super::failure::Failure;
use super::output::Output;
use super::words;

/// The largest page that a server gives. It ends earlier with 1 MiB of payloads.
const PAGE: u32 = 200;
/// So many calls that were left out are named; the file names all.
const NAMED: u64 = 20;

const EXAMPLES: &str = "\
The file holds calls that wait, with the functions, batchers and configuration
that they need, as lines of JSON. It appears when it is whole. Stop the server
first and name its store: of a server that works, a call may end after it was
written. docs/moving.md says how to move, and what does not.

Exit codes: 4 calls that run were left out; the file is whole all the same.

Examples:
  towpath export calls.jsonl --store sqlite:./.towpath
  towpath export calls.jsonl --store redis://127.0.0.1
  towpath export calls.jsonl --dead-letters";

/// Write open calls, and the functions and settings that they need, to a file
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// The file to write; it must not be there yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Export calls that run as calls that wait: those whose worker lives run twice
    #[arg(long)]
    running_may_run_twice: bool,
    /// Export dead letters, too
    #[arg(long)]
    dead_letters: bool,
}

#[derive(Debug, Default, Serialize)]
struct Exported {
    file: String,
    calls: u64,
    /// Ran, and are not in the file as calls.
    left_out: u64,
    dead_letters: u64,
    functions: u64,
    batchers: u64,
    config: bool,
}

pub(crate) async fn run(client: &Client, out: Output, args: ExportArgs) -> Result<Exit, Failure> {
    let health: HealthBody = client.get(routes::HEALTH).await?;
    let mut file = ExportWriter::create(&args.file)?;
    let mut done = Exported { file: args.file.display().to_string(), ..Exported::default() };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    file.write(&Line::TowpathExport(Header { format: FORMAT, version, from: health.store, exported_at: health.now }))?;
    write_settings(client, &mut file, &mut done).await?;
    write_calls(client, out, &mut file, &mut done, &args).await?;
    file.finish()?;
    tell(out, &done);
    Ok(if done.left_out > 0 { Exit::NotNow } else { Exit::Done })
}

async fn write_settings(client: &Client, file: &mut ExportWriter, done: &mut Exported) -> Result<(), Failure> {
    let config: ConfigBody = client.get(routes::CONFIG).await?;
    if config.version > 0 {
        done.config = true;
        file.write(&Line::Config { value: config.value })?;
    }
    let known: FunctionList = client.get_all(routes::FUNCTIONS).await?;
    for function in known.functions {
        done.functions += 1;
        let name = function.name.clone();
        file.write(&Line::Function { name, definition: Box::new(definition(function)?) })?;
    }
    let known: BatcherList = client.get_all(routes::BATCHES).await?;
    for batcher in known.batchers {
        let body: SettingsBody = client.get(&routes::batch_verb(&batcher.batcher, "settings")).await?;
        if let Some(settings) = body.stored {
            done.batchers += 1;
            file.write(&Line::Batcher { name: batcher.batcher, settings })?;
        }
    }
    Ok(())
}

/// A function as it is defined again elsewhere.
fn definition(function: FunctionBody) -> Result<DefineBody, Failure> {
    Ok(DefineBody {
        scope: Some(function.scope),
        description: function.description,
        parameters: function.parameters,
        retry: Some(in_other_words(&function.retry)?),
        limits: Some(in_other_words(&function.limits)?),
        target: function.target.as_ref().map(in_other_words).transpose()?,
    })
}

/// What the server says and what it is told have the same form.
fn in_other_words<A: Serialize, B: DeserializeOwned>(said: &A) -> Result<B, Failure> {
    serde_json::to_value(said)
        .and_then(serde_json::from_value)
        .map_err(|error| Failure::new(Exit::Failed, "unknown_definition", format!("a function's definition cannot be exported: {error}")))
}

async fn write_calls(client: &Client, out: Output, file: &mut ExportWriter, done: &mut Exported, args: &ExportArgs) -> Result<(), Failure> {
    let states = if args.dead_letters { "queued,delayed,running,dead" } else { "queued,delayed,running" };
    let mut query = CallQuery { state: Some(states.to_owned()), limit: Some(PAGE), payloads: true, ..CallQuery::default() };
    loop {
        let page: CallList = client.get(&routes::with_query(routes::CALLS, &query)).await?;
        for call in page.calls {
            write_call(out, file, done, args, call)?;
        }
        if page.next.is_none() {
            return Ok(());
        }
        query.after = page.next;
    }
}

fn write_call(out: Output, file: &mut ExportWriter, done: &mut Exported, args: &ExportArgs, call: CallDetail) -> Result<(), Failure> {
    // A cancelled call must not begin anew.
    let moves = call.state != "running" || (args.running_may_run_twice && !call.cancel_requested);
    if !moves {
        done.left_out += 1;
        if done.left_out <= NAMED {
            out.note(&format!("left out, because it runs: {} of '{}'", call.call_id, call.function_name));
        }
        return file.write(&Line::LeftOut { call_id: call.call_id, function_name: call.function_name });
    }
    if call.state == "dead" {
        done.dead_letters += 1;
        return file.write(&Line::DeadLetter(moved(call)?));
    }
    done.calls += 1;
    file.write(&Line::Call(moved(call)?))
}

fn moved(call: CallDetail) -> Result<MovedCall, Failure> {
    let missing = || {
        let message = format!("the server gives no parameters of call {}: it is of another version", call.call_id);
        Failure::new(Exit::Failed, "not_a_towpath_server", message)
    };
    let before = AttemptsBeforeBody { failures: call.failures, crashes: call.crashes };
    Ok(MovedCall {
        params: call.params.ok_or_else(missing)?,
        call_id: call.call_id,
        function_name: call.function_name,
        scope: call.scope,
        deadline: call.deadline,
        input_item: call.input_item,
        idempotency_key: call.idempotency_key,
        traceparent: call.traceparent,
        attempts_before: (before != AttemptsBeforeBody::default()).then_some(before),
    })
}

fn tell(out: Output, done: &Exported) {
    if out.is_json() {
        return out.json(&json!({ "exported": done }));
    }
    let mut parts = vec![words::plural(done.calls, "call")];
    if done.dead_letters > 0 {
        parts.push(words::plural(done.dead_letters, "dead letter"));
    }
    parts.push(words::plural(done.functions, "function"));
    if done.batchers > 0 {
        parts.push(words::plural(done.batchers, "batcher"));
    }
    if done.config {
        parts.push("the shared configuration".to_owned());
    }
    out.line(&format!("{}: {}", done.file, parts.join(", ")));
    if done.left_out > 0 {
        out.note(&format!(
            "{} left out, because they run; the file names them. Export again when they have ended, or with --running-may-run-twice",
            words::plural(done.left_out, "call")
        ));
    }
}
