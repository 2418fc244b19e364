//! Lists of running and delayed calls where these are many. Their sets are in the order of their timers and not of their submits, so that the
//! newest cannot be found without reading all of them. Up to a few thousand are read. More than these come behind all other calls of a list, in the order of their timers: each page
//! reads a bounded number of lines.

use std::cmp::Reverse;
use std::sync::Arc;

use redis::{Cmd, Value};
use towpath_core::call::CallState;
use towpath_core::inspect::{CallFilter, CallView, Page, PageRequest};
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use super::lists::{CHUNK, LOOKED_MAX, matches};
use super::partition::Partition;
use crate::registry::reply::command;
use crate::store::RedisStore;
use crate::value;

/// The bits of a cursor: it is a place among timers; timers follow behind the calls that are listed by their sequences.
const IN_TIMERS: u64 = 1 << 63;
const TIMERS_FOLLOW: u64 = 1 << 62;
/// The lowest bits of a place among timers count the lines of one instant.
const OFFSET_BITS: u32 = 20;
/// The latest instant that a place can name, ms. Scores that are later count as this one.
const INSTANT_MAX: u64 = (1 << 43) - 1;

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Below this sequence; `None`: with the newest call. `timers_follow`: running and delayed calls come behind all others.
    Below { sequence: Option<u64>, timers_follow: bool },
    /// Among running and delayed calls.
    InTimers(TimerPlace),
}

/// A place among the timers of all functions: behind this many lines of this instant, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimerPlace {
    instant: u64,
    offset: u64,
}

impl TimerPlace {
    pub(super) const FIRST: Self = Self { instant: 0, offset: 0 };

    /// The place behind a line of this instant that comes next.
    fn behind(self, instant: u64) -> Self {
        let offset = if instant == self.instant { self.offset + 1 } else { 1 };
        Self { instant, offset: offset.min((1 << OFFSET_BITS) - 1) }
    }
}

impl Place {
    pub(super) fn read(cursor: Option<u64>) -> Self {
        match cursor {
            Some(cursor) if cursor & IN_TIMERS != 0 => {
                let place = cursor & !IN_TIMERS;
                Self::InTimers(TimerPlace { instant: place >> OFFSET_BITS, offset: place & ((1 << OFFSET_BITS) - 1) })
            }
            Some(cursor) => Self::Below { sequence: Some(cursor & !TIMERS_FOLLOW), timers_follow: cursor & TIMERS_FOLLOW != 0 },
            None => Self::Below { sequence: None, timers_follow: false },
        }
    }

    pub(super) fn write(self) -> u64 {
        match self {
            Self::InTimers(TimerPlace { instant, offset }) => IN_TIMERS | instant << OFFSET_BITS | offset,
            Self::Below { sequence, timers_follow } => {
                sequence.unwrap_or(TIMERS_FOLLOW - 1) | if timers_follow { TIMERS_FOLLOW } else { 0 }
            }
        }
    }
}

/// Whether a filter means nothing but running and delayed calls.
pub(super) fn only_timers(filter: &CallFilter) -> bool {
    !filter.states.is_empty() && filter.states.iter().all(|state| matches!(state, CallState::Running | CallState::Delayed))
}

/// A line of a set of running or delayed calls.
struct Line {
    instant: u64,
    partition: Arc<Partition>,
    state: CallState,
    id: Option<CallId>,
}

impl RedisStore {
    /// Whether there are more running and delayed calls than one page reads.
    pub(super) async fn has_many_timers(&self, partitions: &[Arc<Partition>], filter: &CallFilter) -> bool {
        let sets: Vec<_> = partitions.iter().flat_map(|partition| timer_sets(partition, filter)).collect();
        let sizes = self.shared.link.ask_apart(&sets.iter().map(|(_, key)| command("ZCARD", &[key])).collect::<Vec<_>>()).await;
        sizes.iter().flatten().filter_map(value::number).sum::<i64>() > i64::try_from(LOOKED_MAX).unwrap_or(i64::MAX)
    }

    /// One page of running and delayed calls, by their timers; on the page the newest call is first.
    pub(super) async fn list_timers(
        &self,
        partitions: &[Arc<Partition>],
        filter: &CallFilter,
        from: TimerPlace,
        limit: usize,
    ) -> Result<Page<CallView>, StoreError> {
        let (mut found, mut place, mut looked, mut bytes) = (Vec::new(), from, 0, 0);
        while found.len() < limit && looked < LOOKED_MAX && bytes < PageRequest::BYTES_MAX {
            let lines = self.timer_lines(partitions, filter, place).await?;
            if lines.is_empty() {
                return Ok(Page { items: newest_first(found), next: None });
            }
            for (line, call) in self.calls_of(&lines).await? {
                if found.len() == limit || bytes >= PageRequest::BYTES_MAX {
                    break;
                }
                (place, looked) = (place.behind(line.instant), looked + 1);
                let Some((sequence, view)) = call.filter(|(_, view)| view.call.state == line.state && matches(view, filter)) else {
                    continue;
                };
                if filter.brief {
                    found.push((sequence, view));
                } else if let Some(whole) = self.wholes(&line.partition, std::slice::from_ref(&view.call.call_id)).await?.pop().flatten() {
                    let whole = whole.view(&line.partition)?;
                    bytes += whole.payload_bytes();
                    found.push((sequence, whole));
                }
            }
        }
        Ok(Page { items: newest_first(found), next: Some(Place::InTimers(place).write()) })
    }

