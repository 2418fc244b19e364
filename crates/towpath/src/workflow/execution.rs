//! One execution of a generation's code: the steps that it has issued, and what it has seen of their results.
//!
//! The code and its executor take turns: the executor reveals a result and polls the code, the code issues steps and waits. Neither runs while
//! the other does.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use towpath_core::payload::Payload;
use towpath_core::run::{BlockCause, EntryKind, Parent, RunId, RunPlace, StepId, StepKey, StepKind, StepParts, idempotency_key};
use towpath_core::time::Timestamp;

use super::body::{Cancel, Done, Mark, Open, read};
use super::recorded::{Recorded, differs_by_members_only};
use super::task::TaskContext;
use crate::error::HandlerError;

/// Starts an attempt of a task.
pub(crate) type Launch = Arc<dyn Fn(TaskContext) -> Pin<Box<dyn Future<Output = Result<Payload, HandlerError>> + Send>> + Send + Sync>;

/// What an execution belongs to. It never changes.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) run_id: RunId,
    pub(crate) place: RunPlace,
    pub(crate) generation: u64,
    pub(crate) seed: Arc<str>,
    pub(crate) parent: Option<Parent>,
}

/// Shared by the code's contexts and futures, and by the executor.
pub(crate) struct Execution {
    pub(crate) identity: Identity,
    state: Mutex<State>,
}

/// Why the run cannot go on.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) cause: BlockCause,
    pub(crate) message: String,
    pub(crate) expected: Vec<String>,
    pub(crate) found: Vec<String>,
}

impl Trouble {
    pub(crate) fn new(cause: BlockCause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into(), expected: Vec::new(), found: Vec::new() }
    }
}

/// What the code has done since the last commit.
#[derive(Debug)]
pub(crate) enum Command {
    /// It has issued this step.
    Step(StepId),
    /// It has asked for a version.
    Mark(StepId, Mark),
}

/// A step that the code asks for.
pub(crate) struct Request {
    pub(crate) parts: StepParts,
    pub(crate) open: Open,
    /// The input of a task or child, the data of an event that is sent.
    pub(crate) input: Option<Payload>,
    pub(crate) launch: Option<Launch>,
    /// Where a child will run.
    pub(crate) child: Option<RunPlace>,
    pub(crate) location: &'static Location<'static>,
}

/// Where a step stands.
#[derive(Debug)]
pub(crate) enum Standing {
    /// The journal does not have it yet.
    Fresh,
    /// The journal has it, and no result that was revealed.
    Open,
    /// Its result was revealed, and the code has not taken it yet.
    Resolved(Done),
    /// The code has its result.
    Taken,
    /// The code has dropped it.
    Dropped,
}

/// A step that the code has issued.
pub(crate) struct Step {
    pub(crate) order: u64,
    pub(crate) open: Open,
    pub(crate) input: Option<Payload>,
    pub(crate) launch: Option<Launch>,
    pub(crate) child: Option<RunPlace>,
    /// The same for every attempt and every delivery.
    pub(crate) idempotency_key: Arc<str>,
    pub(crate) standing: Standing,
    /// Attempts that have failed.
    pub(crate) attempts: u32,
    /// The latest attempt that the journal has a `start` of.
    pub(crate) started: u32,
    shielded: bool,
    waker: Option<Waker>,
}

impl Step {
    /// Whether the code waits for its result.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waker.is_some() && self.is_pending()
    }

    pub(crate) fn is_pending(&self) -> bool {
        matches!(self.standing, Standing::Fresh | Standing::Open)
    }
}

/// How far the code can see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// When the latest entry that was revealed was written.
    pub(crate) now: Timestamp,
    /// How many entries there are up to it.
    pub(crate) entries: u64,
    /// How many bytes they have.
    pub(crate) bytes: u64,
}

/// An entry that the code is to see.
#[derive(Debug)]
pub(crate) struct Reveal {
    pub(crate) kind: EntryKind,
    pub(crate) step: Option<StepId>,
    pub(crate) body: Payload,
    pub(crate) sight: Sight,
}

