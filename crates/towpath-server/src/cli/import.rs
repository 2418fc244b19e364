//! `towpath import`: the calls of an export, under their own ids. Importing a file twice is the same as importing it once.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use towpath_server::http::wire::Json;
use towpath_server::http::wire::batches::SettingsBody;
use towpath_server::http::wire::calls::{CallAccepted, CallBody};
use towpath_server::http::wire::config::{ConfigBody, SetConfigBody};
use towpath_server::http::wire::functions::{DefineBody, FunctionBody, ScopeQuery};
use towpath_server::http::wire::health::HealthBody;

use super::client::{Ask, Client, RequestError, routes};
use super::exit::Exit;
use super::export_file::{ExportFile, Line, MovedCall};
use super::failure::Failure;
use super::output::Output;
use super::{time, words};

/// Outcomes are kept at least for so long.
const KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

const EXAMPLES: &str = "\
The file is checked first: one that was cut is refused, and nothing happens.
Calls keep their ids, so an import that was broken off is simply repeated.
What the store has already (a function, a batcher, a configuration) stays as it is.

Exit codes: 1 some calls were refused, each is named; 2 the file is no export,
or was cut; 4 a backlog is full: import the file again later.

Examples:
  towpath import calls.jsonl --store redis://127.0.0.1
  towpath import calls.jsonl                  into a server that works";

/// Submit the calls of an export under their own ids; skip those that are there
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// The file that `towpath export` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Submit dead letters as calls: they run again
    #[arg(long)]
    run_dead_letters: bool,
}

#[derive(Debug, Default, Serialize)]
struct Imported {
    calls: u64,
    duplicates: u64,
    /// Their deadline has passed.
    expired: u64,
    /// Their id or key is used for something else.
    conflicts: u64,
    refused: u64,
    /// Dead letters, and calls that ran when they were exported.
    skipped: u64,
    functions: u64,
    batchers: u64,
    config: bool,
    /// Functions, batchers and a configuration that were there already and stay as they are.
    kept: u64,
}

struct Import<'a> {
    client: &'a Client,
    out: Output,
    run_dead_letters: bool,
    /// The store's clock, and when it was read.
    now: (i64, Instant),
    done: Imported,
}

pub(crate) async fn run(client: &Client, out: Output, args: ImportArgs) -> Result<Exit, Failure> {
    let mut file = ExportFile::open(&args.file)?;
    let health: HealthBody = client.get(routes::HEALTH).await?;
    let now = (health.now, time::now());
    let mut import = Import { client, out, run_dead_letters: args.run_dead_letters, now, done: Imported::default() };
    for index in 0..file.settings() {
        import.setting(file.setting(index)?).await?;
    }
    for index in 0..file.calls() {
        import.line(file.call(index)?).await?;
    }
    tell(out, &import.done);
    let all_well = import.done.conflicts == 0 && import.done.refused == 0;
    Ok(if all_well { Exit::Done } else { Exit::Failed })
}

