//! A runner's moves: commits, and how a run leaves its worker.

use std::sync::Arc;

use serde_json::json;
use towpath_core::payload::Payload;
use towpath_core::run::{BlockCause, Commit, Committed, Entry, EntryKind, RunEnd, Then};
use towpath_core::store::{RunCommitted, StoreError};

use super::batch::Batch;
use super::body::{Begin, Done, Out, entry};
use super::context::CONTINUED;
use super::draw;
use super::execution::{Reveal, Sight, Trouble};
use super::runner::{Left, Runner};
use crate::error::HandlerError;

/// The key under which a blocked run says why.
const BLOCKED: &str = "$blocked";

impl Runner {
    /// Commits, and shows the results to the code. Says how the run left this worker, if it did.
    pub(super) async fn commit(&mut self, mut batch: Batch, then: Then) -> Result<Option<Left>, StoreError> {
        let stays = matches!(then, Then::Stay);
        self.idle_since = None;
        match self.send(&mut batch, then).await? {
            RunCommitted::Committed { committed, facts } => {
                if !stays && !committed.has_facts {
                    return Ok(Some(Left::Gone));
                }
                self.inbox.add(facts);
                self.note_committed(&batch, &committed);
                if batch.has_results() {
                    self.alone = None;
                }
                self.show(batch.entries, &committed);
                if committed.cancel_requested && self.has_unseen_cancel() {
                    self.read_facts().await?;
                }
                Ok(None)
            }
            RunCommitted::HistoryFull => self.block(Batch::default(), history_full()).await.map(Some),
            RunCommitted::WaitSetTooLarge => {
                // What has not begun does not begin: the commit that is refused is lost, too.
                self.progress.execution.lock().fresh.clear();
                let message = "the run waits for more than it may at once";
                self.close(Err(HandlerError::fatal("wait_set_too_large", message))).await.map(Some)
            }
            RunCommitted::NothingToWaitFor => self.look_again(batch).await,
            RunCommitted::Lost => {
                self.attempts.abort_all();
                Ok(Some(Left::Gone))
            }
            RunCommitted::Stale { .. } => Ok(Some(Left::Stale)),
        }
    }

    /// The store knows of nothing that would wake the run. Its last timer was fired a moment ago, or its code waits for something else.
    async fn look_again(&mut self, batch: Batch) -> Result<Option<Left>, StoreError> {
        let seen = self.inbox.seen();
        self.read_facts().await?;
        if self.inbox.seen() == seen {
            let trouble = self.progress.foreign("nothing that it waits for would wake it");
            return self.block(Batch::default(), trouble).await.map(Some);
        }
        // What the refused commit held goes with the next one.
        self.disarm.extend(batch.disarmed);
        batch.consumed.into_iter().for_each(|number| self.inbox.discard(number));
        self.progress.execution.lock().published.splice(0..0, batch.published);
        Ok(None)
    }

    fn has_unseen_cancel(&self) -> bool {
        self.progress.execution.lock().cancelled.is_none() && !self.inbox.has_cancel()
    }

    fn note_committed(&mut self, batch: &Batch, committed: &Committed) {
        self.host.tell(&self.run_id, self.epoch, |told| told.is_paused = committed.paused);
        let mut state = self.progress.execution.lock();
        batch.note_committed(&mut state);
        if state.fresh.is_empty() {
            self.lazy_since = None;
        }
        drop(state);
        for step in &batch.disarmed {
            self.armed.remove(step);
        }
        self.armed.extend(batch.armed.iter().map(|(step, _)| step.clone()));
        self.note_due();
    }

    /// Shows the results of a commit to the code, one after the other.
    fn show(&mut self, entries: Vec<Entry>, committed: &Committed) {
        self.entries = committed.first_entry;
        if !entries.is_empty() {
            // As the store writes it: time in a journal does not go back.
            self.last_at = self.last_at.max(committed.now);
        }
        for Entry { kind, step, body } in entries {
            self.entries += 1;
            self.bytes += body.len() as u64;
            let sight = Sight { now: self.last_at, entries: self.entries, bytes: self.bytes };
            if matches!(kind, EntryKind::Done | EntryKind::Cancel) && !self.progress.is_over() {
                self.progress.show(Reveal { kind, step, body, sight }, false);
            }
        }
    }

    /// Sends a commit until the store answers. One whose reply was lost is sent again as it was.
    async fn send(&mut self, batch: &mut Batch, then: Then) -> Result<RunCommitted, StoreError> {
        batch.disarm_given(&self.armed);
        batch.disarmed.append(&mut self.disarm);
        batch.consumed.append(&mut self.inbox.take_unneeded());
        batch.published.append(&mut self.progress.execution.lock().published);
        let commit = Commit {
            owner: self.host.worker_id.clone(),
            epoch: self.epoch,
            revision: self.revision,
            digest: self.host.next_digest(),
            entries: batch.entries.clone(),
            consumed: batch.consumed.clone(),
            seen: self.inbox.seen(),
            armed: batch.armed.clone(),
            disarmed: batch.disarmed.clone(),
            children: std::mem::take(&mut batch.children),
            posts: std::mem::take(&mut batch.posts),
            published: batch.published.clone(),
            then,
        };
        let reply = self.host.patiently("commit a run", || self.host.store.commit_run(&self.run_id, commit.clone())).await?;
        if let RunCommitted::Committed { committed, .. } = &reply {
            self.revision = committed.revision;
        }
        Ok(reply)
    }

