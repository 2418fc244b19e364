//! What could not be delivered: list, show, replay, drop.

use std::num::NonZeroU32;
use std::time::Duration;

use towpath_core::batch::{BatcherId, DeadLetter, ReplayReply};
use towpath_core::inspect::{CursorPage, DeadLetterQuery};
use towpath_core::names::{BatchId, BatcherName};
use towpath_core::store::StoreError;

use super::BatchError;
use crate::Towpath;

/// So many are looked at in one question.
const PAGE: u32 = 200;

/// Which dead letters are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// Those of these ids.
    Ids(Vec<BatchId>),
    /// Those of this reason and key, wherever a page would begin and end.
    Matching(DeadLetterQuery),
    /// All.
    All,
}

/// What became of replays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replays {
    /// In flight again.
    pub replayed: Vec<BatchId>,
    /// Being delivered already.
    pub in_flight: Vec<BatchId>,
    /// No longer there.
    pub gone: Vec<BatchId>,
    /// There, with nothing that could be sent.
    pub not_replayable: Vec<BatchId>,
}

/// Dead letters of one batcher, or of all.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use towpath::Towpath;
/// use towpath::batches::{DeadLetterQuery, Select};
///
/// let towpath = Towpath::open("memory:").await?;
/// let letters = towpath.dead_letters().batcher("input_contour");
/// let page = letters.list(&DeadLetterQuery { limit: 50, ..DeadLetterQuery::default() }).await?;
/// assert!(page.items.is_empty());
/// assert_eq!(letters.drop(&Select::All, "a test").await?, 0);
/// # towpath.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DeadLetters {
    towpath: Towpath,
    batcher: Option<String>,
}

impl DeadLetters {
    pub(super) fn new(towpath: Towpath) -> Self {
        Self { towpath, batcher: None }
    }

    /// Only those of this batcher.
    #[must_use]
    pub fn batcher(mut self, name: impl Into<String>) -> Self {
        self.batcher = Some(name.into());
        self
    }

    /// A page of them, batcher by batcher.
    pub async fn list(&self, query: &DeadLetterQuery) -> Result<CursorPage<(BatcherName, DeadLetter)>, BatchError> {
        let mut page = CursorPage { items: Vec::new(), next: None };
        let (wanted, after) = place(query.after.as_ref().map(|cursor| cursor.0.as_str()));
        let mut after = after.map(towpath_core::inspect::Cursor);
        for (name, id) in self.batchers().await?.into_iter().skip_while(|(name, _)| wanted.is_some_and(|wanted| name.as_str() < wanted)) {
            let room = query.limit.saturating_sub(u32::try_from(page.items.len()).unwrap_or(u32::MAX));
            if room == 0 {
                page.next = Some(cursor(&name, None));
                break;
            }
            let own = after.take().filter(|_| wanted == Some(name.as_str()));
            let own_query = DeadLetterQuery { after: own, limit: room, ..query.clone() };
            let found = match self.towpath.batch_store()?.dead_letters(&id, &own_query).await {
                // One batcher's trouble hides no other. Asked for alone, it is told.
                Err(error @ StoreError::Corrupt(_)) if self.batcher.is_none() => {
                    tracing::warn!(batcher = %name, %error, "dead letters of a batcher cannot be listed");
                    continue;
                }
                found => found?,
            };
            page.items.extend(found.items.into_iter().map(|letter| (name.clone(), letter)));
            if let Some(next) = found.next {
                page.next = Some(cursor(&name, Some(&next.0)));
                break;
            }
        }
        Ok(page)
    }