    /// The next lines of all these functions, in order.
    async fn timer_lines(&self, partitions: &[Arc<Partition>], filter: &CallFilter, from: TimerPlace) -> Result<Vec<Line>, StoreError> {
        let sets: Vec<_> = partitions.iter().flat_map(|partition| timer_sets(partition, filter).map(move |set| (partition, set))).collect();
        let skipped = usize::try_from(from.offset).unwrap_or(usize::MAX);
        let ask = |(_, (_, key)): &(&Arc<Partition>, (CallState, &str))| {
            let (mut ask, start) = (Cmd::new(), if from.instant == 0 { "-inf".to_owned() } else { from.instant.to_string() });
            ask.arg("ZRANGEBYSCORE")
                .arg(*key)
                .arg(start)
                .arg("+inf")
                .arg("WITHSCORES")
                .arg("LIMIT")
                .arg(0)
                .arg(skipped.saturating_add(CHUNK));
            ask
        };
        let replies = self.shared.link.ask_apart(&sets.iter().map(ask).collect::<Vec<_>>()).await;
        let mut lines = Vec::new();
        for ((partition, (state, key)), reply) in sets.into_iter().zip(replies) {
            let reply = reply.and_then(|reply| value::array("ZRANGEBYSCORE", reply));
            for pair in self.shared.or_pass_over(key, reply, Vec::new())?.chunks_exact(2) {
                let (instant, id) = (instant_of(&pair[1]), value::call_id(&pair[0]).ok());
                lines.push(Line { instant, partition: Arc::clone(partition), state, id });
            }
        }
        // Lines of one instant stay in the order of their functions and ids.
        lines.sort_by_key(|line| line.instant);
        let is_behind = |(number, line): &(usize, Line)| line.instant > from.instant || *number >= skipped;
        Ok(lines.into_iter().enumerate().filter(is_behind).map(|(_, line)| line).take(CHUNK).collect())
    }

    /// The calls of some lines, in the order of the lines.
    async fn calls_of<'a>(&self, lines: &'a [Line]) -> Result<Vec<(&'a Line, Option<(u64, CallView)>)>, StoreError> {
        let mut calls: Vec<(&Line, Option<(u64, CallView)>)> = lines.iter().map(|line| (line, None)).collect();
        let mut left: Vec<usize> = (0..lines.len()).filter(|place| lines[*place].id.is_some()).collect();
        while let Some(first) = left.first() {
            let partition = Arc::clone(&lines[*first].partition);
            let (same, others): (Vec<usize>, Vec<usize>) =
                left.into_iter().partition(|place| Arc::ptr_eq(&lines[*place].partition, &partition));
            let ids: Vec<CallId> = same.iter().filter_map(|place| lines[*place].id.clone()).collect();
            for (place, view) in same.into_iter().zip(self.views(&partition, &partition.keys.calls, &ids).await?) {
                calls[place].1 = view;
            }
            left = others;
        }
        Ok(calls)
    }
}

/// The sets of a partition that a filter means, with the state of their calls.
fn timer_sets<'a>(partition: &'a Partition, filter: &CallFilter) -> impl Iterator<Item = (CallState, &'a str)> {
    let sets = [(CallState::Running, partition.keys.running.as_str()), (CallState::Delayed, partition.keys.delayed.as_str())];
    let means = |state: CallState| filter.states.is_empty() || filter.states.contains(&state);
    sets.into_iter().filter(|(state, _)| means(*state)).collect::<Vec<_>>().into_iter()
}

fn newest_first(mut found: Vec<(u64, CallView)>) -> Vec<CallView> {
    found.sort_by_key(|(sequence, _)| Reverse(*sequence));
    found.into_iter().map(|(_, view)| view).collect()
}

/// The instant of a line. A neighbour may have written any score.
fn instant_of(score: &Value) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a score that is no instant counts as the first or the last"
    )]
    let instant = value::score(score).unwrap_or_default().max(0.0) as u64;
    instant.min(INSTANT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let timers = |instant, offset| Place::InTimers(TimerPlace { instant, offset });
        let below = |sequence, timers_follow| Place::Below { sequence: Some(sequence), timers_follow };
        let places =
            [timers(0, 0), timers(INSTANT_MAX, (1 << OFFSET_BITS) - 1), timers(1_794_786_695_153, 7), below(1_794_786_695_153_000, false)];
        for place in places.into_iter().chain([below(1_794_786_695_153_000, true), below(0, true)]) {
            assert_eq!(Place::read(Some(place.write())), place);
        }
        assert_eq!(Place::read(None), Place::Below { sequence: None, timers_follow: false });
    }

    #[test]
    fn lines_of_one_instant_are_counted() {
        let place = TimerPlace::FIRST.behind(0).behind(0).behind(5).behind(5);
        assert_eq!(place, TimerPlace { instant: 5, offset: 2 });
    }

    #[test]
    fn any_score_has_its_place() {
        let instant = |text: &str| instant_of(&Value::BulkString(text.as_bytes().to_vec()));
        assert_eq!(["-inf", "-5", "inf", "1e300", "nan", "junk", "7"].map(instant), [0, 0, INSTANT_MAX, INSTANT_MAX, 0, 0, 7]);
    }
}
