//! Calls that should wait in the stream and do not: an old peer has trimmed it, has acknowledged them without an answer, or has made the
//! group anew behind them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::call::CallState;
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use super::PAGE;
use crate::calls::moves::Move;
use crate::pages::Listed;
use crate::pause::pause;
use crate::record::Life;
use crate::room::Room;
use crate::store::RedisStore;
use crate::value;

/// An old worker acknowledges an entry when its answer is on the way to whoever writes it down. What is still lost so much later is lost.
const SURE_AFTER: Duration = Duration::from_secs(1);
/// So many pages are looked at when nothing says that something is lost.
const STRETCH_PAGES: usize = 25;

/// How far to go through the calls of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    /// All of them: something is lost.
    Whole,
    /// A few, from where the last walk ended: something could be lost.
    Stretch,
}

impl RedisStore {
    /// Finds calls whose entry is gone, and puts them where the next claim finds them.
    pub(super) async fn rescue_vanished(&self, room: &Arc<Room>, walk: Walk) -> Result<(), StoreError> {
        let mut above = if walk == Walk::Whole { 0 } else { room.walked_to.load(Ordering::Relaxed) };
        let mut pages = 0;
        while walk == Walk::Whole || pages < STRETCH_PAGES {
            pages += 1;
            let mut ask = Cmd::new();
            ask.arg("ZRANGEBYSCORE").arg(&room.keys.index).arg(format!("({above}")).arg("+inf").arg("WITHSCORES");
            ask.arg("LIMIT").arg(0).arg(PAGE);
            let listed = value::array("ZRANGEBYSCORE", self.shared.link.ask(&ask).await?)?;
            let read =
                |pair: &[Value]| Ok((value::number(&pair[1]).and_then(|at| u64::try_from(at).ok()).unwrap_or(0), Listed::read(&pair[0])?));
            let lines = listed.chunks_exact(2).map(read).collect::<Result<Vec<(u64, Listed)>, StoreError>>()?;
            let (count, last) = (lines.len(), lines.last().map(|(sequence, _)| *sequence));
            let calls = self.spelled_out(room, lines).await?;
            let ids: Vec<CallId> = calls.into_iter().map(|(_, call_id)| call_id).collect();
            for some in ids.chunks(PAGE) {
                let lives = self.lives(room, some).await?;
                self.rescue(room, lives.into_iter().flatten().filter(waits_in_stream).collect()).await?;
            }
            above = last.unwrap_or_default();
            if count < PAGE {
                above = 0;
                break;
            }
        }
        room.walked_to.store(above, Ordering::Relaxed);
        Ok(())
    }

    async fn rescue(&self, room: &Arc<Room>, waiting: Vec<Life>) -> Result<(), StoreError> {
        let missed = self.undeliverable(room, waiting).await?;
        if missed.is_empty() {
            return Ok(());
        }
        pause(SURE_AFTER).await;
        let before: HashMap<&CallId, u64> = missed.iter().map(|life| (&life.call.call_id, life.version)).collect();
        let ids: Vec<CallId> = missed.iter().map(|life| life.call.call_id.clone()).collect();
        let unchanged = |life: &Life| before.get(&life.call.call_id) == Some(&life.version);
        let still = self.lives(room, &ids).await?.into_iter().flatten().filter(unchanged).collect();
        let mut lost = Vec::new();
        for life in self.undeliverable(room, still).await? {
            if !self.find_old_reply(&life.call.call_id).await? {
                lost.push(Move::outside(life));
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        tracing::warn!(function = %room.function, count = lost.len(), "calls whose entry somebody took out of the stream are delivered by their record");
        self.apply(room, lost).await?;
        self.brings_work(room).await;
        Ok(())
    }

    /// Those calls whose entry is neither ahead of the group nor pending with somebody.
    async fn undeliverable(&self, room: &Room, waiting: Vec<Life>) -> Result<Vec<Life>, StoreError> {
        if waiting.is_empty() {
            return Ok(waiting);
        }
        let read_up_to = self.read_up_to(room).await?;
        let mut asks = Vec::with_capacity(waiting.len() * 2);
        for life in &waiting {
            let (mut there, mut pending) = (Cmd::new(), Cmd::new());
            there.arg("XRANGE").arg(&room.keys.stream).arg(&life.entry).arg(&life.entry);
            pending.arg("XPENDING").arg(&room.keys.stream).arg(&room.keys.group).arg(&life.entry).arg(&life.entry).arg(1);
            asks.extend([there, pending]);
        }
        let replies = self.shared.link.ask_all(&asks).await?;
        let some = |reply: &Value| matches!(reply, Value::Array(items) if !items.is_empty());
        let lost = |(life, pair): (Life, &[Value])| {
            let ahead = place(&life.entry) > read_up_to;
            let deliverable = some(&pair[0]) && (ahead || some(&pair[1]));
            (!deliverable).then_some(life)
        };
        Ok(waiting.into_iter().zip(replies.chunks_exact(2)).filter_map(lost).collect())
    }

    /// How far the group has read.
    async fn read_up_to(&self, room: &Room) -> Result<(u64, u64), StoreError> {
        let mut groups = Cmd::new();
        groups.arg("XINFO").arg("GROUPS").arg(&room.keys.stream);
        let groups = match self.shared.link.ask(&groups).await {
            // Somebody has removed the stream and all that waited in it.
            Err(error) if error.to_string().contains("no such key") => return Ok((0, 0)),
            groups => value::array("XINFO GROUPS", groups?)?,
        };
        for group in groups {
            let Value::Array(fields) = group else { continue };
            let field =
                |name: &str| fields.chunks_exact(2).find(|pair| value::text(&pair[0]) == Some(name)).and_then(|pair| value::text(&pair[1]));
            if field("name") == Some(room.keys.group.as_str()) {
                return Ok(field("last-delivered-id").map(place).unwrap_or_default());
            }
        }
        Ok((0, 0))
    }
}

fn waits_in_stream(life: &Life) -> bool {
    life.call.state == CallState::Queued && !life.entry.is_empty()
}

/// A place in a stream, in the order of the stream.
fn place(text: &str) -> (u64, u64) {
    let (ms, number) = text.split_once('-').unwrap_or((text, "0"));
    (ms.parse().unwrap_or_default(), number.parse().unwrap_or_default())
}
