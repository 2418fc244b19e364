//! Replay: runs the code against its journal until it has seen all of it, and judges whether it is the same code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use towpath_core::payload::Payload;
use towpath_core::run::{BlockCause, Run};

use super::code::{Code, Polled, Poller, Served, panic_text};
use super::context::WorkflowContext;
use super::execution::{Command, Execution, Identity, Reveal, Trouble};
use super::recorded::Journal;
use crate::error::HandlerError;

/// The code of a run, as far as it has come.
pub(crate) struct Progress {
    pub(crate) execution: Arc<Execution>,
    code: Code,
    pub(crate) poller: Poller,
    /// What the code has returned.
    pub(crate) returned: Option<Result<Payload, HandlerError>>,
}

impl Progress {
    /// Begins the code and shows it its journal. Afterwards [`Execution`] says what is new, or what is wrong.
    pub(crate) fn replay(served: &dyn Served, run: &Run, journal: Journal) -> Result<Self, Trouble> {
        let Journal { begin, steps, marks, reveals, first, .. } = journal;
        let identity = Identity {
            run_id: run.run_id.clone(),
            place: run.place.clone(),
            generation: run.generation,
            seed: Arc::clone(&begin.seed),
            parent: run.parent.clone(),
        };
        let execution = Arc::new(Execution::new(identity, steps, marks, first));
        execution.lock().hidden = reveals.len();
        let input = begin.v.unwrap_or_else(Payload::null);
        let code = catch_unwind(AssertUnwindSafe(|| served.begin(&input, WorkflowContext::new(&execution))));
        let code = code.map_err(|panic| panicked(panic_text(panic.as_ref())))?.map_err(|error| Trouble::new(BlockCause::Decode, error))?;
        let mut progress = Self { execution, code, poller: Poller::new(), returned: None };
        progress.poll(Vec::new());
        for reveal in reveals {
            if progress.is_over() {
                break;
            }
            progress.show(reveal, true);
        }
        progress.judge();
        Ok(progress)
    }

    /// Shows an entry to the code and polls it.
    pub(crate) fn show(&mut self, reveal: Reveal, is_recorded: bool) {
        let wakers = self.execution.reveal(reveal);
        if is_recorded {
            let mut state = self.execution.lock();
            state.hidden = state.hidden.saturating_sub(1);
        }
        self.poll(wakers);
    }

    /// Whether the code is not to be polled again.
    pub(crate) fn is_over(&self) -> bool {
        self.returned.is_some() || self.execution.lock().trouble.is_some()
    }

    fn poll(&mut self, wakers: Vec<Waker>) {
        match self.poller.poll(&mut self.code, wakers) {
            Polled::Waits => {}
            Polled::Returned(result) => self.returned = Some(result),
            Polled::Panicked(message) => self.execution.fail(panicked(&message)),
            Polled::Spins => self.execution.fail(self.foreign("it wakes itself without end")),
        }
    }

    /// The code waits for something that is not durable.
    pub(crate) fn foreign(&self, how: &str) -> Trouble {
        let place = self.execution.lock().last_call.map_or_else(|| "no step yet".to_owned(), ToString::to_string);
        let message = format!(
            "the code waits for something that is not a step of the run ({how}); its last step is at {place}. Do such work in a task"
        );
        Trouble::new(BlockCause::ForeignAwait, message)
    }

    /// Whether the code does what its journal says (decision 051).
    fn judge(&self) {
        let mut state = self.execution.lock();
        if state.trouble.is_some() || state.unbound == 0 {
            return;
        }
        let mut unbound: Vec<_> = state.recorded.values().filter(|recorded| !recorded.is_bound).collect();
        unbound.sort_by_key(|recorded| recorded.number);
        let has_returned_early =
            self.returned.is_some() && unbound.iter().any(|recorded| recorded.has_result && recorded.revealed.is_none());
        let expected: Vec<String> = unbound.iter().map(|recorded| recorded.open.title()).collect();
        let new = |command: &Command| match command {
            Command::Step(id) => state.steps.get(id).map(|step| step.open.title()),
            Command::Mark(..) => None,
        };
        let mut found: Vec<String> = state.fresh.iter().filter_map(new).collect();
        if found.is_empty() && !has_returned_early {
            tracing::warn!(run = %self.execution.identity.run_id, steps = ?expected, "removed_steps: the journal has steps that the code does not ask for");
            return;
        }
        if has_returned_early {
            found.push("the end of the code".to_owned());
        }
        let message = format!("the journal has [{}] where the code has [{}]", expected.join(", "), found.join(", "));
        state.trouble = Some(Trouble { cause: BlockCause::Nondeterminism, message, expected, found });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // The code is dropped after this; nothing is abandoned by that.
        self.execution.end();
    }
}

fn panicked(message: &str) -> Trouble {
    Trouble::new(BlockCause::Panicked, format!("the code panicked: {message}"))
}
