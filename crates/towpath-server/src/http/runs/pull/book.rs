//! The steps of a run as its journal has them: which came how often, which are open. By it the server makes step ids and checks results.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use towpath_core::lock::Fence;
use towpath_core::names::EventName;
use towpath_core::payload::Payload;
use towpath_core::run::{EntryKind, FactKind, Group, Run, RunId, StepId, StepKey, StepKind, StepParts, WaitSet};
use towpath_core::store::{JournalEntry, RunStore, StoreError};

use crate::http::runs::bodies::{Begun, Opened};
use crate::http::runs::look::JOURNAL_PAGE_BYTES;

/// The books of this many runs are kept; others are read again from their journals.
const BOOKS_MAX: usize = 1_000;

/// The steps of a run's present generation.
#[derive(Clone, Debug)]
pub(super) struct Book {
    epoch: Fence,
    generation: u64,
    revision: u64,
    seed: String,
    /// How often a step with these parts came.
    uses: HashMap<StepParts, u64>,
    steps: HashMap<StepId, Step>,
}

/// A step of a journal.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) kind: StepKind,
    pub(super) name: Arc<str>,
    pub(super) has_timer: bool,
    pub(super) is_done: bool,
}

impl Book {
    /// Reads the journal of a run.
    pub(super) async fn read(runs: &Arc<dyn RunStore>, run: &Run) -> Result<Self, StoreError> {
        let (epoch, generation, revision) = (run.epoch, run.generation, run.revision);
        let mut book = Self { epoch, generation, revision, seed: String::new(), uses: HashMap::new(), steps: HashMap::new() };
        let mut from = 0;
        loop {
            let entries = runs.journal(&run.run_id, from, JOURNAL_PAGE_BYTES).await?;
            let Some(last) = entries.last() else { return Ok(book) };
            from = last.number + 1;
            for entry in &entries {
                book.note(entry)?;
            }
        }
    }

    fn note(&mut self, entry: &JournalEntry) -> Result<(), StoreError> {
        let body = entry.entry.body.as_bytes();
        let unreadable =
            |error: serde_json::Error| StoreError::Corrupt(format!("entry {} of a journal cannot be read: {error}", entry.number));
        match (entry.entry.kind, &entry.entry.step) {
            (EntryKind::Begin, _) => self.seed = serde_json::from_slice::<Begun>(body).map_err(unreadable)?.seed,
            (EntryKind::Open, Some(step)) => {
                let opened: Opened = serde_json::from_slice(body).map_err(unreadable)?;
                self.note_opened(step.clone(), opened);
            }
            (EntryKind::Done, Some(step)) => self.mark_done(step),
            _other => {}
        }
        Ok(())
    }

    fn note_opened(&mut self, id: StepId, opened: Opened) {
        // A step of a kind that pull workers do not have is none that they could end.
        let Some(kind) = kind_of(&opened.k) else { return };
        let name: Arc<str> = Arc::from(opened.name);
        let branch = opened.br.into_iter().map(Arc::from).collect();
        let parts = StepParts { branch, kind, name: Arc::clone(&name), key: key_of(&opened.key) };
        let uses = self.uses.entry(parts).or_default();
        *uses = (*uses).max(opened.n + 1);
        let has_timer = kind == StepKind::Sleep || opened.ms.is_some();
        self.steps.insert(id, Step { kind, name, has_timer, is_done: false });
    }

