//! What is asked of a run, and what became of it.

use towpath_core::names::{EventName, Reference};
use towpath_core::payload::Payload;
use towpath_core::run::{Commit, FactKind, Parent, Run, RunCommand, RunId, RunReply, RunState, StepId};
use towpath_core::store::{NewEvent, StartRun, StoreError};

use super::rows::Loaded;
use crate::lane::Kind;

/// What is asked of a run.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) run_id: RunId,
    pub(super) what: What,
    /// A post brings it: the store has accepted it before.
    pub(super) is_post: bool,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// Create it, unless it exists. It receives the event in the same move.
    Create { start: Box<StartRun>, parent: Option<Parent>, event: Option<NewEvent> },
    /// Give it to a worker that was delivered its entry.
    Claim { command: RunCommand, seen: Box<Loaded> },
    /// What needs nothing but the header, and the fact that it brings.
    Plain { command: RunCommand, fact: Option<FactKind> },
    /// Take what its owner has come to.
    Commit(Box<Commit>),
    /// Put an event into its inbox.
    Send(NewEvent),
    /// A child has closed.
    ChildClosed { step: StepId, run_id: RunId, completed: bool, outcome: Payload },
}

impl Kind for Move {
    fn bytes(&self) -> usize {
        match &self.what {
            What::Create { start, .. } => start.begin.body.len(),
            What::Commit(commit) => commit.entries.iter().map(|entry| entry.body.len()).sum(),
            What::Send(event) => event.data.len(),
            What::ChildClosed { outcome, .. } => outcome.len(),
            What::Claim { .. } | What::Plain { .. } => 0,
        }
    }
}

impl Move {
    pub(super) const fn of(run_id: RunId, what: What) -> Self {
        Self { run_id, what, is_post: false }
    }

    pub(super) fn plain(run_id: RunId, command: RunCommand, fact: Option<FactKind>) -> Self {
        Self::of(run_id, What::Plain { command, fact })
    }

    /// Whether it must be the first of those that go together: it needs rows that an earlier one may have changed, or takes an entry.
    pub(super) const fn goes_first(&self) -> bool {
        matches!(self.what, What::Commit(_) | What::Claim { .. })
    }

    /// Whether it is a move of the run's owner: others follow soon.
    pub(super) const fn is_owners(&self) -> bool {
        let is_claim = matches!(self.what, What::Plain { command: RunCommand::Renew { .. } | RunCommand::TakeOver { .. }, .. });
        is_claim || matches!(self.what, What::Claim { .. } | What::Commit(_))
    }

    /// Whether the hash of the run is not all that it needs.
    pub(super) fn needs_rows(&self) -> bool {
        match &self.what {
            What::Commit(commit) => !commit.consumed.is_empty(),
            What::Send(event) => event.reference.is_some(),
            What::ChildClosed { .. } | What::Create { .. } => true,
            What::Claim { .. } | What::Plain { .. } => false,
        }
    }

    /// Whether it takes something new, for which full memory has no room.
    pub(super) const fn is_new(&self) -> bool {
        !self.is_post && matches!(self.what, What::Create { .. } | What::Send(_))
    }

    /// Whether its answer promises that something is kept. Claims, renewals and timers promise nothing: an answer that says "unknown" because too few
    /// replicas have confirmed would only keep a worker from a run that it has.
    pub(super) const fn promises(&self) -> bool {
        match &self.what {
            What::Create { .. } | What::Commit(_) | What::Send(_) | What::ChildClosed { .. } => true,
            What::Plain { command, .. } => {
                matches!(command, RunCommand::Cancel { .. } | RunCommand::Terminate { .. } | RunCommand::Pause | RunCommand::Resume)
            }
            What::Claim { .. } => false,
        }
    }

    /// The event whose reference must be looked up.
    pub(super) fn event(&self) -> Option<String> {
        let What::Send(event) = &self.what else { return None };
        event.reference.as_ref().map(|reference| known_field(&event.name, reference))
    }

    /// The step whose open child must be looked up.
    pub(super) fn step(&self) -> Option<&StepId> {
        if let What::ChildClosed { step, .. } = &self.what { Some(step) } else { None }
    }

    pub(super) fn consumed(&self) -> &[u64] {
        if let What::Commit(commit) = &self.what { &commit.consumed } else { &[] }
    }
}

pub(super) fn known_field(name: &EventName, reference: &Reference) -> String {
    format!("{name}\n{reference}")
}

/// What became of a move.
pub(super) type Made = Result<Outcome, StoreError>;

#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// There is no such run.
    None,
    /// The run is new.
    Created,
    /// The run was there before it should be created.
    Exists { state: RunState, input_hash: String },
    /// The run answered, and stands so now. `version`: that which was loaded.
    Replied { reply: RunReply, run: Box<Run>, version: String },
}

impl Outcome {
    pub(super) fn reply(self) -> Option<RunReply> {
        if let Self::Replied { reply, .. } = self { Some(reply) } else { None }
    }
}
