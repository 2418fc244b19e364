//! The lists that old producers push to: elements are taken aside, and removed from there once they were dealt with.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Cmd;
use towpath_core::store::{BatchSource, DrainReply, Drained, StoreError};
use towpath_core::time::Timestamp;

use super::keys::SourceKeys;
use super::said::Said;
use super::{KEPT_BY_HAND_MS, length_ms, scripts};
use crate::link::{Exclusive, Script};
use crate::script::Args;
use crate::store::RedisStore;
use crate::{news, value};

/// A wait that is shorter would be none.
const WAIT_LEAST: Duration = Duration::from_millis(10);

/// Connections on which somebody has waited for an element, by list, until the next wait.
#[derive(Default)]
pub(super) struct Sources {
    idle: Mutex<HashMap<String, Exclusive>>,
}

impl Sources {
    fn take(&self, list: &str) -> Option<Exclusive> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).remove(list)
    }

    fn put(&self, list: &str, connection: Exclusive) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).insert(list.to_owned(), connection);
    }
}

#[async_trait]
impl BatchSource for RedisStore {
    async fn drain(&self, list: &str, max: usize, wait: Duration) -> Result<Drained, StoreError> {
        let drained = self.take_aside(list, max).await?;
        if !drained.elements.is_empty() || wait.is_zero() || !self.wait_for_element(list, wait).await? {
            return Ok(drained);
        }
        self.take_aside(list, max).await
    }

    async fn drained(&self, list: &str, from: u64, count: usize) -> Result<DrainReply, StoreError> {
        if count == 0 {
            return Ok(DrainReply::Removed { next: from });
        }
        let keys = SourceKeys::new(self.shared.keys.prefix(), list);
        let mut args = Args::with_capacity(2);
        args.number(from);
        args.number(count);
        let said = self.run_source(&scripts::DRAINED, &[&keys.aside, &keys.counter], &args).await?;
        match said.outcome() {
            "removed" => Ok(DrainReply::Removed { next: said.count(1)? }),
            "moved" => Ok(DrainReply::Moved { at: said.count(1)? }),
            _ => Err(said.strange()),
        }
    }

    async fn waiting(&self, list: &str) -> Result<u64, StoreError> {
        let keys = SourceKeys::new(self.shared.keys.prefix(), list);
        let lists = [list, &keys.aside];
        let ask = lists.map(|list| {
            let mut ask = Cmd::new();
            ask.arg("LLEN").arg(list);
            ask
        });
        let replies = self.shared.link.ask_all(&ask).await?.into_iter();
        let counted: Result<u64, StoreError> =
            replies.map(|reply| Ok(value::number(&value::checked(reply)?).and_then(|count| u64::try_from(count).ok()).unwrap_or(0))).sum();
        self.or_corrupt(counted, &lists).await
    }

    async fn lead(&self, list: &str, drainer: &str, lease: Duration, until: Timestamp) -> Result<bool, StoreError> {
        // Before the question: whoever gives the place up after it is heard.
        let mut news = self.shared.news.drainers();
        loop {
            news.mark_unchanged();
            let Some(lease_end) = self.ask_to_lead(list, drainer, Some(lease)).await? else { return Ok(true) };
            if self.shared.now() >= until {
                return Ok(false);
            }
            tokio::select! {
                biased;
                changed = news.changed() => if changed.is_err() { return Ok(false) },
                () = self.shared.clock.sleep_until(lease_end.min(until)) => {}
            }
        }
    }

    async fn resign(&self, list: &str, drainer: &str) -> Result<(), StoreError> {
        if self.ask_to_lead(list, drainer, None).await?.is_none() {
            self.shared.news.publish(news::DRAINERS).await;
        }
        Ok(())
    }
}

impl RedisStore {
    /// Asks for a drainer's place, or gives it up without a lease. When another has it: the end of that one's lease.
    async fn ask_to_lead(&self, list: &str, drainer: &str, lease: Option<Duration>) -> Result<Option<Timestamp>, StoreError> {
        let keys = SourceKeys::new(self.shared.keys.prefix(), list);
        let mut args = Args::with_capacity(4);
        args.number(self.shared.now().as_millis());
        args.push(drainer);
        args.number(lease.map_or(0, length_ms));
        args.push(if self.shared.lives_by_the_server { "" } else { KEPT_BY_HAND_MS });
        // Nobody is promised that it is kept.
        let reply = self.shared.link.run_args(&scripts::LEAD, &[&keys.drainer], &args).await;
        let said = Said::new(self.or_corrupt(reply, &[&keys.drainer]).await?)?;
        match said.outcome() {
            "yours" | "free" => Ok(None),
            "taken" => Ok(Some(said.instant(1)?)),
            _ => Err(said.strange()),
        }
    }

    async fn take_aside(&self, list: &str, max: usize) -> Result<Drained, StoreError> {
        let keys = SourceKeys::new(self.shared.keys.prefix(), list);
        let mut args = Args::with_capacity(1);
        args.number(max);
        let mut said = self.run_source(&scripts::DRAIN, &[list, &keys.aside, &keys.counter], &args).await?;
        let from = said.count(0)?;
        let elements = said.messages(1)?.into_iter().map(|element| element.to_bytes()).collect::<Vec<Bytes>>();
        Ok(Drained { from, elements })
    }

    /// Waits until an element is there, and takes it aside. Whoever stops waiting half-way loses nothing: what was taken is aside.
    async fn wait_for_element(&self, list: &str, wait: Duration) -> Result<bool, StoreError> {
        let keys = SourceKeys::new(self.shared.keys.prefix(), list);
        let mut connection = match self.shared.batches.sources.take(list) {
            Some(connection) => connection,
            None => self.shared.link.exclusive(list).await?,
        };
        let mut block = Cmd::new();
        block.arg("BLMOVE").arg(list).arg(&keys.aside).arg("LEFT").arg("RIGHT").arg(wait.max(WAIT_LEAST).as_secs_f64());
        let moved = self.or_corrupt(connection.ask_blocking(&block, wait).await, &[list, &keys.aside]).await?;
        self.shared.batches.sources.put(list, connection);
        Ok(moved.bytes().is_some())
    }

    async fn run_source(&self, script: &Script, keys: &[&str], args: &Args) -> Result<Said, StoreError> {
        // What was dealt with must not come again under another number.
        let reply = self.shared.run_durably(script, keys, args).await;
        Said::new(self.or_corrupt(reply, keys).await?.0)
    }
}
