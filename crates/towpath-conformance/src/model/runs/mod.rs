//! Runs of workflows.
//!
//! - Each move is [`run::step`](towpath_core::run::step) on the header; header and rows are written within the transition.
//! - A claim looks at runs that were begun, place by place in the order in which they are named, and then at new ones; every eighth claim looks
//!   at new ones first. In each queue of a place, in the order in which runs came into it.
//! - A start is judged by its id first and then by its reference. The input decides whether it is the same start.
//! - A post that its run refuses for good (there is no such run, or it has closed) has been sent. One to a full inbox waits, and with it all
//!   posts to that run.

mod lists;
mod records;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use towpath_core::lock::Fence;
use towpath_core::names::{BuildId, Reference, WorkerId, WorkflowName};
use towpath_core::payload::Payload;
use towpath_core::run::{
    ChildEnd, ChildStart, Commit, Fact, FactKind, Post, RunCommand, RunId, RunPlace, RunQueue, RunReply, RunTimer, Standing,
    TERMINATED_AFTER,
};
use towpath_core::store::{
    ClaimRuns, ClaimedRun, Durability, EVENT_KNOWN_FOR, EventSent, FiredRuns, JournalEntry, NewEvent, OnConflict, POST_KEPT_FOR, Reuse,
    RunCommitted, RunFilter, RunPage, RunPageRequest, RunPlaceView, RunRenewal, RunRequest, RunRequested, RunStore, RunView, StartRun,
    Started, StoreError, TakeOverRuns, TakenOver, end_without_code, event_of_start, post_again_after,
};
use towpath_core::time::Timestamp;

use super::{ModelStore, State};
pub(super) use records::RunRecords;
use records::{RunRecord, StoredPost};

/// One claim of this number looks at new runs first.
const NEW_FIRST_EVERY: u64 = 8;

#[async_trait]
impl RunStore for ModelStore {
    async fn start_run(&self, start: StartRun) -> Result<Started, StoreError> {
        Ok(self.transition(|state, now| state.records.runs.start(start, now)))
    }

    async fn claim_runs(&self, want: ClaimRuns) -> Result<Vec<ClaimedRun>, StoreError> {
        let until = Some(self.shared.clock.now() + want.wait);
        let claim = |state: &mut State, now| {
            let claimed = state.records.runs.claim(&want, now);
            (!claimed.is_empty()).then_some(claimed)
        };
        Ok(self.look_until(until, claim).await.unwrap_or_default())
    }

    async fn take_over_runs(&self, want: TakeOverRuns) -> Result<TakenOver, StoreError> {
        Ok(self.transition(|state, now| state.records.runs.take_over(&want, now)))
    }

    async fn renew_runs(&self, owner: &WorkerId, claims: Vec<(RunId, Fence)>) -> Result<Vec<RunRenewal>, StoreError> {
        let renew = |state: &mut State, now| {
            let one = |(run_id, epoch): (RunId, Fence)| {
                let renew = RunCommand::Renew { owner: owner.clone(), epoch };
                match state.records.runs.put(&run_id, renew, None, now) {
                    Some(RunReply::Held { until, facts, cancel_requested, paused }) => {
                        RunRenewal::Held { until, facts, cancel_requested, paused }
                    }
                    _lost => RunRenewal::Lost,
                }
            };
            claims.into_iter().map(one).collect()
        };
        Ok(self.transition(renew))
    }

    async fn commit_run(&self, run_id: &RunId, commit: Commit) -> Result<RunCommitted, StoreError> {
        Ok(self.transition(|state, now| state.records.runs.commit(run_id, commit, now)))
    }

    async fn send_event(&self, run_id: &RunId, event: NewEvent) -> Result<EventSent, StoreError> {
        Ok(self.transition(|state, now| state.records.runs.send(run_id, event, now)))
    }

    async fn request_run(&self, run_id: &RunId, request: RunRequest) -> Result<RunRequested, StoreError> {
        Ok(self.transition(|state, now| state.records.runs.request(run_id, request, now)))
    }

