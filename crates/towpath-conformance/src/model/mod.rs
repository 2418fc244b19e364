//! The promise made readable: a whole store in plain maps under one mutex. What it answers, every store answers.
//!
//! Each method of the traits is one transition: take the lock, ask the clock once, decide with [`towpath_core::call::step`], save, and
//! tell whoever waits. What the traits leave open is settled here, beside the code that does it:
//!
//! | room | what is settled there |
//! |---|---|
//! | `records` | what is kept, and what counts as healthy, as backlog, as running |
//! | `calls` | the order in which a submit is judged, who is told of an end, replay and its key |
//! | `claim` | which calls a claim gets, and who is served first when several wait |
//! | `registry` | when the count of changes rises, what may be forgotten |
//! | `limits` | where a rule's state is kept, and what a reset counts |
//! | `locks`, `permits` | what an execution holds, when a lock is due |
//! | `batches` | what counts as open, whose batch is in flight, how lists are paged |
//! | `runs` | in which order runs are claimed, when a start is the same, when a post has arrived |
//! | `timers` | which timers are due, and in which order they fire |
//! | `inspect` | how lists are ordered and paged |

mod batches;
mod calls;
mod claim;
mod ears;
mod inspect;
mod limits;
mod locks;
mod old_caller;
mod permits;
mod records;
mod registry;
mod runs;
mod timers;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use towpath_core::call::{CallCommand, CallReply, CallState, step};
use towpath_core::clock::Clock;
use towpath_core::names::CallId;
use towpath_core::store::CallNews;
use towpath_core::time::Timestamp;

use ears::Ears;
use records::Records;

/// A store in memory. Clones share it.
///
/// ```
/// use std::sync::Arc;
/// use towpath_conformance::model::ModelStore;
/// use towpath_core::clock::VirtualClock;
/// use towpath_core::store::Store;
///
/// let clock = VirtualClock::new();
/// let store: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::new(clock)));
/// ```
#[derive(Clone)]
pub struct ModelStore {
    shared: Arc<Shared>,
}

struct Shared {
    /// The clock that judges.
    clock: Arc<dyn Clock>,
    /// One lock for everything, so that a transition is atomic without a thought.
    state: Mutex<State>,
    /// Counts transitions: whoever waits looks again after each.
    transitions: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// What a restart keeps.
    records: Records,
    /// Who listens; a restart loses them all.
    ears: Ears,
}

impl ModelStore {
    /// An empty store that lives by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with(clock, Records::default())
    }

    /// What another process would find if this one stopped now: the same records, and nobody listening.
    /// This store is left behind as it was.
    pub fn reopened(&self) -> Self {
        let mut records = self.lock().records.clone();
        // The count of changes is a process's own; whoever starts at 0 shall see that there is something to see.
        records.function_changes = u64::from(!records.functions.is_empty());
        records.runs.reopen();
        Self::with(Arc::clone(&self.shared.clock), records)
    }

    fn with(clock: Arc<dyn Clock>, records: Records) -> Self {
        let state = Mutex::new(State { records, ears: Ears::default() });
        Self { shared: Arc::new(Shared { clock, state, transitions: watch::Sender::new(0) }) }
    }

    /// One atomic move. Claims that wait are served within it, so work never lies idle beside a worker that waits for it.
    fn transition<R>(&self, change: impl FnOnce(&mut State, Timestamp) -> R) -> R {
        let reply = {
            let mut state = self.lock();
            let now = self.shared.clock.now();
            state.records.remove_gone(now);
            let reply = change(&mut state, now);
            state.serve_waiting_claims(now);
            reply
        };
        self.shared.transitions.send_modify(|count| *count += 1);
        reply
    }

    /// Looks, and changes nothing that anybody waits for.
    fn look<R>(&self, at: impl FnOnce(&mut State, Timestamp) -> R) -> R {
        let mut state = self.lock();
        let now = self.shared.clock.now();
        state.records.remove_gone(now);
        at(&mut state, now)
    }

    /// Looks after every transition until something is found, or until the clock reaches `until`.
    async fn look_until<R>(&self, until: Option<Timestamp>, mut at: impl FnMut(&mut State, Timestamp) -> Option<R>) -> Option<R> {
        let mut transitions = self.shared.transitions.subscribe();
        let mut over = match until {
            Some(until) => self.shared.clock.sleep_until(until),
            None => Box::pin(std::future::pending()),
        };
        loop {
            if let Some(found) = self.look(&mut at) {
                return Some(found);
            }
            tokio::select! {
                biased;
                // The sender lives in `self`, so this never fails.
                _ = transitions.changed() => {}
                () = &mut over => return None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A case that fails in mid-transition fails its test; whoever looks at the rest afterwards may.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Puts one command to a call: load, decide, save, tell. Nothing else changes a call that was taken. `None`: there is no such call.
    fn put(&mut self, call_id: &CallId, command: CallCommand, now: Timestamp) -> Option<CallReply> {
        let record = self.records.record_mut(call_id).filter(|record| !record.call.is_gone(now))?;
        let before = record.call.state;
        let (call, reply) = step(record.call.clone(), command, now);
        record.call = call.clone();
        if !before.has_ended() && call.state.has_ended() {
            self.ears.tell(call_id, &CallNews::of_end(&call));
        } else if before != CallState::Delayed && call.state == CallState::Delayed {
            self.ears.tell(call_id, &CallNews::Changed);
        }
        Some(reply)
    }
}

impl fmt::Debug for ModelStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelStore").field("calls", &self.lock().records.calls.len()).finish_non_exhaustive()
    }
}
