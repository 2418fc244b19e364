//! Lists of runs, and counts by place, for people.

use std::cmp::Reverse;
use std::sync::Arc;

use redis::Cmd;
use towpath_core::run::{RunId, RunState};
use towpath_core::store::{RUNS_PAGE_MAX, RunFilter, RunPage, RunPageRequest, RunPlaceView, RunView, StoreError};
use towpath_core::time::Timestamp;

use super::keys::{BEGUN, PAUSED, QUEUES};
use super::places::Place;
use super::rows::Loaded;
use crate::registry::reply::{command, instant};
use crate::store::RedisStore;
use crate::unreadable::of_key;
use crate::value;

/// One page looks at this many runs of a place at most, beside those that were created at the instant at which it begins.
const LOOKED_AT: usize = 300;
/// Headers of this many runs are read together.
const READ_AT_ONCE: usize = 100;

/// A run of the list, where it is.
struct Line {
    created_at: Timestamp,
    run_id: RunId,
    place: Arc<Place>,
}

impl Line {
    fn key(&self) -> (Timestamp, &RunId) {
        (self.created_at, &self.run_id)
    }
}

impl RedisStore {
    pub(super) async fn page_of_runs(&self, filter: &RunFilter, page: RunPageRequest) -> Result<RunPage, StoreError> {
        let limit = page.limit.min(RUNS_PAGE_MAX) as usize;
        let (lines, mut has_more) = self.lines_after(filter, page.after.as_ref()).await?;
        let mut found = RunPage::default();
        let mut last = None;
        'pages: for some in lines.chunks(READ_AT_ONCE) {
            for (line, view) in some.iter().zip(self.views_of(some).await?) {
                if found.runs.len() == limit {
                    has_more = true;
                    break 'pages;
                }
                last = Some((line.created_at, line.run_id.clone()));
                found.runs.extend(view.filter(|view| filter.takes(view)));
            }
        }
        found.next = last.filter(|_| has_more);
        Ok(found)
    }

    /// Runs after a run, in the order of the list, and whether there are more.
    async fn lines_after(&self, filter: &RunFilter, after: Option<&(Timestamp, RunId)>) -> Result<(Vec<Line>, bool), StoreError> {
        let mut places = self.known_places().await?;
        places.retain(|place| is_of(filter, place));
        let since = filter.since.map_or("-inf".to_owned(), |since| since.as_millis().to_string());
        let until = filter.until.map_or("+inf".to_owned(), |until| format!("({}", until.as_millis()));
        let below = after.map_or(until, |(at, _)| format!("({}", at.as_millis()));
        let mut asks: Vec<Cmd> = Vec::with_capacity(places.len() * 2);
        for place in &places {
            let runs = place.keys.of("runs");
            let at = after.map_or("+inf".to_owned(), |(at, _)| at.as_millis().to_string());
            // Those that were created at the same instant as the run before.
            let mut beside = command("ZREVRANGEBYSCORE", &[&runs, &at, &at]);
            beside.arg("WITHSCORES");
            let mut others = command("ZREVRANGEBYSCORE", &[&runs, &below, &since]);
            others.arg("WITHSCORES").arg("LIMIT").arg(0).arg(LOOKED_AT);
            asks.extend([beside, others]);
        }
        let (mut lines, mut horizon) = (Vec::new(), None);
        for (number, reply) in self.ask_places(&asks).await?.into_iter().enumerate() {
            let (place, parts) = (&places[number / 2], value::array("ZREVRANGEBYSCORE", reply)?);
            let is_cut = number % 2 == 1 && parts.len() == LOOKED_AT * 2;
            let before = lines.len();
            for pair in parts.chunks_exact(2) {
                let run_id = value::text(&pair[0]).and_then(|text| RunId::parse(text).ok());
                if let (Some(run_id), Some(at)) = (run_id, value::score(&pair[1])) {
                    lines.push(Line { created_at: instant(at), run_id, place: Arc::clone(place) });
                }
            }
            // Behind the last one of a place that was cut, others of that place may follow.
            if let Some(last) = lines.last().filter(|_| is_cut && lines.len() > before) {
                let last = (last.created_at, last.run_id.clone());
                horizon = horizon.max(Some(last));
            }
        }
        lines.retain(|line| after.is_none_or(|(at, run_id)| line.key() < (*at, run_id)));
        lines.retain(|line| horizon.as_ref().is_none_or(|(at, run_id)| line.key() >= (*at, run_id)));
        lines.sort_by(|one, other| Reverse(one.key()).cmp(&Reverse(other.key())));
        Ok((lines, horizon.is_some()))
    }

    /// The views of runs, without payloads. A run that is gone or cannot be read has none.
    async fn views_of(&self, lines: &[Line]) -> Result<Vec<Option<RunView>>, StoreError> {
        let ask = |line: &Line| command("HMGET", &[line.place.keys.run(&line.run_id).as_str(), "v", "h", "a", "r", "i"]);
        let asks: Vec<Cmd> = lines.iter().map(ask).collect();
        let (mut views, now) = (Vec::with_capacity(lines.len()), self.shared.now());
        for (line, reply) in lines.iter().zip(self.shared.link.ask_apart(&asks).await) {
            let key = line.place.keys.run(&line.run_id);
            let loaded = reply.and_then(|reply| Loaded::read(&value::array("HMGET", reply)?)).map_err(|error| of_key(error, &key));
            let loaded = match loaded {
                // Redis has expired it.
                Ok(None) => {
                    let set = ("runs", line.run_id.as_str());
                    self.correct_line(&line.place, set, (&line.run_id, ""), None).await?;
                    None
                }
                loaded => self.shared.or_pass_over(&key, loaded, None)?,
            };
            let kept = loaded.filter(|loaded| !loaded.run.is_gone(now));
            views.push(kept.map(|loaded| RunView { run: loaded.run, reference: loaded.reference, outcome: None }));
        }
        Ok(views)
    }

    pub(super) async fn views_of_places(&self) -> Result<Vec<RunPlaceView>, StoreError> {
        let (places, now) = (self.known_places().await?, self.shared.now());
        let mut asks = Vec::new();
        for place in &places {
            asks.extend(RunState::ALL.iter().map(|state| count(place, *state, now)));
            asks.extend([PAUSED, BEGUN].map(|word| command("ZCARD", &[place.keys.standing(word)])));
        }
        let replies = self.ask_places(&asks).await?;
        let mut views = Vec::new();
        for (place, replies) in places.iter().zip(replies.chunks_exact(RunState::ALL.len() + 2)) {
            let (counted, rest) = replies.split_at(RunState::ALL.len());
            let number = |reply| value::number(reply).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
            let not_new: u64 = rest.iter().map(number).sum();
            let all = RunState::ALL.into_iter().zip(counted).map(|(state, reply)| {
                let more = if state == RunState::Ready { not_new } else { 0 };
                (state, number(reply) + more)
            });
            let counts: Vec<(RunState, u64)> = all.filter(|(_, count)| *count > 0).collect();
            if !counts.is_empty() {
                views.push(RunPlaceView { place: place.place.clone(), counts, oldest_ready: self.oldest_ready(place).await? });
            }
        }
        Ok(views)
    }

    /// Since when the runs at the heads of the two queues wait: the earlier of the two.
    async fn oldest_ready(&self, place: &Arc<Place>) -> Result<Option<Timestamp>, StoreError> {
        let head = |queue| {
            let mut head = command("ZRANGE", &[place.keys.ready(queue)]);
            head.arg(0).arg(0);
            head
        };
        let mut lines = Vec::new();
        for reply in self.ask_places(&QUEUES.map(head)).await? {
            let found = value::array("ZRANGE", reply)?;
            let run_id = found.first().and_then(value::text).and_then(|text| RunId::parse(text).ok());
            lines.extend(run_id.map(|run_id| Line { created_at: Timestamp::default(), run_id, place: Arc::clone(place) }));
        }
        Ok(self.views_of(&lines).await?.into_iter().flatten().map(|view| view.run.changed_at).min())
    }
}

/// Closed runs are in their sets by the end of their retention.
fn count(place: &Place, state: RunState, now: Timestamp) -> Cmd {
    let set = place.keys.standing(state.as_str());
    if !state.is_closed() {
        return command("ZCARD", &[set]);
    }
    let mut count = command("ZCOUNT", &[set]);
    count.arg(format!("({}", now.as_millis())).arg("+inf");
    count
}

fn is_of(filter: &RunFilter, place: &Place) -> bool {
    let place = &place.place;
    filter.workflow.as_ref().is_none_or(|workflow| *workflow == place.workflow)
        && filter.version.as_ref().is_none_or(|version| *version == place.version)
        && filter.shard.as_ref().is_none_or(|shard| place.shard.as_ref() == Some(shard))
}