    async fn register_build(&self, build: &BuildId, places: &[RunPlace]) -> Result<u64, StoreError> {
        let register = |state: &mut State, now| {
            let runs = &mut state.records.runs;
            let served = runs.runs.values().filter(|record| places.contains(&record.run.place));
            let ids: Vec<RunId> = served.map(|record| record.run.run_id.clone()).collect();
            let mut unblocked = 0;
            for run_id in ids {
                let reply = runs.put(&run_id, RunCommand::BuildRegistered(build.clone()), None, now);
                unblocked += u64::from(matches!(reply, Some(RunReply::Done(_))));
            }
            unblocked
        };
        Ok(self.transition(register))
    }

    async fn send_posts(&self, limit: u32) -> Result<u64, StoreError> {
        Ok(self.transition(|state, now| state.records.runs.send_posts(limit as usize, now)))
    }

    async fn fire_runs(&self, limit: u32) -> Result<FiredRuns, StoreError> {
        Ok(self.transition(|state, now| state.records.runs.fire(limit as usize, now)))
    }

    async fn run(&self, run_id: &RunId) -> Result<Option<RunView>, StoreError> {
        let view = |record: &RunRecord| RunView { run: record.run.clone(), reference: record.reference.clone(), outcome: record.outcome() };
        Ok(self.look(|state, _| state.records.runs.runs.get(run_id).map(view)))
    }

    async fn journal(&self, run_id: &RunId, from: u64, bytes_max: usize) -> Result<Vec<JournalEntry>, StoreError> {
        let page = |record: &RunRecord| {
            let mut left = bytes_max;
            let fits = |entry: &&JournalEntry| {
                let fits = left == bytes_max || entry.entry.body.len() <= left;
                left = left.saturating_sub(entry.entry.body.len().max(1));
                fits
            };
            record.journal.iter().skip_while(|entry| entry.number < from).take_while(fits).cloned().collect()
        };
        Ok(self.look(|state, _| state.records.runs.runs.get(run_id).map(page).unwrap_or_default()))
    }

    async fn facts(&self, run_id: &RunId, after: u64) -> Result<Vec<Fact>, StoreError> {
        Ok(self.look(|state, _| state.records.runs.runs.get(run_id).map(|record| record.facts_after(after)).unwrap_or_default()))
    }

    async fn published(&self, run_id: &RunId) -> Result<Vec<(Arc<str>, Payload)>, StoreError> {
        let all = |record: &RunRecord| record.published.iter().map(|(key, value)| (Arc::clone(key), value.clone())).collect();
        Ok(self.look(|state, _| state.records.runs.runs.get(run_id).map(all).unwrap_or_default()))
    }

    async fn run_closed(&self, run_id: &RunId, wait: Duration) -> Result<(), StoreError> {
        let until = self.shared.clock.now() + wait;
        let is_over = |state: &mut State, _| {
            let open = state.records.runs.runs.get(run_id).is_some_and(|record| !record.run.state.is_closed());
            (!open).then_some(())
        };
        self.look_until(Some(until), is_over).await;
        Ok(())
    }

    async fn runs_notified(&self, owner: &WorkerId, wait: Duration) -> Result<Vec<RunId>, StoreError> {
        let until = self.shared.clock.now() + wait;
        Ok(self.look_until(Some(until), |state, _| state.records.runs.take_notified(owner)).await.unwrap_or_default())
    }

    async fn run_referenced(&self, workflow: &WorkflowName, reference: &Reference) -> Result<Option<RunId>, StoreError> {
        Ok(self.look(|state, _| state.records.runs.referenced(workflow, reference)))
    }

    async fn runs(&self, filter: &RunFilter, page: RunPageRequest) -> Result<RunPage, StoreError> {
        Ok(self.look(|state, _| state.records.runs.page(filter, &page)))
    }

    async fn run_places(&self) -> Result<Vec<RunPlaceView>, StoreError> {
        Ok(self.look(|state, _| state.records.runs.places()))
    }
}

