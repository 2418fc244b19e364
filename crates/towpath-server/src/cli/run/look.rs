//! `towpath run show` and `towpath run ls`

use clap::Args;
use comfy_table::Cell;
use serde::Serialize;
use towpath_core::run::{BlockCause, RunState};
use towpath_server::http::wire::runs::{JournalEntryBody, JournalPage, JournalQuery, RunBody, RunList, RunQuery};

use crate::cli::client::{Client, routes};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::{self, Output};
use crate::cli::{json_text, words};

/// The largest page that the server gives.
const PAGE: u32 = 200;

#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    /// The run's id
    #[arg(value_name = "ID")]
    run_id: String,
    /// With its journal: every step and every result
    #[arg(long)]
    journal: bool,
}

#[derive(Args, Debug)]
pub(super) struct ListArgs {
    /// Only runs of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Only runs of this version
    #[arg(long)]
    version: Option<String>,
    /// Only runs of this shard
    #[arg(long, value_name = "NAME")]
    shard: Option<String>,
    /// Only runs in these states, separated by commas
    #[arg(long, value_name = "STATES")]
    state: Option<String>,
    /// Only runs that are blocked or back off for this cause
    #[arg(long)]
    cause: Option<String>,
    /// Only children of this run
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// Only runs with this reference
    #[arg(long, value_name = "TEXT")]
    reference: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

/// A run with its journal, for programs.
#[derive(Serialize)]
struct WithJournal<'a> {
    #[serde(flatten)]
    run: &'a RunBody,
    journal: &'a [JournalEntryBody],
}

pub(super) async fn show(client: &Client, out: Output, args: &ShowArgs) -> Result<Exit, Failure> {
    let run: RunBody = client.get(&routes::run(&args.run_id)).await?;
    let journal = if args.journal { Some(journal(client, &args.run_id).await?) } else { None };
    match (out.is_json(), &journal) {
        (true, Some(journal)) => out.json(&WithJournal { run: &run, journal }),
        (true, None) => out.json(&run),
        (false, _) => out.line(&output::facts(&facts(&run))),
    }
    if let Some(journal) = journal.filter(|_| !out.is_json()) {
        out.line("");
        show_journal(out, &journal);
    }
    Ok(Exit::Done)
}

async fn journal(client: &Client, run_id: &str) -> Result<Vec<JournalEntryBody>, Failure> {
    let (mut entries, mut from) = (Vec::new(), None);
    loop {
        let query = JournalQuery { from, limit: Some(PAGE) };
        let page: JournalPage = client.get(&routes::with_query(&routes::run_verb(run_id, "journal"), &query)).await?;
        entries.extend(page.entries);
        from = page.next;
        if from.is_none() {
            return Ok(entries);
        }
    }
}

fn show_journal(out: Output, journal: &[JournalEntryBody]) {
    let mut table = output::table(["entry", "at", "kind", "step", "says"]);
    for entry in journal {
        table.add_row(vec![
            Cell::new(entry.number),
            Cell::new(words::instant(entry.at)),
            Cell::new(&entry.kind),
            Cell::new(entry.step_id.as_deref().map_or("", |id| &id[..8.min(id.len())])),
            Cell::new(json_text::brief(entry.body.get(), 100)),
        ]);
    }
    out.table(&table);
}