pub(crate) struct State {
    pub(crate) recorded: HashMap<StepId, Recorded>,
    pub(crate) marks: HashMap<Arc<str>, u32>,
    pub(crate) steps: HashMap<StepId, Step>,
    /// Steps without a result, in the order in which the code issued them.
    pub(crate) pending: BTreeMap<u64, StepId>,
    pub(crate) fresh: Vec<Command>,
    /// Steps that the code has dropped since the executor looked.
    pub(crate) dropped: Vec<StepId>,
    /// Entries of the journal, as it was at the claim, that are hidden.
    pub(crate) hidden: usize,
    /// Recorded steps that the code has not asked for yet.
    pub(crate) unbound: usize,
    pub(crate) cancelled: Option<Arc<str>>,
    pub(crate) published: Vec<(Arc<str>, Payload)>,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) continued: Option<Payload>,
    pub(crate) sight: Sight,
    pub(crate) last_call: Option<&'static Location<'static>>,
    pub(crate) warnings: Vec<String>,
    shields: u32,
    cancel_wakers: Vec<Waker>,
    occurrences: HashMap<StepParts, u64>,
    uses: HashMap<StepParts, u64>,
    draws: HashMap<(Vec<Arc<str>>, Arc<str>), u64>,
    orders: u64,
    /// The executor drops the code now; nothing is abandoned by that.
    is_over: bool,
}

impl Execution {
    pub(crate) fn new(identity: Identity, recorded: HashMap<StepId, Recorded>, marks: HashMap<Arc<str>, u32>, sight: Sight) -> Self {
        let unbound = recorded.len();
        let state = State {
            recorded,
            marks,
            steps: HashMap::new(),
            pending: BTreeMap::new(),
            fresh: Vec::new(),
            dropped: Vec::new(),
            hidden: 0,
            unbound,
            cancelled: None,
            published: Vec::new(),
            trouble: None,
            continued: None,
            sight,
            last_call: None,
            warnings: Vec::new(),
            shields: 0,
            cancel_wakers: Vec::new(),
            occurrences: HashMap::new(),
            uses: HashMap::new(),
            draws: HashMap::new(),
            orders: 0,
            is_over: false,
        };
        Self { identity, state: Mutex::new(state) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of the code never happens inside: only this file runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Issues a step, or binds the recorded one. `None`: the run is cancelled, and nothing is issued.
    pub(crate) fn issue(&self, request: Request) -> Option<StepId> {
        let mut state = self.lock();
        state.last_call = Some(request.location);
        if state.is_cancelled_here() {
            return None;
        }
        Some(state.issue(&self.identity, request))
    }

    /// The result of a step, once it is revealed. `None`: the run is cancelled.
    pub(crate) fn poll_step(&self, id: &StepId, waker: &Waker) -> Poll<Option<Done>> {
        let mut state = self.lock();
        let (is_cancelled, is_shielded) = (state.is_cancelled_here(), state.shields > 0);
        let Some(step) = state.steps.get_mut(id) else { return Poll::Pending };
        match std::mem::replace(&mut step.standing, Standing::Taken) {
            Standing::Resolved(done) => Poll::Ready(Some(done)),
            pending @ (Standing::Fresh | Standing::Open) => {
                step.standing = pending;
                if is_cancelled {
                    state.drop_step(id);
                    return Poll::Ready(None);
                }
                step.shielded = is_shielded;
                step.waker = Some(waker.clone());
                Poll::Pending
            }
            other => {
                step.standing = other;
                Poll::Pending
            }
        }
    }

    /// The code has dropped the future of a step.
    pub(crate) fn abandon(&self, id: &StepId) {
        let mut state = self.lock();
        if !state.is_over {
            state.drop_step(id);
        }
    }

    /// Shows an entry to the code. The wakers that this returns are to be woken, in this order.
    #[must_use]
    pub(crate) fn reveal(&self, reveal: Reveal) -> Vec<Waker> {
        let mut state = self.lock();
        state.sight = reveal.sight;
        match (reveal.kind, reveal.step) {
            (EntryKind::Done, Some(step)) => match read::<Done>(&reveal.body) {
                Ok(done) => state.resolve(&step, done),
                Err(message) => state.cannot_read(&message),
            },
            (EntryKind::Cancel, _) => match read::<Cancel>(&reveal.body) {
                Ok(cancel) => state.cancel(cancel.reason),
                Err(message) => state.cannot_read(&message),
            },
            _other => Vec::new(),
        }
    }

    /// Counts a number that the code draws, per branch and label.
    pub(crate) fn draw(&self, branch: &[Arc<str>], label: &str) -> u64 {
        let mut state = self.lock();
        let count = state.draws.entry((branch.to_vec(), Arc::from(label))).or_insert(0);
        *count += 1;
        *count - 1
    }

    /// Which version of the code to follow.
    pub(crate) fn version(&self, change: &str, min: u32, max: u32) -> u32 {
        let mut state = self.lock();
        if let Some(known) = state.marks.get(change).copied() {
            if !(min..=max).contains(&known) {
                let message = format!("the journal follows version {known} of '{change}', and the code has {min} to {max}");
                let expected = vec![format!("mark {change} {known}")];
                let found = vec![format!("mark {change} {min}..={max}")];
                state.trouble.get_or_insert(Trouble { cause: BlockCause::Nondeterminism, message, expected, found });
            }
            return known;
        }
        let ver = if state.hidden > 0 || state.unbound > 0 { min } else { max };
        let name: Arc<str> = Arc::from(change);
        state.marks.insert(Arc::clone(&name), ver);
        let parts = StepParts { branch: Vec::new(), kind: StepKind::Mark, name: Arc::clone(&name), key: StepKey::None };
        state.fresh.push(Command::Mark(parts.id(0), Mark { name, ver }));
        ver
    }

    /// A value for those who look at the run. Replay says nothing again.
    pub(crate) fn publish(&self, key: Arc<str>, value: Payload) {
        let mut state = self.lock();
        if state.hidden == 0 {
            state.published.retain(|(known, _)| *known != key);
            state.published.push((key, value));
        }
    }

    /// Enters or leaves a part of the code that a cancellation does not interrupt.
    pub(crate) fn shield(&self, is_entered: bool) {
        let mut state = self.lock();
        state.shields = if is_entered { state.shields + 1 } else { state.shields.saturating_sub(1) };
    }

    /// Whether a cancellation was revealed. If not, the waker is woken when one is.
    pub(crate) fn poll_cancelled(&self, waker: &Waker) -> Poll<()> {
        let mut state = self.lock();
        if state.cancelled.is_some() {
            return Poll::Ready(());
        }
        state.cancel_wakers.push(waker.clone());
        Poll::Pending
    }

    /// The run cannot go on; the first reason counts.
    pub(crate) fn fail(&self, trouble: Trouble) {
        self.lock().trouble.get_or_insert(trouble);
    }

    /// The executor drops the code now.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
    }
}

impl State {
    /// Whether the code's command may be written later, with its result: a task that runs meanwhile.
    pub(crate) fn is_lazy(&self, command: &Command) -> bool {
        match command {
            Command::Step(id) => {
                let is_lazy = |step: &Step| matches!(step.open.k, StepKind::Task | StepKind::Call) && !step.open.once;
                self.steps.get(id).is_some_and(is_lazy)
            }
            Command::Mark(..) => false,
        }
    }

