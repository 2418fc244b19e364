//! What the model keeps of runs, and how effects become rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_core::names::{EventName, Reference, WorkerId, WorkflowName};
use towpath_core::payload::Payload;
use towpath_core::run::{
    Child, Effects, Fact, FactKind, ForgottenFacts, NewRun, Parent, Post, Run, RunCommand, RunId, RunReply, RunState, Standing, StepId,
    step,
};
use towpath_core::store::{FACTS_BYTES_MAX, FACTS_MAX, JournalEntry, StartRun};
use towpath_core::time::Timestamp;

/// All runs, and what belongs to none of them alone.
#[derive(Clone, Default)]
pub(in crate::model) struct RunRecords {
    pub(super) runs: BTreeMap<RunId, RunRecord>,
    /// Which run a workflow's reference leads to. An entry goes when its run is gone.
    pub(super) references: BTreeMap<(WorkflowName, Reference), RunId>,
    /// Posts that were not sent yet, in the order in which they were written.
    pub(super) posts: BTreeMap<u64, StoredPost>,
    last_post: u64,
    /// Counts how often a run came into a queue: the order in which runs are claimed.
    last_turn: u64,
    /// Counts claims: every eighth looks at new runs first.
    pub(super) claims: u64,
    /// Runs of which their owners have not heard yet that something has come.
    pub(super) notified: BTreeMap<WorkerId, BTreeSet<RunId>>,
}

/// A post that was not sent yet.
#[derive(Clone)]
pub(super) struct StoredPost {
    pub(super) post: Post,
    pub(super) written_at: Timestamp,
    /// It is not sent before this: its run has refused it, or an earlier one.
    pub(super) not_before: Timestamp,
    pub(super) tries: u32,
}

/// A run with all that belongs to it.
#[derive(Clone)]
pub(super) struct RunRecord {
    pub(super) run: Run,
    pub(super) reference: Option<Reference>,
    pub(super) input_hash: Arc<str>,
    /// The journal of the present generation.
    pub(super) journal: Vec<JournalEntry>,
    pub(super) inbox: BTreeMap<u64, Fact>,
    /// The numbers of events that came with a reference, and when they came.
    pub(super) event_references: BTreeMap<(EventName, Reference), (u64, Timestamp)>,
    pub(super) children: BTreeMap<StepId, Child>,
    pub(super) published: BTreeMap<Arc<str>, Payload>,
    /// Its place in its queue.
    pub(super) turn: u64,
}

impl RunRecord {
    /// How it ended.
    pub(super) fn outcome(&self) -> Option<Payload> {
        self.journal.last().filter(|_| self.run.state.is_closed()).map(|last| last.entry.body.clone())
    }

    pub(super) fn facts_after(&self, number: u64) -> Vec<Fact> {
        let mut left = FACTS_BYTES_MAX;
        let fits = |fact: &&Fact| {
            let fits = left > 0;
            left = left.saturating_sub(fact.kind.bytes());
            fits
        };
        self.inbox.range(number + 1..).map(|(_, fact)| fact).take(FACTS_MAX).take_while(fits).cloned().collect()
    }

    /// Appends to the journal. An instant never decreases within a journal.
    fn append(&mut self, entry: towpath_core::run::Entry, now: Timestamp) {
        let at = self.journal.last().map_or(now, |last| last.at.max(now));
        self.journal.push(JournalEntry { number: self.journal.len() as u64, at, entry });
    }
}

impl RunRecords {
    /// Another process counts its own claims, and has heard no notification.
    pub(in crate::model) fn reopen(&mut self) {
        self.claims = 0;
        self.notified.clear();
    }

    /// Removes the runs whose retention is over. Their references are free from then on.
    pub(in crate::model) fn remove_gone(&mut self, now: Timestamp) {
        for (gone, _) in self.runs.extract_if(.., |_, record| record.run.is_gone(now)) {
            self.references.retain(|_, run_id| *run_id != gone);
        }
    }

