//! Waiting for the end of a run, and for what has come for runs that an owner executes.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_core::names::WorkerId;
use towpath_core::run::RunId;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::keys;
use super::places::lock;
use crate::listening::{ChannelEar, Spoken};
use crate::pause::pause;
use crate::store::RedisStore;

/// A run that a caller waits for is read again after this: a notification may be lost.
const READ_AGAIN: Duration = Duration::from_secs(2);
/// An owner that asks for the first time waits this long for the subscription.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);
/// What comes for an owner that has not asked for this long is not kept.
const OWNER_KEPT_FOR: Duration = Duration::from_secs(300);

/// Owners that ask what has come for their runs.
#[derive(Default)]
pub(super) struct Owners(Mutex<HashMap<WorkerId, Owner>>);

struct Owner {
    ear: Arc<tokio::sync::Mutex<ChannelEar>>,
    asked_at: Timestamp,
}

impl RedisStore {
    /// Returns when the run has closed or is gone, or after this time.
    pub(super) async fn wait_for_close(&self, run_id: &RunId, wait: Duration) -> Result<(), StoreError> {
        let (options, until) = (&self.shared.options, self.shared.now() + wait);
        // Listening begins before the look: an end between the two is heard.
        let mut ear = self.shared.news.listening().listen(keys::closed(&options.prefix, options.database, run_id));
        loop {
            let is_open = self.load_run(run_id).await?.is_some_and(|loaded| !loaded.run.state.is_closed());
            if !is_open || self.shared.now() >= until {
                return Ok(());
            }
            tokio::select! {
                _spoken = ear.next() => {}
                () = self.shared.clock.sleep_until(until) => {}
                () = pause(READ_AGAIN) => {}
            }
        }
    }

    /// Runs of this owner for which something has come since it asked last.
    pub(super) async fn wait_for_notified(&self, owner: &WorkerId, wait: Duration) -> Vec<RunId> {
        let until = self.shared.now() + wait;
        let (ear, is_new) = self.ear_of_owner(owner);
        if is_new {
            // What comes after the first answer is heard.
            tokio::select! {
                () = self.shared.news.listening().settled() => {}
                () = pause(SETTLED_WITHIN) => {}
            }
        }
        let mut ear = ear.lock().await;
        let mut runs = BTreeSet::new();
        loop {
            tokio::select! {
                biased;
                spoken = ear.next() => if let Spoken::Message(message) = spoken { runs.extend(RunId::parse(&message).ok()) },
                () = std::future::ready(()), if !runs.is_empty() => break,
                () = self.shared.clock.sleep_until(until) => break,
            }
        }
        runs.into_iter().collect()
    }

    /// The ear of an owner, and whether it is new.
    fn ear_of_owner(&self, owner: &WorkerId) -> (Arc<tokio::sync::Mutex<ChannelEar>>, bool) {
        let (options, now) = (&self.shared.options, self.shared.now());
        let mut owners = lock(&self.shared.runs.owners.0);
        owners.retain(|other, kept| other == owner || now < kept.asked_at + OWNER_KEPT_FOR);
        let listen = || {
            let ear = self.shared.news.listening().listen(keys::notified(&options.prefix, options.database, owner));
            Owner { ear: Arc::new(tokio::sync::Mutex::new(ear)), asked_at: now }
        };
        let is_new = !owners.contains_key(owner);
        let kept = owners.entry(owner.clone()).or_insert_with(listen);
        kept.asked_at = now;
        (Arc::clone(&kept.ear), is_new)
    }
}