    /// One of them, and whose it is.
    pub async fn show(&self, id: &BatchId) -> Result<Option<(BatcherName, DeadLetter)>, BatchError> {
        for (name, batcher) in self.batchers().await? {
            match self.towpath.batch_store()?.dead_letter(&batcher, id).await {
                Err(StoreError::Corrupt(_)) if self.batcher.is_none() => {} // a list has told of it
                letter => {
                    if let Some(letter) = letter? {
                        return Ok(Some((name, letter)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Puts them back in flight under the same batch ids, with attempts counted anew; with a rate, so many per second.
    pub async fn replay(&self, select: &Select, per_second: Option<NonZeroU32>) -> Result<Replays, BatchError> {
        let mut replays = Replays::default();
        let clock = self.towpath.clock();
        let pace = per_second.map(|rate| Duration::from_secs(1) / rate.get());
        let mut next_at = clock.now();
        for (batcher, id) in self.meant(select).await? {
            if let Some(pace) = pace {
                clock.sleep_until(next_at).await;
                next_at = next_at.max(clock.now()) + pace;
            }
            let Some(batcher) = batcher else {
                replays.gone.push(id);
                continue;
            };
            let replies = self.towpath.batch_store()?.dead_letter_replay(&batcher, vec![id.clone()]).await?;
            match replies.first() {
                Some(ReplayReply::Replayed) => replays.replayed.push(id),
                Some(ReplayReply::InFlight) => replays.in_flight.push(id),
                Some(ReplayReply::NotReplayable) => replays.not_replayable.push(id),
                Some(ReplayReply::Gone) | None => replays.gone.push(id),
            }
        }
        Ok(replays)
    }

    /// Drops them, and says how many there were. `who` is kept on record.
    pub async fn drop(&self, select: &Select, who: &str) -> Result<u64, BatchError> {
        let mut dropped = 0;
        if *select == Select::All {
            for (_, batcher) in self.batchers().await? {
                dropped += self.towpath.batch_store()?.dead_letter_clear(&batcher, who).await?;
            }
            return Ok(dropped);
        }
        for (batcher, id) in self.meant(select).await? {
            let Some(batcher) = batcher else { continue };
            let gone = self.towpath.batch_store()?.dead_letter_drop(&batcher, vec![id], who).await?;
            dropped += gone.iter().filter(|was_there| **was_there).count() as u64;
        }
        Ok(dropped)
    }

    /// All that are meant, before anything moves, so that moving does not shift the pages.
    async fn meant(&self, select: &Select) -> Result<Vec<(Option<BatcherId>, BatchId)>, BatchError> {
        let query = match select {
            Select::Ids(ids) => return self.owned(ids).await,
            Select::Matching(query) => query.clone(),
            Select::All => DeadLetterQuery::default(),
        };
        let mut meant = Vec::new();
        for (_, batcher) in self.batchers().await? {
            let mut query = DeadLetterQuery { after: None, limit: PAGE, ..query.clone() };
            loop {
                let page = self.towpath.batch_store()?.dead_letters(&batcher, &query).await?;
                meant.extend(page.items.into_iter().map(|letter| (Some(batcher.clone()), letter.id)));
                match page.next {
                    Some(next) => query.after = Some(next),
                    None => break,
                }
            }
        }
        Ok(meant)
    }

    /// Whose each of them is: an id alone does not say. One that is in flight again is nobody's dead letter any more, so a lone batcher is
    /// asked whatever it has.
    async fn owned(&self, ids: &[BatchId]) -> Result<Vec<(Option<BatcherId>, BatchId)>, BatchError> {
        let batchers = self.batchers().await?;
        let mut owned = Vec::new();
        for id in ids {
            let mut owner = match batchers.as_slice() {
                [(_, only)] => Some(only.clone()),
                _ => None,
            };
            for (_, batcher) in batchers.iter().filter(|_| batchers.len() > 1) {
                if self.towpath.batch_store()?.dead_letter(batcher, id).await?.is_some() {
                    owner = Some(batcher.clone());
                    break;
                }
            }
            owned.push((owner, id.clone()));
        }
        Ok(owned)
    }

    async fn batchers(&self) -> Result<Vec<(BatcherName, BatcherId)>, BatchError> {
        let known = self.towpath.batchers();
        let found = match &self.batcher {
            None => known.list().await?,
            Some(name) => {
                let batcher = BatcherName::new(name)?;
                vec![known.find(&batcher).await?.ok_or(BatchError::UnknownBatcher { batcher })?]
            }
        };
        Ok(found.into_iter().map(|one| (one.name.clone(), one.settings.batcher_id(&one.name))).collect())
    }
}

/// A place in the list of all batchers: the batcher's name, and its own cursor behind a slash, which no name has.
fn cursor(name: &BatcherName, own: Option<&str>) -> towpath_core::inspect::Cursor {
    towpath_core::inspect::Cursor(format!("{name}/{}", own.unwrap_or_default()))
}

fn place(cursor: Option<&str>) -> (Option<&str>, Option<String>) {
    match cursor.and_then(|cursor| cursor.split_once('/')) {
        Some((name, own)) => (Some(name), Some(own.to_owned()).filter(|own| !own.is_empty())),
        None => (None, None),
    }
}
