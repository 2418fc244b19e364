//! Dead letters of batches.

use std::time::Duration;

use comfy_table::Cell;
use serde_json::Value;
use towpath_server::http::wire::batches::{
    BatchDeadLetter, BatchDeadLetterChoice, BatchDeadLetterQuery, BatchDeadLetters, BatchReplayAnswer,
};
use towpath_server::http::wire::dead_letters::DropAnswer;

use crate::cli::client::{Ask, Client, routes};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::{self, Output};
use crate::cli::{json_text, words};

const PAGE: u32 = 200;
/// A replay at a rate takes its time. Interrupting it leaves the rest where it is.
const REPLAY_TIME_MAX: Duration = Duration::from_secs(24 * 3_600);
const ERROR_CHARS: usize = 60;

pub(super) async fn list(client: &Client, out: Output, query: BatchDeadLetterQuery, limit: u32) -> Result<Exit, Failure> {
    let mut found = BatchDeadLetters { dead_letters: Vec::new(), next: None };
    loop {
        let missing = limit.saturating_sub(u32::try_from(found.dead_letters.len()).unwrap_or(u32::MAX));
        let query = BatchDeadLetterQuery { cursor: found.next.take(), limit: Some(missing.clamp(1, PAGE)), ..query.clone() };
        let page: BatchDeadLetters = client.get(&routes::with_query(routes::BATCH_DEAD_LETTERS, &query)).await?;
        found.dead_letters.extend(page.dead_letters);
        found.next = page.next;
        if found.next.is_none() || found.dead_letters.len() >= limit as usize {
            break;
        }
    }
    if out.is_json() {
        out.json(&found);
        return Ok(Exit::Done);
    }
    if found.dead_letters.is_empty() {
        out.note("no dead letters of batches");
        return Ok(Exit::Done);
    }
    let mut table = output::table(["id", "batcher", "key", "reason", "attempts", "when", "error"]);
    for letter in &found.dead_letters {
        let entry: Value = serde_json::from_str(letter.entry.get()).unwrap_or_default();
        let text = |name: &str| entry[name].as_str().unwrap_or("-").to_owned();
        let error: String = text("error").chars().take(ERROR_CHARS).collect();
        table.add_row(vec![
            Cell::new(&letter.id),
            Cell::new(&letter.batcher),
            Cell::new(text("batch_key")),
            Cell::new(text("reason")),
            output::count(entry["attempts"].as_u64().unwrap_or_default()),
            Cell::new(text("timestamp")),
            Cell::new(error),
        ]);
    }
    out.table(&table);
    Ok(Exit::Done)
}

pub(super) async fn show(client: &Client, out: Output, id: &str) -> Result<Exit, Failure> {
    let letter: BatchDeadLetter = client.get(&routes::batch_dead_letter(id)).await?;
    if out.is_json() {
        out.json(&letter);
    } else {
        out.line(&json_text::pretty(letter.entry.get()));
    }
    Ok(Exit::Done)
}

pub(super) async fn replay(client: &Client, out: Output, choice: &BatchDeadLetterChoice) -> Result<Exit, Failure> {
    let asked = Ask::post(routes::BATCH_DEAD_LETTERS_REPLAY, choice).waiting(REPLAY_TIME_MAX);
    let answer: BatchReplayAnswer = client.ask(asked).await?;
    if out.is_json() {
        out.json(&answer);
    } else {
        for id in &answer.replayed {
            out.line(&format!("{id} is delivered again"));
        }
        for (ids, what) in [
            (&answer.in_flight, "is being delivered already"),
            (&answer.gone, "is no dead letter any more"),
            (&answer.not_replayable, "was no batch: there is nothing to deliver"),
        ] {
            for id in ids {
                out.line(&format!("{id} {what}"));
            }
        }
    }
    Ok(match (answer.replayed.is_empty(), answer.in_flight.is_empty()) {
        (false, _) => Exit::Done,
        (true, false) => Exit::Duplicate,
        (true, true) => {
            out.note("no dead letter matches");
            Exit::NotFound
        }
    })
}

pub(super) async fn drop_chosen(client: &Client, out: Output, choice: &BatchDeadLetterChoice) -> Result<Exit, Failure> {
    let answer: DropAnswer = client.ask(Ask::post(routes::BATCH_DEAD_LETTERS_DROP, choice)).await?;
    if out.is_json() {
        out.json(&answer);
    }
    out.note(&format!("{} dropped", words::plural(answer.dropped, "dead letter")));
    Ok(if answer.dropped == 0 { Exit::NotFound } else { Exit::Done })
}