    /// Keeps a new run.
    pub(super) fn create(&mut self, start: StartRun, parent: Option<Parent>, now: Timestamp) {
        let start_at = (!start.delay.is_zero()).then(|| now + start.delay);
        let new = NewRun {
            run_id: start.run_id.clone(),
            place: start.place.clone(),
            start_at,
            deadline: start.timeout.map(|timeout| now + timeout),
            retain: start.retain,
            parent,
            begin_bytes: start.begin.body.len() as u64,
        };
        if let Some(reference) = &start.reference {
            self.references.insert((start.place.workflow, reference.clone()), start.run_id.clone());
        }
        self.last_turn += 1;
        let mut record = RunRecord {
            run: Run::created(new, now),
            reference: start.reference,
            input_hash: start.input_hash,
            journal: Vec::new(),
            inbox: BTreeMap::new(),
            event_references: BTreeMap::new(),
            children: BTreeMap::new(),
            published: BTreeMap::new(),
            turn: self.last_turn,
        };
        record.append(start.begin, now);
        self.runs.insert(start.run_id, record);
    }

    /// Puts one command to a run: load, decide, save header and rows. `None`: there is no such run.
    pub(super) fn put(&mut self, run_id: &RunId, command: RunCommand, fact: Option<FactKind>, now: Timestamp) -> Option<RunReply> {
        let record = self.runs.get_mut(run_id)?;
        let (before, owner) = (record.run.standing(), record.run.owner.clone());
        let (run, effects, reply) = step(record.run.clone(), command, now);
        record.run = run;
        if let Some(owner) = owner.filter(|_| effects.notifies_owner) {
            self.notified.entry(owner).or_default().insert(run_id.clone());
        }
        let comes_into_queue = before != record.run.standing() && matches!(record.run.standing(), Standing::Queued(_));
        if comes_into_queue {
            self.last_turn += 1;
            record.turn = self.last_turn;
        }
        let posts = write(record, effects, fact, now);
        for post in posts {
            self.last_post += 1;
            // It does not overtake an earlier post to the same run that was put off.
            let earlier = self.posts.values().filter(|kept| kept.post.to() == post.to()).map(|kept| kept.not_before).max();
            let not_before = earlier.map_or(now, |at| at.max(now));
            let kept = StoredPost { post, written_at: now, not_before, tries: 0 };
            self.posts.insert(self.last_post, kept);
        }
        Some(reply)
    }
}

/// Writes the rows. Returns the posts.
fn write(record: &mut RunRecord, effects: Effects, fact: Option<FactKind>, now: Timestamp) -> Vec<Post> {
    let mut posts = effects.posts;
    for entry in effects.entries {
        record.append(entry, now);
    }
    let outcome = record.outcome();
    if let Some(begin) = effects.begins {
        record.journal.clear();
        record.append(begin, now);
    }
    for number in effects.consumed {
        record.inbox.remove(&number);
    }
    if let (Some(number), Some(kind)) = (effects.fact, fact) {
        record.inbox.insert(number, Fact { number, at: now, kind });
    }
    if let Some(number) = effects.cancels_again {
        let kind = FactKind::Cancel { reason: Arc::from("it was cancelled before it continued as new") };
        record.inbox.insert(number, Fact { number, at: now, kind });
    }
    match effects.forgotten {
        ForgottenFacts::None => {}
        ForgottenFacts::OfSteps => record.inbox.retain(|_, fact| fact.kind.outlives_generation()),
        ForgottenFacts::All => record.inbox.clear(),
    }
    record.children.extend(effects.children.into_iter().map(|child| (child.step.clone(), child)));
    if let Some(step) = effects.closed_child {
        record.children.remove(&step);
    }
    if effects.children_follow {
        posts.extend(std::mem::take(&mut record.children).values().filter_map(Child::follow));
    }
    if let (true, Some(parent), Some(outcome)) = (effects.tells_parent, &record.run.parent, outcome) {
        let (to, step, run_id) = (parent.run_id.clone(), parent.step.clone(), record.run.run_id.clone());
        posts.push(Post::ChildClosed { to, step, run_id, completed: record.run.state == RunState::Completed, outcome });
    }
    record.published.extend(effects.published);
    posts
}
