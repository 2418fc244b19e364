//! What one script writes for all moves of a run that go together.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use towpath_core::names::Reference;
use towpath_core::payload::Payload;
use towpath_core::run::{
    Child, ChildEnd, Effects, FactKind, ForgottenFacts, NewRun, Parent, Post, Run, RunCommand, RunId, RunQueue, RunState, Standing, StepId,
};
use towpath_core::store::{EVENT_KNOWN_FOR, NewEvent, StartRun, StoreError};
use towpath_core::time::{Timestamp, millis};

use super::keys::{BEGUN, PAUSED};
use super::moves::{Outcome, What, known_field};
use super::rows::{Loaded, timers, write_entry, write_fact, write_json, write_post};
use crate::script::Args;

/// No operation of a script has more words than this: Lua cannot hand over many more.
const WORDS_MAX: usize = 1_000;

/// All moves of one run that go together: what was there before, what is there then, and what is written.
pub(super) struct Change {
    pub(super) run_id: RunId,
    /// That of what was loaded; empty if there was no such run.
    pub(super) version: String,
    /// It is what this process remembers, and not what the store was asked for.
    pub(super) is_remembered: bool,
    before: Option<Run>,
    pub(super) run: Option<Run>,
    /// What is there is past its retention and goes.
    clears: bool,
    pub(super) journal_at: Timestamp,
    pub(super) reference: Option<Reference>,
    pub(super) input_hash: String,
    pub(super) known: HashMap<String, (u64, Timestamp)>,
    /// Open children that moves are about.
    pub(super) children: HashMap<StepId, Child>,
    pub(super) events_consumed: u32,
    operations: Vec<Vec<Vec<u8>>>,
    /// It has children that the store does not know yet.
    pub(super) opens_children: bool,
    closes_children: bool,
    /// The number of the move that brought it into a queue.
    pub(super) turn: usize,
    /// Moves that were decided, and their outcomes.
    pub(super) outcomes: Vec<(usize, Outcome)>,
    pub(super) has_posts: bool,
}

impl Change {
    pub(super) fn new(run_id: RunId, loaded: Option<Loaded>, now: Timestamp) -> Self {
        let clears = loaded.as_ref().is_some_and(|loaded| loaded.run.is_gone(now));
        let version = loaded.as_ref().map(|loaded| loaded.version.clone()).unwrap_or_default();
        let loaded = loaded.filter(|_| !clears);
        let (journal_at, input_hash) = match &loaded {
            Some(loaded) => (loaded.journal_at, loaded.input_hash.clone()),
            None => (Timestamp::default(), String::new()),
        };
        Self {
            run_id,
            version,
            is_remembered: false,
            before: loaded.as_ref().map(|loaded| loaded.run.clone()),
            reference: loaded.as_ref().and_then(|loaded| loaded.reference.clone()),
            run: loaded.map(|loaded| loaded.run),
            clears,
            journal_at,
            input_hash,
            known: HashMap::new(),
            children: HashMap::new(),
            events_consumed: 0,
            operations: Vec::new(),
            opens_children: false,
            closes_children: false,
            turn: usize::MAX,
            outcomes: Vec::new(),
            has_posts: false,
        }
    }

    /// The same of a run that this process remembers.
    pub(super) fn remembered(self) -> Self {
        Self { is_remembered: true, ..self }
    }

    /// Whether there is anything to write.
    pub(super) fn is_one(&self) -> bool {
        self.before != self.run
    }

    /// Whether its open children are not those that the store has.
    pub(super) const fn changes_children(&self) -> bool {
        self.opens_children || self.closes_children
    }

    /// Creates the run.
    pub(super) fn create(&mut self, start: &StartRun, parent: Option<Parent>, now: Timestamp) {
        let new = NewRun {
            run_id: start.run_id.clone(),
            place: start.place.clone(),
            start_at: (!start.delay.is_zero()).then(|| now + start.delay),
            deadline: start.timeout.map(|timeout| now + timeout),
            retain: start.retain,
            parent,
            begin_bytes: start.begin.body.len() as u64,
        };
        let run = Run::created(new, now);
        self.operate(["ZADD", "@runs", &run.created_at.as_millis().to_string(), run.run_id.as_str()]);
        self.operate(["HSET", "", "i", &start.input_hash]);
        if let Some(reference) = &start.reference {
            self.operate(["HSET", "", "r", reference.as_str()]);
        }
        self.reference.clone_from(&start.reference);
        self.input_hash = start.input_hash.to_string();
        self.run = Some(run);
        self.append(std::slice::from_ref(&start.begin), now);
    }

