//! Batchers and batches, for people and programs.

use comfy_table::Cell;
use towpath_server::http::wire::batches::{BatchBody, BatchPage, BatchQuery, BatcherList};

use crate::cli::client::{Client, routes};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::{self, Output};
use crate::cli::{json_text, words};

const PAGE: u32 = 200;
const MESSAGE_CHARS: usize = 120;

pub(super) async fn batchers(client: &Client, out: Output) -> Result<Exit, Failure> {
    let list: BatcherList = client.get_all(routes::BATCHES).await?;
    if out.is_json() {
        out.json(&list);
        return Ok(Exit::Done);
    }
    let mut table = output::table(["batcher", "target", "open keys", "messages", "in flight", "dead letters"]);
    for one in &list.batchers {
        table.add_row(vec![
            Cell::new(&one.batcher),
            Cell::new(&one.target),
            output::count(one.open_keys),
            output::count(one.open_messages),
            output::count(one.in_flight),
            output::count(one.dead_letters),
        ]);
    }
    out.table(&table);
    Ok(Exit::Done)
}

pub(super) async fn batches(client: &Client, out: Output, batcher: &str, in_flight: bool, limit: u32) -> Result<Exit, Failure> {
    let state = if in_flight { "in_flight" } else { "open" };
    let mut found: Option<BatchPage> = None;
    loop {
        let (cursor, have) = found.as_ref().map_or((None, 0), |page| (page.next.clone(), page.batches.len()));
        let missing = limit.saturating_sub(u32::try_from(have).unwrap_or(u32::MAX));
        let query = BatchQuery { state: Some(state.to_owned()), cursor, limit: Some(missing.clamp(1, PAGE)) };
        let page: BatchPage = client.get(&routes::with_query(&routes::batcher(batcher), &query)).await?;
        let page = match found.take() {
            Some(before) => BatchPage { batches: before.batches.into_iter().chain(page.batches).collect(), ..page },
            None => page,
        };
        let is_over = page.next.is_none() || page.batches.len() >= limit as usize;
        if is_over {
            show_page(out, &page, in_flight);
            return Ok(Exit::Done);
        }
        found = Some(page);
    }
}

fn show_page(out: Output, page: &BatchPage, in_flight: bool) {
    if out.is_json() {
        return out.json(page);
    }
    if page.batches.is_empty() {
        return out.note(if in_flight { "nothing is in flight" } else { "nothing is open" });
    }
    let mut table = if in_flight {
        output::table(["batch", "key", "attempt", "state", "due", "reason"])
    } else {
        output::table(["key", "messages", "first message", "closes", "reason"])
    };
    for batch in &page.batches {
        table.add_row(if in_flight { flight(batch) } else { open(batch) });
    }
    out.table(&table);
}

fn open(batch: &BatchBody) -> Vec<Cell> {
    vec![
        Cell::new(&batch.batch_key),
        output::count(batch.size.unwrap_or_default()),
        Cell::new(words::ago(batch.first_message_at)),
        Cell::new(words::instant(batch.deadline.unwrap_or_default())),
        Cell::new(&batch.reason),
    ]
}

fn flight(batch: &BatchBody) -> Vec<Cell> {
    vec![
        Cell::new(batch.batch_id.as_deref().unwrap_or_default()),
        Cell::new(&batch.batch_key),
        output::count(u64::from(batch.attempt.unwrap_or_default())),
        Cell::new(if batch.held == Some(true) { "being delivered" } else { "waits for the next attempt" }),
        Cell::new(words::instant(batch.due_at.unwrap_or_default())),
        Cell::new(&batch.reason),
    ]
}

pub(super) async fn show(client: &Client, out: Output, batcher: &str, key: &str) -> Result<Exit, Failure> {
    let batch: BatchBody = client.get(&routes::batch_key(batcher, key)).await?;
    if out.is_json() {
        out.json(&batch);
        return Ok(Exit::Done);
    }
    let waits = batch.batch_id.as_ref().map_or_else(|| "nothing".to_owned(), |id| format!("batch {id}, which is in flight"));
    out.line(&output::facts(&[
        ("key", batch.batch_key.clone()),
        ("messages", batch.size.unwrap_or_default().to_string()),
        ("bytes", batch.bytes.unwrap_or_default().to_string()),
        ("first message", words::instant(batch.first_message_at)),
        ("closes", format!("{} ({})", words::instant(batch.deadline.unwrap_or_default()), batch.reason)),
        ("waits for", waits),
    ]));
    for message in batch.messages.iter().flatten() {
        out.line(&format!("  {}", json_text::brief(message.get(), MESSAGE_CHARS)));
    }
    if let Some(next) = &batch.next {
        let left = batch.size.unwrap_or_default().saturating_sub(next.parse().unwrap_or_default());
        out.note(&format!("{} more: `--json` shows where they begin, as `next`", words::plural(left, "message")));
    }
    Ok(Exit::Done)
}