    fn is_cancelled_here(&self) -> bool {
        self.cancelled.is_some() && self.shields == 0
    }

    fn issue(&mut self, identity: &Identity, request: Request) -> StepId {
        let Request { parts, mut open, input, launch, child, .. } = request;
        let use_number = self.count_use(&parts);
        let mut id = self.next_id(&parts, &mut open);
        let idempotency_key: Arc<str> = Arc::from(key_of(identity, &parts, use_number));
        if parts.kind == StepKind::Call {
            open.call = Some(Arc::clone(&idempotency_key));
        }
        if let Some(like) = self.recorded_like(&id, &open, input.as_ref()) {
            self.warnings.push(format!("input_changed: the input of {} is not the recorded one", open.title()));
            id = like;
        }
        if let (StepKind::Child, Some(place)) = (parts.kind, &child) {
            open.run = Some(RunId::of_child(place, &identity.run_id, identity.generation, &id));
        }
        let order = self.orders;
        self.orders += 1;
        let mut step = Step {
            order,
            open,
            input,
            launch,
            child,
            idempotency_key,
            standing: Standing::Fresh,
            attempts: 0,
            started: 0,
            shielded: self.shields > 0,
            waker: None,
        };
        match self.recorded.get_mut(&id) {
            Some(recorded) => {
                recorded.is_bound = true;
                self.unbound -= 1;
                // What was said when it was opened holds; the code may have changed.
                step.open = recorded.open.clone();
                (step.attempts, step.started) = (recorded.attempts, recorded.started);
                step.standing = recorded.revealed.take().map_or(Standing::Open, Standing::Resolved);
            }
            None => self.fresh.push(Command::Step(id.clone())),
        }
        if step.is_pending() {
            self.pending.insert(order, id.clone());
        }
        self.steps.insert(id.clone(), step);
        id
    }