    /// The command of a move, and the fact that it brings.
    pub(super) fn command(&self, what: &What, now: Timestamp) -> Option<(RunCommand, Option<FactKind>)> {
        Some(match what {
            What::Create { .. } => return None,
            What::Claim { command, .. } => (command.clone(), None),
            What::Plain { command, fact } => (command.clone(), fact.clone()),
            What::Commit(commit) => (RunCommand::Commit { commit: commit.clone(), events_consumed: self.events_consumed }, None),
            What::Send(event) => {
                let known = event.reference.as_ref().and_then(|reference| self.known.get(&known_field(&event.name, reference)));
                let known_as = known.filter(|(_, at)| now < *at + EVENT_KNOWN_FOR).map(|(number, _)| *number);
                let fact = FactKind::Event { name: event.name.clone(), data: event.data.clone() };
                (RunCommand::Send { name: event.name.clone(), known_as }, Some(fact))
            }
            What::ChildClosed { step, run_id, completed, outcome } => {
                let end = ChildEnd { run_id: run_id.clone(), open: self.children.get(step).cloned(), completed: *completed };
                let fact = FactKind::ChildClosed { step: step.clone(), completed: *completed, outcome: outcome.clone() };
                (RunCommand::ChildClosed(end), Some(fact))
            }
        })
    }

    /// Remembers an event by its reference.
    pub(super) fn know(&mut self, event: &NewEvent, number: u64, now: Timestamp) {
        let Some(reference) = &event.reference else { return };
        let field = known_field(&event.name, reference);
        let forgotten = now.as_millis().saturating_sub(millis(EVENT_KNOWN_FOR));
        self.operate(["KNOW", &field, &number.to_string(), &now.as_millis().to_string(), &forgotten.to_string()]);
        self.known.insert(field, (number, now));
    }

    /// Takes over what a move has decided. `children`: those that are open, if they follow.
    pub(super) fn add(
        &mut self,
        run: Run,
        effects: Effects,
        fact: Option<&FactKind>,
        children: &[Child],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.append(&effects.entries, now);
        let outcome = effects.entries.last().map(|entry| entry.body.clone());
        if let Some(begin) = effects.begins {
            self.operate(["DEL", ":j"]);
            self.journal_at = Timestamp::default();
            self.append(&[begin], now);
        }
        self.consume(effects.consumed);
        if let (Some(number), Some(kind)) = (effects.fact, fact) {
            self.add_fact(number, kind, now)?;
        }
        if let Some(number) = effects.cancels_again {
            let again = FactKind::Cancel { reason: Arc::from("it was cancelled before it continued as new") };
            self.add_fact(number, &again, now)?;
        }
        match effects.forgotten {
            ForgottenFacts::None => {}
            ForgottenFacts::OfSteps => self.operate(["STEPS"]),
            ForgottenFacts::All => self.operate(["DEL", ":in"]),
        }
        self.opens_children |= !effects.children.is_empty();
        for child in &effects.children {
            self.operations.push(vec![b"HSET".to_vec(), b":kids".to_vec(), child.step.as_str().into(), write_json(child)?]);
        }
        if let Some(step) = &effects.closed_child {
            self.operate(["HDEL", ":kids", step.as_str()]);
            self.children.remove(step);
            self.closes_children = true;
        }
        let mut posts = effects.posts;
        if effects.children_follow {
            self.operate(["DEL", ":kids"]);
            // Those that this very move opens follow, too.
            let mut all: BTreeMap<&StepId, &Child> = children.iter().map(|child| (&child.step, child)).collect();
            all.extend(effects.children.iter().map(|child| (&child.step, child)));
            posts.extend(all.into_values().filter_map(Child::follow));
        }
        if effects.tells_parent {
            posts.extend(told_parent(&run, outcome));
        }
        for (key, value) in &effects.published {
            self.operate(["HSET", ":pub", key, value.as_str()]);
        }
        posts.into_iter().try_for_each(|post| self.send(&post, now))?;
        self.run = Some(run);
        Ok(())
    }