impl RunRecords {
    fn start(&mut self, start: StartRun, now: Timestamp) -> Started {
        let referenced = start.reference.as_ref().and_then(|reference| {
            let known = self.references.get(&(start.place.workflow.clone(), reference.clone()))?;
            self.runs.get(known)
        });
        let reused = |record: &&RunRecord| start.reuse == Reuse::AfterClosed && record.run.state.is_closed();
        let existing = self.runs.get(&start.run_id).or_else(|| referenced.filter(|record| !reused(record)));
        if let Some(record) = existing {
            let (run_id, state) = (record.run.run_id.clone(), record.run.state);
            // A start that brings an event is about the run that has the reference, whatever that began with.
            let is_same = record.input_hash == start.input_hash || start.event.is_some();
            if !is_same && start.on_conflict == OnConflict::Refuse {
                return Started::Conflict { run_id };
            }
            let event = event_of_start(&start).map(|event| self.send(&run_id, event, now));
            return Started::Existing { run_id, state, event };
        }
        let (run_id, event) = (start.run_id.clone(), event_of_start(&start));
        self.create(start, None, now);
        if let Some(event) = event {
            self.send(&run_id, event, now);
        }
        Started::Created { durability: Durability::Memory }
    }

    /// Ready runs of these places, in the order in which they are claimed.
    fn ready(&self, places: &[RunPlace], first: RunQueue) -> Vec<RunId> {
        let queue = |record: &RunRecord| match record.run.standing() {
            Standing::Queued(queue) => Some((places.iter().position(|place| *place == record.run.place)?, queue)),
            _other => None,
        };
        let queued = self.runs.values().filter_map(|record| Some((queue(record)?, record)));
        let mut ready: Vec<_> =
            queued.map(|((place, queue), record)| (queue != first, place, record.turn, record.run.run_id.clone())).collect();
        ready.sort();
        ready.into_iter().map(|(_, _, _, run_id)| run_id).collect()
    }

    fn claim(&mut self, want: &ClaimRuns, now: Timestamp) -> Vec<ClaimedRun> {
        let new_first = (self.claims + 1).is_multiple_of(NEW_FIRST_EVERY);
        let first = if new_first { RunQueue::New } else { RunQueue::First };
        let ready = self.ready(&want.places, first);
        if !ready.is_empty() {
            self.claims += 1;
        }
        let mut claimed = Vec::new();
        for run_id in ready.into_iter().take(want.max as usize) {
            let claim = RunCommand::Claim { worker: want.worker.clone(), idle: want.idle };
            if let Some(RunReply::Claimed { .. }) = self.put(&run_id, claim, None, now) {
                claimed.extend(self.claimed(&run_id));
            }
        }
        claimed
    }

    fn claimed(&self, run_id: &RunId) -> Option<ClaimedRun> {
        self.runs.get(run_id).map(|record| ClaimedRun { run: record.run.clone(), facts: record.facts_after(0) })
    }

    fn take_over(&mut self, want: &TakeOverRuns, now: Timestamp) -> TakenOver {
        let mut taken = TakenOver::default();
        let mut claims: Vec<(Timestamp, RunId)> = self
            .runs
            .values()
            .filter(|record| want.places.contains(&record.run.place) && !want.executing.contains(&record.run.run_id))
            .filter_map(|record| match record.run.standing() {
                Standing::Claimed(until) => Some((until, record.run.run_id.clone())),
                _other => None,
            })
            .collect();
        claims.sort();
        for (_, run_id) in claims {
            if taken.claimed.len() == want.max as usize {
                break;
            }
            let command = RunCommand::TakeOver { worker: want.worker.clone(), idle: want.idle, max_deliveries: want.max_deliveries };
            match self.put(&run_id, command, None, now) {
                Some(RunReply::Claimed { .. }) => taken.claimed.extend(self.claimed(&run_id)),
                Some(RunReply::Poisoned) => taken.poisoned.push(run_id),
                _other => {}
            }
        }
        let ends = self.runs.values().filter(|record| want.places.contains(&record.run.place));
        taken.next_due = ends.filter_map(|record| record.run.expires_at).filter(|at| *at > now).min();
        taken
    }

