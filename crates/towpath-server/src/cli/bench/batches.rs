//! Messages taken into batches per second, against `RPUSH` and `ZADD` in a pipeline, sent by as many tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use comfy_table::{Cell, CellAlignment};
use serde::Serialize;
use serde_json::{Value, json};
use towpath::batches::{BatchHandle, Batcher, Pushed};
use towpath::{BatchFloor, Towpath};

use super::findings::{Aim, Finding};
use super::place::{Place, Target};
use super::tasks::{TASKS, over_and_over, with_store_cpu};
use super::{WARM_UP, failed, open};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, table};
use crate::cli::time;

/// Over so many chats the messages are spread.
const CHATS: u64 = 1_000;
/// With the fields around it, a message of half a kilobyte.
const TEXT_BYTES: usize = 350;
/// How long a bare message waits for the next, as those of a batcher do by default.
const SILENCE_SECONDS: f64 = 10.0;

/// Messages with an id that is remembered, or without one.
pub(super) struct BatchRow {
    with_ids: bool,
    messages_per_second: f64,
    /// What the server's process needed for a message, in microseconds.
    store_cpu_us: Option<f64>,
    /// The embedded store has no bare command to compare with.
    floor: Option<Bare>,
}

/// What bare commands showed.
#[derive(Clone, Copy)]
struct Bare {
    messages_per_second: f64,
    store_cpu_us: f64,
}

impl Bare {
    fn mean(before: Self, after: Self) -> Self {
        Self {
            messages_per_second: f64::midpoint(before.messages_per_second, after.messages_per_second),
            store_cpu_us: f64::midpoint(before.store_cpu_us, after.store_cpu_us),
        }
    }
}

/// Measures messages with ids, which are looked for among those of the last hour, and without.
pub(super) async fn run(target: &Target, length: Duration) -> Result<Vec<BatchRow>, Failure> {
    let mut rows = Vec::new();
    for with_ids in [true, false] {
        let place = target.place()?;
        let half = (length / 2).max(Duration::from_secs(1));
        let messages = Messages::new(with_ids);
        let before = bare(&place, &messages, half).await?;
        let (messages_per_second, store_cpu_us) = pushes(&place, &messages, length).await?;
        let after = bare(&place, &messages, half).await?;
        let floor = before.zip(after).map(|(before, after)| Bare::mean(before, after));
        rows.push(BatchRow { with_ids, messages_per_second, store_cpu_us, floor });
        place.clear().await?;
    }
    Ok(rows)
}

async fn pushes(place: &Place, messages: &Messages, length: Duration) -> Result<(f64, Option<f64>), Failure> {
    let towpath = open(&place.url).await?;
    let handle = batcher(&towpath, place).await?;
    let work = |_task| {
        let (handle, messages) = (handle.clone(), messages.clone());
        move || {
            let (handle, message) = (handle.clone(), messages.next());
            async move { push(&handle, &message).await }
        }
    };
    over_and_over(WARM_UP, work).await?;
    let measured = with_store_cpu(place, length, work).await;
    towpath.close().await;
    measured
}

/// No receiver fetches batches meanwhile, so they must be able to become as long as a measurement makes them.
async fn batcher(towpath: &Towpath, place: &Place) -> Result<BatchHandle, Failure> {
    let refused = |cause: towpath::batches::BatchError| failed(&cause.to_string());
    let batcher = Batcher::builder(place.function(0)).max_messages(10_000).max_bytes(16 << 20);
    let batcher = batcher.patch(|patch| patch.max_open = Some(100_000_000)).build().map_err(refused)?;
    towpath.batchers().put(&batcher).await.map_err(refused)?;
    Ok(towpath.batch(batcher.name()))
}

async fn push(handle: &BatchHandle, message: &ChatMessage) -> Result<(), String> {
    match handle.push(message).send().await {
        Ok(Pushed::Accepted { .. }) => Ok(()),
        Ok(Pushed::Duplicate { batch_key, .. }) => Err(format!("a new message of '{batch_key}' was taken for another one")),
        Err(error) => Err(error.to_string()),
    }
}