    /// The run has closed: its reference expires with it, and lines of runs that are gone go.
    pub(super) fn close(&mut self, lives_ms: i64, now: Timestamp) -> Result<(), StoreError> {
        let Some(run) = &self.run else { return Ok(()) };
        let state = run.state.as_str();
        if let Some(reference) = &self.reference {
            let ends = write_json(&(run.place.workflow.as_str(), reference.as_str(), lives_ms))?;
            self.operations.push(vec![b"HSET".to_vec(), b"@refs".to_vec(), run.run_id.as_str().into(), ends]);
        }
        self.operate(["SWEEP", state, &now.as_millis().to_string()]);
        Ok(())
    }

    pub(super) fn tell(&mut self, channel: &str, message: &str) {
        self.operate(["TELL", channel, message]);
    }

    fn send(&mut self, post: &Post, now: Timestamp) -> Result<(), StoreError> {
        let text = write_post(post, now)?;
        self.operations.push(vec![b"POST".to_vec(), now.as_millis().to_string().into_bytes(), post.to().as_str().into(), text]);
        self.has_posts = true;
        Ok(())
    }

    /// Appends to the journal. An instant never decreases within a journal.
    fn append(&mut self, entries: &[towpath_core::run::Entry], now: Timestamp) {
        if entries.is_empty() {
            return;
        }
        self.journal_at = self.journal_at.max(now);
        for some in entries.chunks(WORDS_MAX) {
            let mut operation = vec![b"RPUSH".to_vec(), b":j".to_vec()];
            operation.extend(some.iter().map(|entry| write_entry(entry, self.journal_at)));
            self.operations.push(operation);
        }
        self.operate(["HSET", "", "a", &self.journal_at.as_millis().to_string()]);
    }

    fn add_fact(&mut self, number: u64, kind: &FactKind, now: Timestamp) -> Result<(), StoreError> {
        let fact = write_fact(number, kind, now)?;
        self.operations.push(vec![b"ZADD".to_vec(), b":in".to_vec(), number.to_string().into_bytes(), fact]);
        Ok(())
    }

    /// Facts leave the inbox; those whose numbers follow each other go with one command.
    fn consume(&mut self, mut numbers: Vec<u64>) {
        numbers.sort_unstable();
        for some in numbers.chunk_by(|one, other| other - one <= 1) {
            if let [first, ..] = some {
                let last = some.last().unwrap_or(first);
                self.operate(["ZREMRANGEBYSCORE", ":in", &first.to_string(), &last.to_string()]);
            }
        }
    }

    fn operate<const WORDS: usize>(&mut self, words: [&str; WORDS]) {
        self.operations.push(words.iter().map(|word| word.as_bytes().to_vec()).collect());
    }

    /// What the store has once this change is made.
    pub(super) fn into_loaded(self) -> Option<Loaded> {
        let (version, journal_at, reference, input_hash) = (self.version, self.journal_at, self.reference, self.input_hash);
        self.run.map(|run| Loaded { version, run, journal_at, reference, input_hash })
    }

    /// The words of this change for the script. `lives_ms`: how long its keys live, once it has closed.
    pub(super) fn write(
        &mut self,
        args: &mut Args,
        next_version: String,
        lives_ms: impl FnOnce(&Run) -> i64,
    ) -> Result<Option<Timestamp>, StoreError> {
        let Some(run) = self.run.clone() else { return Ok(None) };
        let next_timer = self.follow_header(&run);
        let standing = standing_word(&run);
        let score = run.kept_until().unwrap_or(run.changed_at);
        args.push(run.run_id.as_str());
        args.push(&self.version);
        args.push(&next_version);
        self.version = next_version;
        args.flag(self.clears);
        args.push(write_json(&run)?);
        args.push(standing);
        // Those in a queue are in the order of their entries.
        if matches!(run.standing(), Standing::Queued(_)) {
            args.push("");
        } else {
            args.number(score.as_millis());
        }
        args.push(entry_word(self.before.as_ref(), &run));
        if run.state.is_closed() {
            args.number(lives_ms(&run));
        } else {
            args.push("");
        }
        args.number(self.operations.len());
        for operation in &self.operations {
            args.number(operation.len());
            operation.iter().for_each(|word| args.push(word));
        }
        Ok(next_timer)
    }

