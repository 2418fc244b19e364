//! Keeping streams short, and finding what fell between the stream and a worker: entries that somebody read and never dealt with, and
//! calls whose entry was taken away by others. Nothing here is in the way of a call that goes well.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::call::CallState;
use towpath_core::names::CallId;
use towpath_core::store::{ClaimCalls, StoreError};

use crate::calls::entry;
use crate::calls::moves::Move;
use crate::pause::pause;
use crate::record::Life;
use crate::room::Room;
use crate::script::TRIM;
use crate::store::{RedisStore, Shared};
use crate::value;

/// A stream is trimmed at the latest so long after something in it was acknowledged, or when so much was.
const TRIM_AFTER: Duration = Duration::from_secs(1);
const TRIM_ACKS: u64 = 4_096;
/// An entry that was read so long ago and is not in our books was read by somebody who is gone; the seeds have the same length.
const ABANDONED_AFTER_MS: u64 = 30_000;
/// How often abandoned entries are looked for; half of the above.
const SWEEP_EVERY: Duration = Duration::from_secs(15);
const PAGE: usize = 200;

/// How a stream is, after it was trimmed.
struct Trimmed {
    left: i64,
    should_wait: i64,
}

impl RedisStore {
    /// So many entries of a function were acknowledged.
    pub(crate) fn note_acks(&self, room: &Arc<Room>, count: u64) {
        if count == 0 {
            return;
        }
        let before = room.acks.fetch_add(count, Ordering::AcqRel);
        let now = before == 0;
        let many = before < TRIM_ACKS && before + count >= TRIM_ACKS;
        if now || many {
            let (shared, room) = (Arc::downgrade(&self.shared), Arc::clone(room));
            tokio::spawn(async move {
                if !many {
                    pause(TRIM_AFTER).await;
                }
                let Some(shared) = shared.upgrade() else { return };
                if room.acks.swap(0, Ordering::AcqRel) > 0
                    && let Err(error) = (Self { shared }).trim(&room).await
                {
                    tracing::debug!(function = %room.function, %error, "the stream was not trimmed; the next time will do");
                }
            });
        }
    }

    async fn trim(&self, room: &Room) -> Result<Trimmed, StoreError> {
        let keys = [room.keys.stream.as_str(), &room.keys.counts, &room.keys.ready];
        let reply = value::array("a trim", self.shared.link.run(&TRIM, &keys, &[]).await?)?;
        let number = |place: usize| reply.get(place).and_then(value::number).unwrap_or_default();
        Ok(Trimmed { left: number(1), should_wait: number(2) })
    }

    /// Looks for what fell between the stream and a worker, and puts it where the next claim finds it.
    pub(crate) async fn sweep(&self, room: &Arc<Room>) -> Result<(), StoreError> {
        self.reclaim_abandoned(room).await?;
        let trimmed = self.trim(room).await?;
        if trimmed.should_wait > trimmed.left {
            self.rescue_vanished(room).await?;
        }
        Ok(())
    }