    pub(super) fn seed(&self) -> &str {
        &self.seed
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether it says what the journal says at this revision of this claim.
    fn is_of(&self, epoch: Fence, revision: u64) -> bool {
        self.epoch == epoch && self.revision == revision
    }

    /// The same, after a commit.
    pub(super) fn at_revision(self, revision: u64) -> Self {
        Self { revision, ..self }
    }

    /// The id and the ordinal of a step that the code issues now.
    pub(super) fn open(&mut self, parts: StepParts, has_timer: bool) -> (StepId, u64) {
        let uses = self.uses.entry(parts.clone()).or_default();
        let ordinal = *uses;
        *uses += 1;
        let id = parts.id(ordinal);
        self.steps.insert(id.clone(), Step { kind: parts.kind, name: parts.name, has_timer, is_done: false });
        (id, ordinal)
    }

    pub(super) fn step(&self, id: &StepId) -> Option<&Step> {
        self.steps.get(id)
    }

    pub(super) fn mark_done(&mut self, id: &StepId) {
        if let Some(step) = self.steps.get_mut(id) {
            step.is_done = true;
        }
    }

    fn is_open(&self, id: &StepId) -> bool {
        self.steps.get(id).is_some_and(|step| !step.is_done)
    }

    /// Whether an open step can end with this fact, or the code can notice it.
    pub(super) fn can_use(&self, fact: &FactKind) -> bool {
        match fact {
            FactKind::Event { name, .. } => {
                self.steps.values().any(|step| step.kind == StepKind::Event && !step.is_done && *step.name == *name.as_str())
            }
            FactKind::TimerDue(step) | FactKind::ChildClosed { step, .. } => self.is_open(step),
            FactKind::Cancel { .. } => true,
        }
    }

    /// Whether no step will ever need this fact.
    pub(super) fn is_left_over(&self, fact: &FactKind) -> bool {
        matches!(fact, FactKind::TimerDue(step) if !self.is_open(step))
    }

    /// What the open steps wait for, but for timers, which are armed by themselves.
    pub(super) fn wait_set(&self) -> WaitSet {
        let open = || self.steps.iter().filter(|(_, step)| !step.is_done);
        let events: BTreeSet<EventName> =
            open().filter(|(_, step)| step.kind == StepKind::Event).filter_map(|(_, step)| EventName::new(&*step.name).ok()).collect();
        let group = Group { open: 1, fail_fast: false };
        let groups: BTreeMap<StepId, Group> =
            open().filter(|(_, step)| step.kind == StepKind::Child).map(|(id, _)| (id.clone(), group)).collect();
        WaitSet { events, timers: BTreeMap::new(), groups }
    }
}

/// The kinds of steps that pull workers have.
pub(super) fn kind_of(word: &str) -> Option<StepKind> {
    [StepKind::Task, StepKind::Sleep, StepKind::Event, StepKind::Child, StepKind::Send].into_iter().find(|kind| kind.as_str() == word)
}

fn key_of(text: &str) -> StepKey {
    match text.split_once(':') {
        Some(("k", key)) => StepKey::Given(Arc::from(key)),
        Some(("h1", hash)) => StepKey::Input(Arc::from(hash)),
        _none => StepKey::None,
    }
}

/// A key as it stands in an `open`.
pub(super) fn key_text(key: &StepKey) -> Option<String> {
    match key {
        StepKey::None => None,
        StepKey::Given(key) => Some(format!("k:{key}")),
        StepKey::Input(hash) => Some(format!("h1:{hash}")),
    }
}

/// The key of a step with this input, or with a key of its own.
pub(super) fn key(seed: &str, given: Option<&str>, input: Option<&Payload>) -> Result<StepKey, towpath_core::run::Unencodable> {
    match (given, input) {
        (Some(key), _) => Ok(StepKey::Given(Arc::from(key))),
        (None, Some(input)) => StepKey::of_input(seed.as_bytes(), input),
        (None, None) => Ok(StepKey::None),
    }
}

/// The books of runs that pull workers execute, so that a commit need not read the whole journal.
#[derive(Debug, Default)]
pub(crate) struct Books(Mutex<HashMap<RunId, Book>>);

impl Books {
    /// Takes the book of a run, if it says what the journal says. It is put back after the commit.
    pub(super) fn take(&self, run_id: &RunId, epoch: Fence, revision: u64) -> Option<Book> {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        books.remove(run_id).filter(|book| book.is_of(epoch, revision))
    }

    pub(super) fn put(&self, run_id: RunId, book: Book) {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if books.len() >= BOOKS_MAX {
            // Any one: a book that is missing is read again.
            if let Some(other) = books.keys().next().cloned() {
                books.remove(&other);
            }
        }
        books.insert(run_id, book);
    }
}
