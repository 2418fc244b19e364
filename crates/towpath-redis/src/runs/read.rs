//! Reads of one run: its view, its journal, its facts, what it has published.

use std::sync::Arc;

use redis::Value;
use towpath_core::payload::Payload;
use towpath_core::run::{Fact, Run, RunId};
use towpath_core::store::{FACTS_BYTES_MAX, FACTS_MAX, JournalEntry, RunView, StoreError};

use super::places::Place;
use super::rows::{Loaded, page_of_entries, page_of_facts, payload, read_entry, read_json};
use super::scripts;
use crate::calls::sections;
use crate::registry::reply::command;
use crate::store::RedisStore;
use crate::unreadable::of_key;
use crate::value;

/// No journal has more bytes than this, with what stands beside each body.
const JOURNAL_MAX: usize = 1 << 30;
/// Lua has no larger whole numbers.
const NUMBER_MAX: u64 = 1 << 53;
/// Words around the body of an entry of a journal: its instant, its kind, its step.
const AROUND_BODY: usize = 64;
/// Pages of facts of this many runs are read together.
const PAGES_AT_ONCE: usize = 16;

impl RedisStore {
    pub(super) async fn view_run(&self, run_id: &RunId) -> Result<Option<RunView>, StoreError> {
        let Some(place) = self.place_of_run(run_id).await? else { return Ok(None) };
        let (key, journal) = (place.keys.run(run_id), format!("{}:j", place.keys.run(run_id)));
        let mut last = command("LRANGE", &[&journal]);
        last.arg(-1).arg(-1);
        let asks = [command("HMGET", &[key.as_str(), "v", "h", "a", "r", "i"]), last];
        let mut replies = self.shared.link.ask_all(&asks).await?.into_iter();
        let kept = value::checked(replies.next().unwrap_or(Value::Nil)).and_then(|reply| Loaded::read(&value::array("HMGET", reply)?));
        let Some(loaded) = kept.map_err(|error| of_key(error, &key))? else { return Ok(None) };
        if loaded.run.is_gone(self.shared.now()) {
            return Ok(None);
        }
        let last = value::checked(replies.next().unwrap_or(Value::Nil)).and_then(|reply| value::array("LRANGE", reply));
        let last = last.map_err(|error| of_key(error, &journal))?;
        let outcome = match last.first().and_then(value::bytes).filter(|_| loaded.run.state.is_closed()) {
            Some(text) => Some(read_entry(0, text)?.entry.body),
            None => None,
        };
        Ok(Some(RunView { run: loaded.run, reference: loaded.reference, outcome }))
    }

    pub(super) async fn journal_from(&self, run_id: &RunId, from: u64, bytes_max: usize) -> Result<Vec<JournalEntry>, StoreError> {
        let Some(place) = self.place_of_run(run_id).await? else { return Ok(Vec::new()) };
        let mut args = self.run_args(&place, 3);
        args.push(run_id.as_str());
        args.number(from.min(NUMBER_MAX));
        args.number(bytes_max.saturating_add(AROUND_BODY).min(JOURNAL_MAX));
        let reply = self.run_script(&scripts::JOURNAL, &place, std::slice::from_ref(run_id), &args).await;
        let parts = reply.and_then(|reply| value::array("a journal", reply)).map_err(|error| of_key(error, &place.keys.run(run_id)))?;
        if !self.is_kept(parts.first())? {
            return Ok(Vec::new());
        }
        page_of_entries(from, &parts[1..], bytes_max)
    }

    pub(super) async fn facts_after(&self, run_id: &RunId, after: u64) -> Result<Vec<Fact>, StoreError> {
        let Some(place) = self.place_of_run(run_id).await? else { return Ok(Vec::new()) };
        let mut pages = self.pages_of_facts(&place, &[(run_id.clone(), after)]).await?;
        pages.pop().unwrap_or(Ok(Vec::new()))
    }

    /// The first facts of several runs of a place, each after a number.
    pub(super) async fn pages_of_facts(
        &self,
        place: &Place,
        asked: &[(RunId, u64)],
    ) -> Result<Vec<Result<Vec<Fact>, StoreError>>, StoreError> {
        let mut pages = Vec::with_capacity(asked.len());
        for some in asked.chunks(PAGES_AT_ONCE) {
            let mut args = self.run_args(place, 1 + some.len() * 4);
            args.number(some.len());
            for (run_id, after) in some {
                args.push(run_id.as_str());
                args.number(*after);
                args.number(FACTS_MAX);
                // Beside its data a fact has some words of its own.
                args.number(FACTS_BYTES_MAX * 2);
            }
            let ids: Vec<RunId> = some.iter().map(|(run_id, _)| run_id.clone()).collect();
            let reply = self.run_script(&scripts::FACTS, place, &ids, &args).await?;
            for (run_id, reply) in ids.iter().zip(sections::read("a page of facts", reply, some.len())?) {
                let parts = reply.and_then(|reply| value::array("a page of facts", reply));
                let page = parts.and_then(|parts| if self.is_kept(parts.first())? { page_of_facts(&parts[1..]) } else { Ok(Vec::new()) });
                pages.push(page.map_err(|error| of_key(error, &place.keys.run(run_id))));
            }
        }
        Ok(pages)
    }

    pub(super) async fn published_values(&self, run_id: &RunId) -> Result<Vec<(Arc<str>, Payload)>, StoreError> {
        let Some(place) = self.place_of_run(run_id).await? else { return Ok(Vec::new()) };
        let run = place.keys.run(run_id);
        let published = format!("{run}:pub");
        let replies = self.shared.link.ask_all(&[command("HGET", &[run.as_str(), "h"]), command("HGETALL", &[&published])]).await?;
        let mut replies = replies.into_iter().map(value::checked);
        let header = replies.next().transpose().map_err(|error| of_key(error, &run))?;
        if !self.is_kept(header.as_ref())? {
            return Ok(Vec::new());
        }
        let fields = value::array("HGETALL", replies.next().transpose().map_err(|error| of_key(error, &published))?.unwrap_or(Value::Nil))?;
        let mut values = Vec::with_capacity(fields.len() / 2);
        let mut fields = fields.into_iter();
        while let (Some(key), Some(value)) = (fields.next(), fields.next()) {
            values.push((Arc::from(value::text(&key).unwrap_or_default()), payload(value)));
        }
        values.sort_by(|(one, _): &(Arc<str>, _), (other, _)| one.cmp(other));
        Ok(values)
    }

    /// Whether there is a header, and its run's retention is not over.
    fn is_kept(&self, header: Option<&Value>) -> Result<bool, StoreError> {
        let Some(header) = header.and_then(value::bytes) else { return Ok(false) };
        let run: Run = read_json("the header", header)?;
        Ok(!run.is_gone(self.shared.now()))
    }
}
