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
use towpath_core::run::{BlockCause, EntryKind, Parent, RunId, RunPlace, StepId, StepKey, StepKind, StepParts};
use towpath_core::time::Timestamp;

use super::admission::Needs;
use super::body::{Cancel, Done, Mark, Open, read};
use super::recorded::Recorded;
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
    pub(crate) needs: Needs,
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
    /// Until the journal has the step.
    pub(crate) input: Option<Payload>,
    pub(crate) launch: Option<Launch>,
    pub(crate) needs: Needs,
    pub(crate) child: Option<RunPlace>,
    /// The same for every attempt and every delivery.
    pub(crate) idempotency_key: Arc<str>,
    pub(crate) standing: Standing,
    /// Attempts that have failed.
    pub(crate) attempts: u32,
    /// The latest attempt that the journal has a `start` of.
    pub(crate) started: u32,
    pub(super) shielded: bool,
    pub(super) waker: Option<Waker>,
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
    pub(super) shields: u32,
    pub(super) cancel_wakers: Vec<Waker>,
    pub(super) occurrences: HashMap<StepParts, u64>,
    pub(super) uses: HashMap<StepParts, u64>,
    pub(super) draws: HashMap<(Vec<Arc<str>>, Arc<str>), u64>,
    pub(super) orders: u64,
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
        let steps = {
            let mut state = self.lock();
            state.is_over = true;
            std::mem::take(&mut state.steps)
        };
        // Their tasks may hold what holds this.
        drop(steps);
    }
}