    fn commit(&mut self, run_id: &RunId, commit: Commit, now: Timestamp) -> RunCommitted {
        let seen = commit.seen;
        let is_event = |number: &&u64| {
            let fact = self.runs.get(run_id).and_then(|record| record.inbox.get(*number));
            matches!(fact, Some(Fact { kind: FactKind::Event { .. }, .. }))
        };
        let events_consumed = u32::try_from(commit.consumed.iter().filter(is_event).count()).unwrap_or(u32::MAX);
        match self.put(run_id, RunCommand::Commit { commit: Box::new(commit), events_consumed }, None, now) {
            Some(RunReply::Committed(committed)) => {
                let record = self.runs.get(run_id).filter(|_| committed.has_facts);
                let facts = record.map(|record| record.facts_after(seen)).unwrap_or_default();
                RunCommitted::Committed { committed, facts }
            }
            Some(RunReply::Stale { revision }) => RunCommitted::Stale { revision },
            Some(RunReply::HistoryFull) => RunCommitted::HistoryFull,
            Some(RunReply::WaitSetTooLarge) => RunCommitted::WaitSetTooLarge,
            Some(RunReply::NothingToWaitFor) => RunCommitted::NothingToWaitFor,
            _lost => RunCommitted::Lost,
        }
    }

    fn send(&mut self, run_id: &RunId, event: NewEvent, now: Timestamp) -> EventSent {
        let Some(record) = self.runs.get(run_id) else { return EventSent::NotFound };
        let reference = event.reference.map(|reference| (event.name.clone(), reference));
        let known = reference.as_ref().and_then(|reference| record.event_references.get(reference));
        let known_as = known.filter(|(_, at)| now < *at + EVENT_KNOWN_FOR).map(|(number, _)| *number);
        let command = RunCommand::Send { name: event.name.clone(), known_as };
        let fact = FactKind::Event { name: event.name, data: event.data };
        match self.put(run_id, command, Some(fact), now) {
            Some(RunReply::Accepted { number }) => {
                if let (Some(reference), Some(record)) = (reference, self.runs.get_mut(run_id)) {
                    record.event_references.insert(reference, (number, now));
                }
                EventSent::Accepted { number }
            }
            Some(RunReply::Duplicate { number }) => EventSent::Duplicate { number },
            Some(RunReply::MailboxFull) => EventSent::MailboxFull,
            Some(RunReply::Closed(state)) => EventSent::Closed(state),
            _other => EventSent::NotFound,
        }
    }

    fn request(&mut self, run_id: &RunId, request: RunRequest, now: Timestamp) -> RunRequested {
        let (command, fact) = match request {
            RunRequest::Cancel { reason } => {
                let entry = end_without_code("cancelled", &reason);
                (RunCommand::Cancel { entry }, Some(FactKind::Cancel { reason }))
            }
            RunRequest::Terminate { reason } => (RunCommand::Terminate { entry: end_without_code("terminated", &reason) }, None),
            RunRequest::Pause => (RunCommand::Pause, None),
            RunRequest::Resume => (RunCommand::Resume, None),
        };
        match self.put(run_id, command, fact, now) {
            Some(RunReply::Done(state)) => RunRequested::Done(state),
            Some(RunReply::Closed(state)) => RunRequested::Closed(state),
            _other => RunRequested::NotFound,
        }
    }

    fn send_posts(&mut self, limit: usize, now: Timestamp) -> u64 {
        let due = self.posts.iter().filter(|(_, kept)| kept.not_before <= now);
        let mut due: Vec<(u64, StoredPost)> = due.map(|(number, kept)| (*number, kept.clone())).collect();
        due.sort_by_key(|(number, kept)| (kept.not_before, *number));
        due.truncate(limit);
        let mut sent = 0;
        for (number, kept) in due {
            // An earlier post to the same run may have been refused meanwhile.
            if self.posts.get(&number).is_none_or(|kept| kept.not_before > now) {
                continue;
            }
            let to = kept.post.to().clone();
            if self.deliver(kept.post, now) || now >= kept.written_at + POST_KEPT_FOR {
                self.posts.remove(&number);
                sent += 1;
            } else {
                let not_before = now + post_again_after(kept.tries);
                for other in self.posts.values_mut().filter(|other| *other.post.to() == to) {
                    other.not_before = not_before;
                    other.tries = kept.tries + 1;
                }
            }
        }
        sent
    }

