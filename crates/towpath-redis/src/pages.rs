//! Pages: calls that came together are listed together, with one line in the index and one on the agenda for all of them.

use std::collections::HashSet;

use redis::{Cmd, Value};
use towpath_core::names::CallId;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use crate::record::Life;
use crate::room::Room;
use crate::store::RedisStore;
use crate::value;

/// No id begins so: control characters are refused.
const MARK: char = '\u{1}';
/// Whoever looks after a page has so long before others do.
const TURNED_WITHIN_MS: i64 = 5_000;
/// Calls of a page that are over are forgotten together, up to so much later than each by itself.
const TOGETHER_MS: i64 = 1_000;

/// What stands in the index or on the agenda.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Call(CallId),
    /// All calls of a page, by the first one's submit sequence.
    Page(u64),
}

impl Listed {
    pub(crate) fn read(member: &Value) -> Result<Self, StoreError> {
        match value::text(member).and_then(|text| text.strip_prefix(MARK)) {
            Some(first) => first.parse().map(Self::Page).map_err(|_| value::strange("a question for pages", member)),
            None => value::call_id(member).map(Self::Call),
        }
    }
}

fn member(first: u64) -> String {
    format!("{MARK}{first}")
}

impl RedisStore {
    /// The calls of pages, each in the order of their submits, which follow each other without a gap.
    pub(crate) async fn on_pages(&self, room: &Room, firsts: &[u64]) -> Result<Vec<Vec<CallId>>, StoreError> {
        if firsts.is_empty() {
            return Ok(Vec::new());
        }
        let mut ask = Cmd::new();
        ask.arg("HMGET").arg(&room.keys.pages).arg(firsts);
        let pages = value::array("HMGET", self.shared.link.ask(&ask).await?)?;
        let ids = |page: &Value| {
            let ids = value::text(page).unwrap_or_default().split('\n').filter(|id| !id.is_empty());
            ids.map(|id| CallId::new(id).map_err(|_| value::strange("a question for a page", page))).collect()
        };
        pages.iter().map(ids).collect()
    }

    /// What stands in an index, with the sequences: calls, and the calls of pages in their place.
    pub(crate) async fn spelled_out(&self, room: &Room, listed: Vec<(u64, Listed)>) -> Result<Vec<(u64, CallId)>, StoreError> {
        let firsts: Vec<u64> =
            listed.iter().filter_map(|(_, one)| if let Listed::Page(first) = one { Some(*first) } else { None }).collect();
        let mut pages = self.on_pages(room, &firsts).await?.into_iter();
        let mut calls = Vec::with_capacity(listed.len());
        for (sequence, one) in listed {
            match one {
                Listed::Call(call_id) => calls.push((sequence, call_id)),
                Listed::Page(first) => calls.extend((first..).zip(pages.next().unwrap_or_default())),
            }
        }
        Ok(calls)
    }

    /// Of pages that have come up, those that nobody else is looking after.
    pub(crate) async fn take_up(&self, room: &Room, firsts: Vec<u64>, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let later = now.as_millis().saturating_add(TURNED_WITHIN_MS);
        let put_off = |first: &u64| {
            let mut ask = Cmd::new();
            ask.arg("ZADD").arg(&room.keys.due).arg("XX").arg("GT").arg("CH").arg(later).arg(member(*first));
            ask
        };
        let asks: Vec<Cmd> = firsts.iter().map(put_off).collect();
        let replies = self.shared.link.insist(&asks).await?;
        let ours = firsts.into_iter().zip(replies).filter(|(_, changed)| value::number(changed) == Some(1));
        Ok(ours.map(|(first, _)| first).collect())
    }

    /// Looks when pages have to come up again, and takes those away whose calls are all gone.
    pub(crate) async fn turn_pages(&self, room: &Room, firsts: &[u64]) -> Result<(), StoreError> {
        for (first, ids) in firsts.iter().zip(self.on_pages(room, firsts).await?) {
            let lives: Vec<Life> = self.lives(room, &ids).await?.into_iter().flatten().collect();
            let again = lives.iter().filter_map(comes_up).min();
            let member = member(*first);
            let mut turn = Vec::new();
            let mut remove = |key: &str, member: &str, command: &str| {
                let mut ask = Cmd::new();
                ask.arg(command).arg(key).arg(member);
                turn.push(ask);
            };
            if lives.is_empty() {
                remove(&room.keys.index, &member, "ZREM");
                remove(&room.keys.pages, &first.to_string(), "HDEL");
            }
            match again {
                None => remove(&room.keys.due, &member, "ZREM"),
                Some(at) => {
                    let mut ask = Cmd::new();
                    ask.arg("ZADD").arg(&room.keys.due).arg(at.as_millis()).arg(&member);
                    turn.push(ask);
                    self.shared.agenda.note(at);
                }
            }
            for reply in self.shared.link.insist(&turn).await? {
                value::checked(reply)?;
            }
        }
        Ok(())
    }

    /// What has come up for a function: calls, and the calls of pages.
    pub(crate) async fn come_up(&self, room: &Room, listed: Vec<Listed>, pages: &[u64]) -> Result<Vec<Life>, StoreError> {
        let mut ids: Vec<CallId> = Vec::new();
        for one in listed {
            if let Listed::Call(call_id) = one {
                ids.push(call_id);
            }
        }
        let mut seen: HashSet<CallId> = ids.iter().cloned().collect();
        for call_id in self.on_pages(room, pages).await?.into_iter().flatten() {
            if seen.insert(call_id.clone()) {
                ids.push(call_id);
            }
        }
        Ok(self.lives(room, &ids).await?.into_iter().flatten().collect())
    }
}

/// When a page has to come up for one of its calls.
fn comes_up(life: &Life) -> Option<Timestamp> {
    let together = if life.call.state.has_ended() { TOGETHER_MS } else { 0 };
    life.call.due().map(|due| Timestamp::from_millis(due.as_millis().saturating_add(together)))
}