fn facts(run: &RunBody) -> Vec<(&'static str, String)> {
    let shard = run.shard.as_ref().map(|shard| format!(" in shard {shard}")).unwrap_or_default();
    let mut facts =
        vec![("run", run.run_id.clone()), ("workflow", format!("{}@{}{shard}", run.workflow, run.version)), ("state", run.state.clone())];
    facts.extend(run.why.clone().map(|why| ("why", why)));
    facts.extend(run.reference.clone().map(|reference| ("reference", reference)));
    facts.push(("created", format!("{}, {}", words::instant(run.created_at), words::ago(run.created_at))));
    facts.extend(run.deadline.map(|at| ("deadline", words::instant(at))));
    facts.extend(
        run.closed_at.map(|at| ("closed", format!("{}, {} after it was created", words::instant(at), words::between(run.created_at, at)))),
    );
    facts.extend(run.kept_until.map(|at| ("kept until", words::instant(at))));
    facts.extend(run.worker_id.clone().map(|id| ("worker", id)));
    let generation = if run.generation > 0 { format!(", generation {}", run.generation) } else { String::new() };
    facts.push((
        "journal",
        format!("{}, {} bytes{generation}", words::plural(run.entries, "entry").replace("entrys", "entries"), run.journal_bytes),
    ));
    let events = Some(run.unconsumed_events).filter(|events| *events > 0);
    facts.extend(events.map(|events| ("inbox", format!("{} not consumed", words::plural(u64::from(events), "event")))));
    facts.extend(run.parent.clone().map(|id| ("child of", id)));
    let silent = Some(run.deliveries).filter(|deliveries| *deliveries > 0);
    facts.extend(silent.map(|count| ("lost workers", count.to_string())));
    facts.extend((!run.unfit_builds.is_empty()).then(|| ("does not fit", run.unfit_builds.join(", "))));
    if let Some(outcome) = &run.outcome {
        facts.extend(outcome.data.as_ref().map(|data| ("data", json_text::pretty(data.get()))));
        facts.extend(outcome.error.as_ref().map(|error| ("error", format!("{}: {}", error.code, error.message))));
        facts.extend(outcome.reason.clone().map(|reason| ("reason", reason)));
    }
    facts
}

pub(super) async fn list(client: &Client, out: Output, args: &ListArgs) -> Result<Exit, Failure> {
    check_words("state", args.state.as_deref(), &RunState::ALL.map(RunState::as_str))?;
    check_words("cause", args.cause.as_deref(), &BlockCause::ALL.map(BlockCause::as_str))?;
    let query = RunQuery {
        workflow: args.workflow.clone(),
        version: args.version.clone(),
        shard: args.shard.clone(),
        state: args.state.clone(),
        cause: args.cause.clone(),
        parent: args.parent.clone(),
        reference: args.reference.clone(),
        ..RunQuery::default()
    };
    let mut found = RunList { runs: Vec::new(), next: None };
    loop {
        let missing = args.limit.saturating_sub(u32::try_from(found.runs.len()).unwrap_or(u32::MAX));
        let query = RunQuery { cursor: found.next.take(), limit: Some(missing.min(PAGE)), ..query.clone() };
        let page: RunList = client.get(&routes::with_query(routes::RUNS, &query)).await?;
        found.runs.extend(page.runs);
        found.next = page.next;
        if found.next.is_none() || found.runs.len() >= args.limit as usize {
            break;
        }
    }
    show_list(out, &found);
    Ok(Exit::Done)
}

/// A misspelt word is told here with the words there are.
pub(super) fn check_words(field: &str, given: Option<&str>, known: &[&str]) -> Result<(), Failure> {
    let unknown = given.unwrap_or_default().split(',').filter(|word| !word.is_empty()).find(|word| !known.contains(&word.trim()));
    match unknown {
        None => Ok(()),
        Some(word) => Err(Failure::usage(&format!("unknown_{field}"), format!("'{word}' is no {field} of a run"))
            .field(field)
            .hint(format!("use {}", known.join(", ")))),
    }
}

fn show_list(out: Output, list: &RunList) {
    if out.is_json() {
        return out.json(list);
    }
    if list.runs.is_empty() {
        return out.note("no run matches");
    }
    let mut table = output::table(["run", "workflow", "state", "created", "reference", "why"]);
    for run in &list.runs {
        table.add_row(vec![
            Cell::new(&run.run_id),
            Cell::new(format!("{}@{}", run.workflow, run.version)),
            output::state(&run.state),
            Cell::new(words::ago(run.created_at)),
            Cell::new(run.reference.as_deref().unwrap_or_default()),
            Cell::new(json_text::brief(run.why.as_deref().unwrap_or_default(), 80)),
        ]);
    }
    out.table(&table);
    if list.next.is_some() {
        out.note("there are more; see them with a larger --limit");
    }
}