    /// Lines among timers, claims and unfit runs follow the header. Returns the earliest timer that is new.
    fn follow_header(&mut self, run: &Run) -> Option<Timestamp> {
        let (old, new) = (self.before.as_ref().map(timers).unwrap_or_default(), timers(run));
        let gone: Vec<&String> = old.keys().filter(|line| !new.contains_key(*line)).collect();
        for some in gone.chunks(WORDS_MAX) {
            let mut operation = vec![b"ZREM".to_vec(), b"@timers".to_vec()];
            operation.extend(some.iter().map(|line| line.as_bytes().to_vec()));
            self.operations.push(operation);
        }
        let armed: Vec<(&String, &Timestamp)> = new.iter().filter(|(line, at)| old.get(*line) != Some(at)).collect();
        for some in armed.chunks(WORDS_MAX / 2) {
            let mut operation = vec![b"ZADD".to_vec(), b"@timers".to_vec()];
            operation.extend(some.iter().flat_map(|(line, at)| [at.as_millis().to_string().into_bytes(), line.as_bytes().to_vec()]));
            self.operations.push(operation);
        }
        let next_timer = armed.iter().map(|(_, at)| **at).min();
        let (claimed, was_claimed) = (claim_end(run), self.before.as_ref().and_then(claim_end));
        match claimed {
            Some(until) if claimed != was_claimed => self.operate(["ZADD", "@claims", &until.as_millis().to_string(), run.run_id.as_str()]),
            None if was_claimed.is_some() => self.operate(["ZREM", "@claims", run.run_id.as_str()]),
            _same => {}
        }
        match (self.before.as_ref().is_some_and(is_unfit), is_unfit(run)) {
            (false, true) => self.operate(["ZADD", "@unfit", "0", run.run_id.as_str()]),
            (true, false) => self.operate(["ZREM", "@unfit", run.run_id.as_str()]),
            _same => {}
        }
        next_timer
    }
}

fn claim_end(run: &Run) -> Option<Timestamp> {
    if let Standing::Claimed(until) = run.standing() { Some(until) } else { None }
}

/// Whether another build of its code may mend it.
fn is_unfit(run: &Run) -> bool {
    run.cause.is_some_and(towpath_core::run::BlockCause::is_of_the_build)
}

/// The set that a run is in.
pub(super) fn standing_word(run: &Run) -> &'static str {
    match run.standing() {
        Standing::Paused => PAUSED,
        Standing::Queued(RunQueue::First) => BEGUN,
        _other => run.state.as_str(),
    }
}

/// What becomes of a run's entry. A run that is queued or executed has one, and no other has.
fn entry_word(before: Option<&Run>, run: &Run) -> &'static str {
    let before = before.map(Run::standing);
    match (before, run.standing()) {
        (before, now) if before == Some(now) => "",
        (_, Standing::Queued(RunQueue::New)) => "n",
        (_, Standing::Queued(RunQueue::First)) => "f",
        (_, Standing::Claimed(_)) => "",
        (Some(Standing::Queued(_) | Standing::Claimed(_)), _) => "-",
        _none => "",
    }
}

/// What the parent of a run that has closed is told.
fn told_parent(run: &Run, outcome: Option<Payload>) -> Option<Post> {
    let parent = run.parent.as_ref()?;
    Some(Post::ChildClosed {
        to: parent.run_id.clone(),
        step: parent.step.clone(),
        run_id: run.run_id.clone(),
        completed: run.state == RunState::Completed,
        outcome: outcome.unwrap_or_else(Payload::null),
    })
}