    /// Whether the post has arrived, or never can.
    fn deliver(&mut self, post: Post, now: Timestamp) -> bool {
        match post {
            Post::Create(child) => self.create_child(*child, now),
            Post::ChildClosed { to, step, run_id, completed, outcome } => {
                let open = self.runs.get(&to).and_then(|parent| parent.children.get(&step)).cloned();
                let fact = FactKind::ChildClosed { step, completed, outcome };
                self.put(&to, RunCommand::ChildClosed(ChildEnd { run_id, open, completed }), Some(fact), now);
            }
            Post::Cancel { to, reason } => drop(self.request(&to, RunRequest::Cancel { reason }, now)),
            Post::Terminate { to, reason } => drop(self.request(&to, RunRequest::Terminate { reason }, now)),
            Post::Send { to, name, data, reference } => {
                let event = NewEvent { name, data, reference: Some(reference) };
                return self.send(&to, event, now) != EventSent::MailboxFull;
            }
        }
        true
    }

    fn create_child(&mut self, child: ChildStart, now: Timestamp) {
        if self.runs.contains_key(&child.run_id) {
            return;
        }
        let (start, parent) = StartRun::of_child(child);
        self.create(start, Some(parent), now);
    }

    /// All timers of open runs, the earliest first.
    fn timers(&self) -> Vec<(Timestamp, RunId, RunTimer)> {
        let mut timers = Vec::new();
        for record in self.runs.values().filter(|record| !record.run.state.is_closed()) {
            let run = &record.run;
            let mut add = |at: Timestamp, timer: RunTimer| timers.push((at, run.run_id.clone(), timer));
            match run.standing() {
                Standing::Start(at) => add(at, RunTimer::Start),
                Standing::BacksOff(at) => add(at, RunTimer::BackOff),
                _other => {}
            }
            run.wait.timers.iter().for_each(|(step, at)| add(*at, RunTimer::Step(step.clone())));
            if let Some(deadline) = run.deadline {
                let entry = |out: &'static str| end_without_code(out, "its deadline has passed");
                if run.cancel_requested {
                    add(deadline + TERMINATED_AFTER, RunTimer::AfterDeadline { entry: entry("terminated") });
                } else {
                    add(deadline, RunTimer::Deadline { entry: entry("cancelled") });
                }
            }
        }
        timers.sort_by(|(one, one_id, _), (other, other_id, _)| (one, one_id).cmp(&(other, other_id)));
        timers
    }

    fn fire(&mut self, limit: usize, now: Timestamp) -> FiredRuns {
        let due: Vec<_> = self.timers().into_iter().take_while(|(at, _, _)| *at <= now).take(limit).collect();
        let mut fired = 0;
        for (_, run_id, timer) in due {
            let fact = match &timer {
                RunTimer::Step(step) => Some(FactKind::TimerDue(step.clone())),
                RunTimer::Deadline { .. } => Some(FactKind::Cancel { reason: Arc::from("its deadline has passed") }),
                RunTimer::Start | RunTimer::BackOff | RunTimer::AfterDeadline { .. } => None,
            };
            let reply = self.put(&run_id, RunCommand::TimerDue(timer), fact, now);
            fired += u64::from(matches!(reply, Some(RunReply::Done(_))));
        }
        FiredRuns { fired, next_due: self.next_due() }
    }

    /// When the next timer or post is due.
    pub(in crate::model) fn next_due(&self) -> Option<Timestamp> {
        let timer = self.timers().first().map(|(at, _, _)| *at);
        timer.into_iter().chain(self.posts.values().map(|kept| kept.not_before)).min()
    }
}