    /// How often a step of this branch, kind and name came before, whatever its input.
    fn count_use(&mut self, parts: &StepParts) -> u64 {
        let uses = self.uses.entry(StepParts { key: StepKey::None, ..parts.clone() }).or_insert(0);
        *uses += 1;
        *uses - 1
    }

    fn next_id(&mut self, parts: &StepParts, open: &mut Open) -> StepId {
        let count = self.occurrences.entry(parts.clone()).or_insert(0);
        loop {
            let (ordinal, id) = (*count, parts.id(*count));
            *count += 1;
            // A step whose input has changed may have taken the id of a recorded one.
            if !self.steps.contains_key(&id) {
                open.n = ordinal;
                return id;
            }
        }
    }

    /// The first recorded step that was not asked for and differs from this one only by members of its input.
    fn recorded_like(&self, id: &StepId, open: &Open, input: Option<&Payload>) -> Option<StepId> {
        let has_input_key = open.key.as_ref().is_some_and(|key| key.starts_with("h1:"));
        if self.unbound == 0 || !has_input_key || self.recorded.contains_key(id) {
            return None;
        }
        let input = input?;
        let is_like = |recorded: &Recorded| {
            let known = &recorded.open;
            let is_same = !recorded.is_bound && known.k == open.k && known.name == open.name && known.br == open.br;
            is_same && known.v.as_ref().is_some_and(|v| differs_by_members_only(v, input))
        };
        let like = self.recorded.iter().filter(|(_, recorded)| is_like(recorded)).min_by_key(|(_, recorded)| recorded.number);
        like.map(|(id, _)| id.clone())
    }

    fn drop_step(&mut self, id: &StepId) {
        let Some(step) = self.steps.get_mut(id) else { return };
        if !step.is_pending() {
            return;
        }
        let was_fresh = matches!(step.standing, Standing::Fresh);
        step.standing = Standing::Dropped;
        step.waker = None;
        self.pending.remove(&step.order);
        self.dropped.push(id.clone());
        if was_fresh {
            self.fresh.retain(|command| !matches!(command, Command::Step(fresh) if fresh == id));
        }
    }

    fn resolve(&mut self, id: &StepId, done: Done) -> Vec<Waker> {
        let Some(step) = self.steps.get_mut(id) else {
            // Changed code may ask for it later.
            if let Some(recorded) = self.recorded.get_mut(id) {
                recorded.revealed = Some(done);
            }
            return Vec::new();
        };
        if !step.is_pending() {
            return Vec::new();
        }
        self.pending.remove(&step.order);
        step.standing = Standing::Resolved(done);
        step.launch = None;
        step.waker.take().into_iter().collect()
    }

    fn cancel(&mut self, reason: Arc<str>) -> Vec<Waker> {
        self.cancelled.get_or_insert(reason);
        let mut wakers = std::mem::take(&mut self.cancel_wakers);
        for id in self.pending.values() {
            let Some(step) = self.steps.get_mut(id).filter(|step| !step.shielded) else { continue };
            wakers.extend(step.waker.clone());
        }
        wakers
    }

    fn cannot_read(&mut self, message: &str) -> Vec<Waker> {
        let message = format!("an entry of the journal cannot be read: {message}");
        self.trouble.get_or_insert(Trouble::new(BlockCause::Decode, message));
        Vec::new()
    }
}

fn key_of(identity: &Identity, parts: &StepParts, use_number: u64) -> String {
    if parts.kind == StepKind::Call {
        let parts = StepParts { name: Arc::from(format!("call/{}", parts.name)), ..parts.clone() };
        return idempotency_key(&identity.run_id, identity.generation, &parts, use_number);
    }
    idempotency_key(&identity.run_id, identity.generation, parts, use_number)
}