impl Import<'_> {
    async fn setting(&mut self, line: Line) -> Result<(), Failure> {
        match line {
            Line::Config { value } => self.config(value).await,
            Line::Function { name, definition } => self.function(&name, &definition).await,
            Line::Batcher { name, settings } => self.batcher(&name, &settings).await,
            _call => Ok(()),
        }
    }

    async fn config(&mut self, value: Json) -> Result<(), Failure> {
        let there: ConfigBody = self.client.get(routes::CONFIG).await?;
        if there.version > 0 {
            if read(&there.value) != read(&value) {
                self.out.note("the shared configuration is set there and stays as it is; compare it with `towpath config get`");
            }
            self.done.kept += 1;
            return Ok(());
        }
        let set = SetConfigBody { value, if_version: Some(0) };
        self.client.done(Ask::put(routes::CONFIG, &set)).await?;
        self.done.config = true;
        Ok(())
    }

    async fn function(&mut self, name: &str, definition: &DefineBody) -> Result<(), Failure> {
        let path = routes::function(name);
        let query = ScopeQuery { scope: definition.scope.clone() };
        let there: Result<FunctionBody, RequestError> = self.client.get(&routes::with_query(&path, &query)).await;
        match there {
            Ok(_) => self.done.kept += 1,
            Err(error) if error.is_not_found() => match self.client.done(Ask::put(&path, definition)).await {
                Ok(()) => self.done.functions += 1,
                Err(error) => self.refused(&format!("function '{name}'"), error)?,
            },
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn batcher(&mut self, name: &str, settings: &Json) -> Result<(), Failure> {
        let path = routes::batch_verb(name, "settings");
        let there: Result<SettingsBody, RequestError> = self.client.get(&path).await;
        match there {
            Ok(SettingsBody { stored: Some(_), .. }) => {
                self.done.kept += 1;
                return Ok(());
            }
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _nothing_is_kept => {}
        }
        match self.client.done(Ask::put(&path, settings)).await {
            Ok(()) => self.done.batchers += 1,
            Err(error) => self.refused(&format!("batcher '{name}'"), error)?,
        }
        Ok(())
    }

    async fn line(&mut self, line: Line) -> Result<(), Failure> {
        match line {
            Line::Call(call) => self.call(call).await,
            Line::DeadLetter(call) if self.run_dead_letters => self.dead_letter(call).await,
            _left_out => {
                self.done.skipped += 1;
                Ok(())
            }
        }
    }

    /// Its deadline has passed long ago, so it gets the default one. As with a replay, its attempts count anew.
    async fn dead_letter(&mut self, call: MovedCall) -> Result<(), Failure> {
        self.submit(MovedCall { attempts_before: None, ..call }, None).await
    }

    async fn call(&mut self, call: MovedCall) -> Result<(), Failure> {
        let now = self.now.0.saturating_add(i64::try_from(self.now.1.elapsed().as_millis()).unwrap_or(i64::MAX));
        match u64::try_from(call.deadline.saturating_sub(now)) {
            Ok(remaining_ms @ 1..) => self.submit(call, Some(remaining_ms)).await,
            _passed => {
                self.done.expired += 1;
                Ok(())
            }
        }
    }

    async fn submit(&mut self, call: MovedCall, remaining_ms: Option<u64>) -> Result<(), Failure> {
        let path = routes::detached_calls(&call.function_name);
        let body = CallBody {
            params: Some(call.params),
            input_item: call.input_item,
            scope: Some(call.scope),
            timeout_ms: remaining_ms,
            // For as long as this line could be submitted again, the store knows its id.
            retain_ms: remaining_ms.map(|remaining| remaining.max(KEPT_MS)),
            call_id: Some(call.call_id.clone()),
            idempotency_key: call.idempotency_key,
            wait_for_function_ms: Some(0),
            attempts_before: call.attempts_before,
            ..CallBody::default()
        };
        let taken: Result<CallAccepted, RequestError> = self.client.ask(Ask::post(&path, &body).traceparent(call.traceparent)).await;
        match taken {
            Ok(CallAccepted { existing: false, .. }) => self.done.calls += 1,
            Ok(CallAccepted { call_id, .. }) => {
                self.done.duplicates += 1;
                if call_id != call.call_id {
                    self.out.note(&format!("call {} is there as {call_id}: both have one idempotency key", call.call_id));
                }
            }
            Err(error) => self.refused(&format!("call {} of '{}'", call.call_id, call.function_name), error)?,
        }
        Ok(())
    }

    /// A refusal is counted and named. Trouble of the server or the network ends the import: it can be repeated.
    fn refused(&mut self, what: &str, error: RequestError) -> Result<(), Failure> {
        let code = if let RequestError::Refused { detail, .. } = &error { detail.code.clone() } else { String::new() };
        if code == "overloaded" || error.may_pass() {
            let outcome = if error.may_have_happened() { "may or may not have been imported" } else { "was not imported" };
            let mut failure = Failure::from(error);
            failure.detail.message = format!("{what} {outcome}: {}", failure.detail.message);
            let there = words::plural(self.done.calls + self.done.duplicates, "call");
            return Err(failure.hint(format!("{there} of the file are there; import it again, and they are skipped")));
        }
        if code == "idempotency_conflict" {
            self.done.conflicts += 1;
        } else {
            self.done.refused += 1;
        }
        self.out.error_line(&format!("{what} was not imported: {}", error.brief()));
        Ok(())
    }
}

fn read(json: &Json) -> Option<Value> {
    serde_json::from_str(json.get()).ok()
}

fn tell(out: Output, done: &Imported) {
    if out.is_json() {
        return out.json(&json!({ "imported": done }));
    }
    let counts = [
        (done.duplicates, "already there"),
        (done.expired, "past their deadline"),
        (done.conflicts, "in conflict with others of the same id or key"),
        (done.refused, "refused"),
        (done.skipped, "skipped: dead letters, or left out because they ran"),
    ];
    let mut parts = vec![format!("{} imported", words::plural(done.calls, "call"))];
    parts.extend(counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    out.line(&parts.join(", "));
    let mut settings = vec![words::plural(done.functions, "function"), words::plural(done.batchers, "batcher")];
    if done.config {
        settings.push("the shared configuration".to_owned());
    }
    out.line(&format!("defined: {}; {} there already and kept", settings.join(", "), done.kept));
}