    /// Entries that were read long ago by somebody who is not there any more.
    async fn reclaim_abandoned(&self, room: &Arc<Room>) -> Result<(), StoreError> {
        let mut from = "-".to_owned();
        let mut present: Option<HashSet<String>> = None;
        loop {
            let mut idle = Cmd::new();
            idle.arg("XPENDING").arg(&room.keys.stream).arg(&room.keys.group).arg("IDLE").arg(ABANDONED_AFTER_MS);
            idle.arg(&from).arg("+").arg(PAGE);
            let page = match self.shared.link.ask(&idle).await {
                Err(error) if error.to_string().contains("NOGROUP") => return self.make_group(room).await,
                page => value::array("XPENDING", page?)?,
            };
            let pending: Vec<(String, String)> = page.iter().filter_map(read_pending).collect();
            let Some((last, _)) = pending.last() else { return Ok(()) };
            from = format!("({last}");
            if present.is_none() {
                present = Some(self.present_workers(room).await?);
            }
            let gone = pending.iter().filter(|(_, consumer)| !present.iter().flatten().any(|worker| worker == consumer));
            let places: Vec<&str> = gone.map(|(place, _)| place.as_str()).collect();
            self.put_outside(room, &places).await?;
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Workers of a function that were heard of lately. What they have read may still be at work.
    async fn present_workers(&self, room: &Room) -> Result<HashSet<String>, StoreError> {
        let mut ask = Cmd::new();
        let since = self.shared.now().as_millis() - 30_000;
        ask.arg("ZRANGEBYSCORE").arg(&room.keys.workers).arg(format!("({since}")).arg("+inf");
        let workers = value::array("ZRANGEBYSCORE", self.shared.link.ask(&ask).await?)?;
        let names = workers.iter().filter_map(value::text);
        // Ours answer for what they hold by their leases; only old ones are believed on their word.
        Ok(names.filter_map(|name| name.strip_prefix("old:")).map(str::to_owned).collect())
    }

    /// Takes entries over and puts their calls where the next claim finds them; what was dealt with is acknowledged.
    async fn put_outside(&self, room: &Arc<Room>, places: &[&str]) -> Result<(), StoreError> {
        if places.is_empty() {
            return Ok(());
        }
        let mut claim = Cmd::new();
        claim.arg("XCLAIM").arg(&room.keys.stream).arg(&room.keys.group).arg("towpath").arg(ABANDONED_AFTER_MS);
        for place in places {
            claim.arg(*place);
        }
        let entries = entry::read_entries(&self.shared.link.ask(&claim).await?);
        tracing::warn!(function = %room.function, count = entries.len(), "calls that a worker took and never answered are delivered again");
        let nobody = ClaimCalls {
            worker: towpath_core::names::WorkerId::new("towpath").map_err(|error| StoreError::Corrupt(error.to_string()))?,
            functions: Vec::new(),
            max: 0,
            lease: Duration::ZERO,
            wait: Duration::ZERO,
        };
        self.take_read(room, &nobody, 0, entries).await?;
        self.brings_work(room).await;
        Ok(())
    }

    /// Calls that should wait in the stream and do not: an old peer has trimmed it, has acknowledged them without an answer, or has made
    /// the group anew behind them.
    async fn rescue_vanished(&self, room: &Arc<Room>) -> Result<(), StoreError> {
        let mut above = "-inf".to_owned();
        loop {
            let mut ask = Cmd::new();
            ask.arg("ZRANGEBYSCORE").arg(&room.keys.index).arg(&above).arg("+inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(PAGE);
            let listed = value::array("ZRANGEBYSCORE", self.shared.link.ask(&ask).await?)?;
            let ids = listed.chunks_exact(2).map(|pair| value::call_id(&pair[0])).collect::<Result<Vec<CallId>, StoreError>>()?;
            let Some(last) = listed.chunks_exact(2).last().and_then(|pair| value::text(&pair[1])) else { return Ok(()) };
            above = format!("({last}");
            let lives = self.lives(room, &ids).await?;
            let waiting = lives.into_iter().flatten().filter(|life| life.call.state == CallState::Queued && !life.entry.is_empty());
            self.rescue(room, waiting.collect()).await?;
            if ids.len() < PAGE {
                return Ok(());
            }
        }
    }

    async fn rescue(&self, room: &Arc<Room>, waiting: Vec<Life>) -> Result<(), StoreError> {
        let mut lost = Vec::new();
        for (life, deliverable) in self.are_deliverable(room, waiting).await? {
            if deliverable {
                continue;
            }
            match self.old_reply_of(&life.call.call_id).await? {
                Some(reply) => self.take_old_reply(Some(life.call.call_id.clone()), &reply).await?,
                None => lost.push(Move::outside(life)),
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

    /// Whether each call's entry is still ahead of the group, or pending with somebody.
    async fn are_deliverable(&self, room: &Room, waiting: Vec<Life>) -> Result<Vec<(Life, bool)>, StoreError> {
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
        let judge = |(life, pair): (Life, &[Value])| {
            let ahead = place(&life.entry) > read_up_to;
            let deliverable = some(&pair[0]) && (ahead || some(&pair[1]));
            (life, deliverable)
        };
        Ok(waiting.into_iter().zip(replies.chunks_exact(2)).map(judge).collect())
    }

    /// How far the group has read.
    async fn read_up_to(&self, room: &Room) -> Result<(u64, u64), StoreError> {
        let mut groups = Cmd::new();
        groups.arg("XINFO").arg("GROUPS").arg(&room.keys.stream);
        for group in value::array("XINFO GROUPS", self.shared.link.ask(&groups).await?)? {
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

/// Sweeps the functions that this process has to do with, now and then, as long as the store is open.
pub(crate) async fn sweep_for_ever(shared: Weak<Shared>) {
    let mut every = SWEEP_EVERY;
    loop {
        pause(every).await;
        let Some(shared) = shared.upgrade() else { return };
        // Processes that started together need not look together.
        every = SWEEP_EVERY + Duration::from_millis(u64::from(shared.caller.as_bytes()[0]) * 10);
        let store = RedisStore { shared };
        for room in store.rooms_in_use() {
            if let Err(error) = store.sweep(&room).await {
                tracing::debug!(function = %room.function, %error, "the stream was not swept; the next time will do");
            }
        }
    }
}

fn read_pending(pending: &Value) -> Option<(String, String)> {
    let Value::Array(parts) = pending else { return None };
    Some((value::text(parts.first()?)?.to_owned(), value::text(parts.get(1)?)?.to_owned()))
}

/// A place in a stream, in the order of the stream.
fn place(text: &str) -> (u64, u64) {
    let (ms, number) = text.split_once('-').unwrap_or((text, "0"));
    (ms.parse().unwrap_or_default(), number.parse().unwrap_or_default())
}
