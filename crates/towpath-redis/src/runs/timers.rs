//! Timers of runs: what is due, and when the next timer or post is.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::run::{RunCommand, RunId, RunReply};
use towpath_core::store::{FiredRuns, StoreError};
use towpath_core::time::Timestamp;

use super::moves::{Move, Outcome};
use super::places::Place;
use super::rows::{read_timer, timers as timers_of};
use crate::registry::reply::{command, instant};
use crate::store::RedisStore;
use crate::value;

/// A timer whose run cannot be read is looked at again after this.
pub(super) const PUT_OFF: Duration = Duration::from_secs(30);
/// Whatever version a run has.
const ANY: &str = "*";

/// A timer that is due.
struct Due {
    at: Timestamp,
    line: String,
    run_id: RunId,
    place: Arc<Place>,
}

impl RedisStore {
    pub(super) async fn fire_run_timers(&self, limit: u32) -> Result<FiredRuns, StoreError> {
        let (places, now) = (self.known_places().await?, self.shared.now());
        let due = self.due_timers(&places, limit as usize, now).await?;
        let mut fired = 0;
        for place in &places {
            let of_place: Vec<&Due> = due.iter().filter(|timer| Arc::ptr_eq(&timer.place, place)).collect();
            fired += self.fire_timers_of(place, &of_place, now).await?;
        }
        let next_due = self.first_of(&places, &["timers", "posts"]).await?;
        Ok(FiredRuns { fired, next_due })
    }

    /// When the next timer of a run or the next post is due, in all places that this process knows.
    pub(crate) async fn next_of_runs(&self) -> Result<Option<Timestamp>, StoreError> {
        self.first_of(&self.known_places().await?, &["timers", "posts"]).await
    }

    async fn first_of(&self, places: &[Arc<Place>], sets: &[&str]) -> Result<Option<Timestamp>, StoreError> {
        let ask = |place: &Arc<Place>, set: &str| {
            let mut ask = command("ZRANGE", &[place.keys.of(set)]);
            ask.arg(0).arg(0).arg("WITHSCORES");
            ask
        };
        let asks: Vec<Cmd> = places.iter().flat_map(|place| sets.iter().map(move |set| ask(place, set))).collect();
        let first = |reply: Value| match reply {
            Value::Array(parts) => parts.get(1).and_then(value::score).map(instant),
            _nothing => None,
        };
        Ok(self.ask_places(&asks).await?.into_iter().filter_map(first).min())
    }

    /// Timers that are due, in the order in which they fire.
    async fn due_timers(&self, places: &[Arc<Place>], limit: usize, now: Timestamp) -> Result<Vec<Due>, StoreError> {
        let ask = |place: &Arc<Place>| {
            let mut ask = command("ZRANGEBYSCORE", &[place.keys.of("timers")]);
            ask.arg("-inf").arg(now.as_millis()).arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
            ask
        };
        let asks: Vec<Cmd> = places.iter().map(ask).collect();
        let mut due = Vec::new();
        for (place, reply) in places.iter().zip(self.ask_places(&asks).await?) {
            for pair in value::array("ZRANGEBYSCORE", reply)?.chunks_exact(2) {
                let (Some(line), Some(at)) = (value::text(&pair[0]), value::score(&pair[1])) else { continue };
                let run_id = line.split_once(' ').and_then(|(run_id, _)| RunId::parse(run_id).ok());
                match run_id {
                    Some(run_id) => due.push(Due { at: instant(at), line: line.to_owned(), run_id, place: Arc::clone(place) }),
                    None => {
                        self.shared.pass_over(&place.keys.of("timers"), line.as_bytes(), "it is not a timer");
                        self.put_off(&place.keys.of("timers"), line, now + PUT_OFF).await?;
                    }
                }
            }
        }
        // Lines begin with the ids of their runs.
        due.sort_by(|one, other| (one.at, &one.line).cmp(&(other.at, &other.line)));
        due.truncate(limit);
        Ok(due)
    }

    /// A line that cannot be read is looked at again then.
    pub(super) async fn put_off(&self, set: &str, line: &str, until: Timestamp) -> Result<(), StoreError> {
        let mut put_off = command("ZADD", &[set, "XX"]);
        put_off.arg(until.as_millis()).arg(line);
        self.shared.link.ask(&put_off).await.map(drop)
    }

    /// Fires timers of one place, in order.
    async fn fire_timers_of(&self, place: &Arc<Place>, due: &[&Due], now: Timestamp) -> Result<u64, StoreError> {
        let (mut fired, mut timers, mut moves) = (0, Vec::new(), Vec::new());
        for timer in due {
            match read_timer(&timer.line) {
                Some((run_id, what, fact)) => {
                    moves.push(Move::plain(run_id, RunCommand::TimerDue(what), fact));
                    timers.push(timer);
                }
                None => self.correct_line(place, ("timers", &timer.line), (&timer.run_id, ANY), Some(now + PUT_OFF)).await?,
            }
        }
        for (timer, made) in timers.into_iter().zip(self.put_all(place, moves).await) {
            match made {
                Ok(Outcome::Replied { reply: RunReply::Done(_), .. }) => fired += 1,
                Ok(Outcome::None) => self.correct_line(place, ("timers", &timer.line), (&timer.run_id, ""), None).await?,
                // It is armed for another instant, or not at all.
                Ok(Outcome::Replied { run, version, .. }) => {
                    let at = timers_of(&run).get(&timer.line).copied();
                    self.correct_line(place, ("timers", &timer.line), (&timer.run_id, &version), at).await?;
                }
                Ok(_other) => {}
                Err(error) if self.shared.is_local(&error) => {
                    self.shared.pass_over(&place.keys.run(&timer.run_id), b"", error);
                    self.correct_line(place, ("timers", &timer.line), (&timer.run_id, ANY), Some(now + PUT_OFF)).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(fired)
    }
}
