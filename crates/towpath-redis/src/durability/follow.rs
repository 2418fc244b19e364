//! Following what the server keeps: settings change, and a failover leads to another server.

use std::sync::atomic::Ordering;
use std::sync::{PoisonError, Weak};
use std::time::Duration;

use redis::Cmd;
use tokio::sync::watch;
use towpath_core::store::{StoreError, StoreTrouble};

use super::{Guarantee, Keeping, Refusal, has_waitaof};
use crate::about::{self, About};
use crate::link::Link;
use crate::pause::pause;
use crate::store::Shared;

/// How often the server is asked what it keeps. A change is seen within 5 s, the answer included.
const LOOK_EVERY: Duration = Duration::from_secs(4);

impl Guarantee {
    /// Refuses new work while the server gives less than the operator asked for.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        match self.keeping().refuses_new_work(self.wanted) {
            None => Ok(()),
            Some(refusal) => Err(StoreError::Unavailable(StoreTrouble::BelowMinimum(refusal.to_string()))),
        }
    }

    /// Why new work is refused, for people; `None` when it is taken.
    pub(crate) fn problem(&self) -> Option<String> {
        let refusal = self.keeping().refuses_new_work(self.wanted)?;
        Some(format!("new work is refused: {refusal}"))
    }

    /// Asks everything, at a new connection: it may be another server, with other rights.
    async fn look_at_new_server(&self, link: &Link) -> Result<(), StoreError> {
        let about = About::ask(link).await?;
        let has_waitaof = has_waitaof(link, self.wanted).await?;
        self.reads_settings.store(about.config.is_some(), Ordering::Relaxed);
        self.note(Keeping::of(&about, has_waitaof));
        Ok(())
    }

    /// Asks only what decides, with one command, or two where replicas confirm.
    async fn look_again(&self, link: &Link) -> Result<(), StoreError> {
        let before = self.keeping();
        let reads_settings = self.reads_settings.load(Ordering::Relaxed);
        let about = ask_briefly(link, reads_settings, self.asks_replicas()).await?;
        // The user has lost the right to read settings, or to look at all: the next looks ask what is left.
        self.reads_settings.store(about.config.is_some(), Ordering::Relaxed);
        let now = Keeping::of(&about, before.has_waitaof);
        self.note(Keeping { replicas: now.replicas.or(before.replicas), ..now });
        Ok(())
    }

    /// Takes over what was seen. A change is logged once.
    fn note(&self, now: Keeping) {
        let before = std::mem::replace(&mut *self.keeping.write().unwrap_or_else(PoisonError::into_inner), now);
        let refusals = (before.refuses_new_work(self.wanted), now.refuses_new_work(self.wanted));
        match said(before, now, refusals) {
            Some(Said::Refused(text)) => tracing::error!("{text}"),
            Some(Said::Changed(text)) => tracing::warn!("{text}"),
            None => {}
        }
    }
}

/// What the log says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Refused(String),
    Changed(String),
}

fn said(before: Keeping, now: Keeping, refusals: (Option<Refusal>, Option<Refusal>)) -> Option<Said> {
    let (was, is) = (before.level, now.level);
    match refusals {
        (None, Some(refusal)) => Some(Said::Refused(format!("new work is refused, and accepted work goes on: {refusal}"))),
        (Some(_), None) => Some(Said::Changed(format!("new work is taken again: the Redis server gives durability '{is}'"))),
        _ if was != is => Some(Said::Changed(format!("the Redis server gives durability '{is}' now, it was '{was}'"))),
        _ => None,
    }
}

/// One command for all settings that decide; `INFO` only for what they do not tell.
async fn ask_briefly(link: &Link, reads_settings: bool, asks_replicas: bool) -> Result<About, StoreError> {
    let config = match reads_settings {
        true => about::settings_like(link, "*append*").await?,
        false => None,
    };
    let section = match (config.is_some(), asks_replicas) {
        (true, false) => return Ok(About { info: None, config }),
        (true, true) => "replication",
        (false, false) => "persistence",
        (false, true) => "default",
    };
    let info = about::infos(link, Cmd::new().arg("INFO").arg(section)).await?;
    Ok(About { info, config })
}

/// Looks every few seconds and after every new connection, as long as the store is open.
pub(crate) async fn follow(shared: Weak<Shared>, mut lives: watch::Receiver<u64>) {
    loop {
        let is_new = tokio::select! {
            changed = lives.changed() => match changed {
                Ok(()) => true,
                Err(_) => return,
            },
            () = pause(LOOK_EVERY) => false,
        };
        let Some(shared) = shared.upgrade() else { return };
        let looked = match is_new {
            true => shared.guarantee.look_at_new_server(&shared.link).await,
            false => shared.guarantee.look_again(&shared.link).await,
        };
        if let Err(error) = looked {
            tracing::debug!(%error, "what the Redis server keeps is not known; asking again");
            if is_new {
                lives.mark_changed();
                drop(shared);
                pause(LOOK_EVERY / 4).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_core::store::Durability;

    use super::super::{Source, Wanted};
    use super::*;

    #[test]
    fn a_change_is_said_once_and_by_what_it_means_for_new_work() {
        use Durability::{Always, Everysec, Memory};
        let at = |level| Keeping { level, source: Source::Read, replicas: Some(0), has_waitaof: false };
        let strict = Wanted { level: None, replicas: 1, must_keep: true };
        let between =
            |before, now, wanted| said(at(before), at(now), (at(before).refuses_new_work(wanted), at(now).refuses_new_work(wanted)));
        assert_eq!(between(Everysec, Everysec, strict), None);
        assert_eq!(between(Memory, Memory, strict), None, "still refused, and said before");
        let refused = between(Everysec, Memory, strict);
        assert!(
            matches!(&refused, Some(Said::Refused(text)) if text.contains("appendonly yes") && text.contains("--durability memory")),
            "{refused:?}"
        );
        assert!(matches!(between(Memory, Everysec, strict), Some(Said::Changed(text)) if text.contains("taken again")));
        assert!(matches!(between(Always, Everysec, strict), Some(Said::Changed(text)) if text.contains("it was 'always'")));
        let lenient = Wanted { must_keep: false, ..strict };
        assert!(matches!(between(Everysec, Memory, lenient), Some(Said::Changed(text)) if text.contains("'memory' now")));
    }
}