    /// The code has returned: the run closes, or continues as new.
    pub(super) async fn close(&mut self, result: Result<Payload, HandlerError>) -> Result<Left, StoreError> {
        if let Some(left) = self.commit_all_but_last().await? {
            return Ok(left);
        }
        let execution = Arc::clone(&self.progress.execution);
        let mut batch = Batch::default();
        let continued = {
            let mut state = execution.lock();
            batch.take_commands(&execution, &mut state);
            state.continued.take()
        };
        batch.armed.clear();
        let then = match (result, continued) {
            (Err(HandlerError::Final { failure }), Some(input)) if failure.code == CONTINUED => {
                let (seed, generation) = (&execution.identity.seed, execution.identity.generation + 1);
                let begin = Begin { seed: draw::next_seed(seed, generation), v: Some(input), trace: None };
                Then::Continue(entry(EntryKind::Begin, None, &begin))
            }
            (result, _) => {
                let (end, done) = self.end_of(result);
                batch.entries.push(entry(EntryKind::Close, None, &done));
                Then::Close(end)
            }
        };
        self.leave(batch, then).await
    }

    /// Commits what the code has issued until the rest fits into the run's last commit. Says how the run left this worker, if it did.
    async fn commit_all_but_last(&mut self) -> Result<Option<Left>, StoreError> {
        let execution = Arc::clone(&self.progress.execution);
        loop {
            let mut batch = Batch::default();
            let are_many = batch.take_many_commands(&execution, &mut execution.lock());
            if !are_many {
                return Ok(None);
            }
            // No timer is needed any more.
            batch.armed.clear();
            match self.send(&mut batch, Then::Stay).await? {
                RunCommitted::Committed { committed, .. } => self.note_committed(&batch, &committed),
                RunCommitted::Stale { .. } => return Ok(Some(Left::Stale)),
                RunCommitted::Lost => return Ok(Some(Left::Gone)),
                _full => return self.block(Batch::default(), history_full()).await.map(Some),
            }
        }
    }

    fn end_of(&self, result: Result<Payload, HandlerError>) -> (RunEnd, Done) {
        match result {
            Ok(value) => (RunEnd::Completed, Done::ok(value)),
            Err(HandlerError::Cancelled) => {
                let reason = self.progress.execution.lock().cancelled.as_ref().map(ToString::to_string);
                (RunEnd::Cancelled, Done { reason, ..Done::bare(Out::Cancelled) })
            }
            Err(HandlerError::Retryable { failure, .. } | HandlerError::Final { failure }) => (RunEnd::Failed, Done::err(&failure)),
        }
    }

    /// The run needs a person or another build.
    pub(super) async fn block(&mut self, mut batch: Batch, trouble: Trouble) -> Result<Left, StoreError> {
        tracing::warn!(run = %self.run_id, cause = %trouble.cause, "a run is blocked: {}", trouble.message);
        // What the code did on its wrong way is not published.
        self.progress.execution.lock().published.clear();
        let (key, value, then) = self.host.blocked(&trouble);
        batch.published = vec![(key, value)];
        self.leave(batch, then).await
    }

    async fn leave(&mut self, mut batch: Batch, then: Then) -> Result<Left, StoreError> {
        Ok(match self.send(&mut batch, then).await? {
            RunCommitted::Stale { .. } => Left::Stale,
            RunCommitted::Committed { .. } | RunCommitted::Lost => Left::Gone,
            refused => {
                tracing::error!(run = %self.run_id, ?refused, "the store does not take the end of a run; please report this");
                Left::Gone
            }
        })
    }
}

fn history_full() -> Trouble {
    Trouble::new(BlockCause::HistoryFull, "the journal is full: use continue_as_new before it is")
}

impl super::host::Host {
    /// How a run is blocked, and what it publishes about that.
    pub(super) fn blocked(&self, trouble: &Trouble) -> (Arc<str>, Payload, Then) {
        let mut value = json!({ "cause": trouble.cause.as_str(), "message": trouble.message, "build": self.build.as_str() });
        for (name, list) in [("expected", &trouble.expected), ("found", &trouble.found)].into_iter().filter(|(_, list)| !list.is_empty()) {
            value[name] = json!(list);
        }
        let build = trouble.cause.is_of_the_build().then(|| self.build.clone());
        (Arc::from(BLOCKED), Payload::from_json(value.to_string()), Then::Block { cause: trouble.cause, build })
    }
}