async fn bare(place: &Place, messages: &Messages, length: Duration) -> Result<Option<Bare>, Failure> {
    if !place.is_shared() {
        return Ok(None);
    }
    let floor = BatchFloor::open(&place.url, &place.tag).await.map_err(|error| failed(&error.to_string()))?;
    let work = |_task| {
        let (floor, messages) = (floor.clone(), messages.clone());
        move || {
            let (floor, message) = (floor.clone(), messages.next());
            async move { push_bare(&floor, &message).await }
        }
    };
    over_and_over(WARM_UP, work).await?;
    let (messages_per_second, store_cpu_us) = with_store_cpu(place, length, work).await?;
    Ok(store_cpu_us.map(|store_cpu_us| Bare { messages_per_second, store_cpu_us }))
}

async fn push_bare(floor: &BatchFloor, message: &ChatMessage) -> Result<(), String> {
    let text = serde_json::to_vec(message).map_err(|error| error.to_string())?;
    let deadline = time::unix_ms() as f64 / 1e3 + SILENCE_SECONDS;
    floor.push(&message.external_chat_id, &text, deadline).await.map(drop).map_err(|error| error.to_string())
}

/// Makes one message after the other, the same for both sides. Clones share the count.
#[derive(Clone)]
struct Messages {
    with_ids: bool,
    text: Arc<str>,
    made: Arc<AtomicU64>,
}

/// What producers of chats send.
#[derive(Serialize)]
struct ChatMessage {
    tenant_id: &'static str,
    channel: &'static str,
    external_chat_id: String,
    external_user_id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    text: Arc<str>,
    timestamp: &'static str,
}

impl Messages {
    fn new(with_ids: bool) -> Self {
        Self { with_ids, text: "x".repeat(TEXT_BYTES).into(), made: Arc::default() }
    }

    fn next(&self) -> ChatMessage {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        ChatMessage {
            tenant_id: "bench",
            channel: "telegram",
            external_chat_id: (number % CHATS).to_string(),
            external_user_id: "17",
            message_id: self.with_ids.then(|| format!("m-{number}")),
            text: Arc::clone(&self.text),
            timestamp: "2026-01-01T00:00:00Z",
        }
    }
}

impl BatchRow {
    fn ratio(&self) -> Option<f64> {
        self.floor.map(|floor| self.messages_per_second / floor.messages_per_second)
    }

    fn ids(&self) -> &'static str {
        if self.with_ids { "with ids" } else { "without ids" }
    }

    pub(super) fn finding(&self) -> Option<Finding> {
        let what = format!("batch messages/s {} against RPUSH + ZADD", self.ids());
        self.ratio().map(|ratio| Finding::new(what, ratio, "x", Aim::AtLeast(0.2)))
    }

    pub(super) fn json(&self) -> Value {
        let tenths = |value: f64| (value * 10.0).round() / 10.0;
        json!({
            "tasks": TASKS,
            "message_ids": self.with_ids,
            "messages_per_second": self.messages_per_second.round(),
            "store_cpu_us": self.store_cpu_us.map(tenths),
            "floor_messages_per_second": self.floor.map(|floor| floor.messages_per_second.round()),
            "floor_store_cpu_us": self.floor.map(|floor| tenths(floor.store_cpu_us)),
            "ratio_to_floor": self.ratio().map(|ratio| (ratio * 100.0).round() / 100.0),
        })
    }

    fn cells(&self) -> [String; 6] {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            self.ids().to_owned(),
            format!("{:.0}", self.messages_per_second),
            or_dash(self.floor.map(|floor| format!("{:.0}", floor.messages_per_second))),
            or_dash(self.store_cpu_us.map(|us| format!("{us:.1} us"))),
            or_dash(self.floor.map(|floor| format!("{:.1} us", floor.store_cpu_us))),
            or_dash(self.ratio().map(|ratio| format!("{ratio:.2}"))),
        ]
    }
}

pub(super) fn print(out: Output, rows: &[BatchRow]) {
    if rows.is_empty() {
        return;
    }
    let mut lines = table(["batches", "messages/s", "bare messages/s", "redis cpu", "bare cpu", "ratio"]);
    for row in rows {
        lines.add_row(row.cells().map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
    }
    out.line("");
    out.table(&lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_half_a_kilobyte_and_no_two_have_one_id() {
        let messages = Messages::new(true);
        let of_another_task = messages.clone();
        let (first, second) = (messages.next(), of_another_task.next());
        assert_ne!(first.message_id, second.message_id);
        let bytes = serde_json::to_vec(&first).unwrap().len();
        assert!((450..=550).contains(&bytes), "{bytes} bytes");
        assert!(Messages::new(false).next().message_id.is_none());
    }
}
