//! What a store writes together with a run's header. It knows no rule: every list here is written as it stands.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Parent;
use super::identity::StepId;
use super::place::{RunId, RunPlace};
use crate::names::{EventName, Reference};
use crate::payload::Payload;
use crate::time::Timestamp;

/// An entry of a journal. Stores and decisions never read its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What it says.
    pub kind: EntryKind,
    /// Of which step.
    pub step: Option<StepId>,
    /// The rest, as JSON.
    pub body: Payload,
}

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// The generation begins, with its input.
    Begin,
    /// The code has issued a step.
    Open,
    /// An attempt of a step that must run at most once begins.
    Start,
    /// An attempt of a task has failed and will be repeated.
    Attempt,
    /// A step has its result.
    Done,
    /// The code has asked which version of itself to follow.
    Mark,
    /// A caller wants the run cancelled.
    Cancel,
    /// The generation ends.
    Close,
}

impl EntryKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [Self::Begin, Self::Open, Self::Start, Self::Attempt, Self::Done, Self::Mark, Self::Cancel, Self::Close];

    /// The word used in journals and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Open => "open",
            Self::Start => "start",
            Self::Attempt => "attempt",
            Self::Done => "done",
            Self::Mark => "mark",
            Self::Cancel => "cancel",
            Self::Close => "close",
        }
    }

    /// The kind of that name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Whether it asks for new work. A full journal takes no more of these.
    pub(super) const fn is_new_work(self) -> bool {
        matches!(self, Self::Open | Self::Start | Self::Mark)
    }

    /// Whether a task has come further with it, so that its owner is not the one that the run kills.
    pub(super) const fn is_progress(self) -> bool {
        matches!(self, Self::Done | Self::Attempt)
    }
}

/// A child that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// The step of the parent that started it.
    pub step: StepId,
    /// Which run it is.
    pub run_id: RunId,
    /// The step that waits for it, maybe together with others.
    pub group: StepId,
    /// What becomes of it when its parent closes.
    pub on_close: ClosePolicy,
}

/// What becomes of an open child when its parent closes or continues as new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosePolicy {
    /// It is cancelled.
    #[default]
    Cancel,
    /// It is terminated.
    Terminate,
    /// It goes on alone.
    Abandon,
}

impl Child {
    /// What the child is told when its parent closes or continues as new.
    pub fn follow(&self) -> Option<Post> {
        let (to, reason) = (self.run_id.clone(), Arc::from("its parent has closed"));
        match self.on_close {
            ClosePolicy::Cancel => Some(Post::Cancel { to, reason }),
            ClosePolicy::Terminate => Some(Post::Terminate { to, reason }),
            ClosePolicy::Abandon => None,
        }
    }
}

/// A notice to another run, maybe in another place. It is stored with the move that causes it and sent until it has arrived. Each kind can
/// arrive twice without harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Post {
    /// Create this child.
    Create(Box<ChildStart>),
    /// A child of yours has closed.
    ChildClosed {
        /// Its parent.
        to: RunId,
        /// The step of the parent that started it.
        step: StepId,
        /// Which run it is.
        run_id: RunId,
        /// Whether it completed.
        completed: bool,
        /// How it ended: the body of the last entry of its journal.
        outcome: Payload,
    },
    /// You are cancelled.
    Cancel {
        /// Which run.
        to: RunId,
        /// Why, for people.
        reason: Arc<str>,
    },
    /// You are terminated.
    Terminate {
        /// Which run.
        to: RunId,
        /// Why, for people.
        reason: Arc<str>,
    },
    /// An event for you.
    Send {
        /// Which run.
        to: RunId,
        /// What it is called.
        name: EventName,
        /// Its data.
        data: Payload,
        /// The step that sends it. The same one is the same event.
        reference: Reference,
    },
}

impl Post {
    /// The run that it is for.
    pub fn to(&self) -> &RunId {
        match self {
            Self::Create(start) => &start.run_id,
            Self::ChildClosed { to, .. } | Self::Cancel { to, .. } | Self::Terminate { to, .. } | Self::Send { to, .. } => to,
        }
    }
}

/// A child to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStart {
    /// Which run: it follows from the parent's step.
    pub run_id: RunId,
    /// Its workflow, version and shard.
    pub place: RunPlace,
    /// The first entry of its journal, with the input.
    pub begin: Entry,
    /// How long it can be read after it has closed.
    #[serde(with = "super::as_millis")]
    pub retain: Duration,
    /// The run that waits for it.
    pub parent: Parent,
}

/// A fact in a run's inbox: what came from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Its number in the run, from 1.
    pub number: u64,
    /// When it came.
    pub at: Timestamp,
    /// What it says.
    pub kind: FactKind,
}

/// What a fact says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactKind {
    /// An event.
    Event {
        /// What it is called.
        name: EventName,
        /// Its data.
        data: Payload,
    },
    /// The timer of this step is due.
    TimerDue(StepId),
    /// A child has closed.
    ChildClosed {
        /// The step that started it.
        step: StepId,
        /// Whether it completed.
        completed: bool,
        /// How it ended.
        outcome: Payload,
    },
    /// A caller wants the run cancelled.
    Cancel {
        /// Why, for people.
        reason: Arc<str>,
    },
}

impl FactKind {
    /// About how many bytes it has.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Event { name, data } => name.as_str().len() + data.len(),
            Self::ChildClosed { outcome, .. } => outcome.len(),
            Self::Cancel { reason } => reason.len(),
            Self::TimerDue(_) => 0,
        }
    }

    /// Whether it outlives the generation: it belongs to no step.
    pub const fn outlives_generation(&self) -> bool {
        matches!(self, Self::Event { .. } | Self::Cancel { .. })
    }
}

/// Which facts leave the inbox, whatever their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForgottenFacts {
    /// None.
    #[default]
    None,
    /// All but events and a cancellation: their steps are of the generation that ends.
    OfSteps,
    /// All.
    All,
}

/// What a store writes together with the header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Entries to append to the journal. The first one gets the number that the header had for the next one.
    pub entries: Vec<Entry>,
    /// The generation ends with these entries, and the next one begins with this entry.
    pub begins: Option<Entry>,
    /// The fact that the command brought goes into the inbox, under this number.
    pub fact: Option<u64>,
    /// A fact that says that the run is cancelled goes into the inbox, under this number: the generation before has consumed the first one.
    pub cancels_again: Option<u64>,
    /// Numbers of facts that leave the inbox.
    pub consumed: Vec<u64>,
    /// Facts that leave the inbox besides.
    pub forgotten: ForgottenFacts,
    /// Timers of steps to arm.
    pub armed: Vec<(StepId, Timestamp)>,
    /// Timers of steps to disarm.
    pub disarmed: Vec<StepId>,
    /// All timers of steps are disarmed.
    pub disarms_all: bool,
    /// Children that are open from now on.
    pub children: Vec<Child>,
    /// The child of this step is not open any more.
    pub closed_child: Option<StepId>,
    /// The open children follow their policy: a post for each, and none is open any more.
    pub children_follow: bool,
    /// Posts to store and send.
    pub posts: Vec<Post>,
    /// The parent is told that this run has closed.
    pub tells_parent: bool,
    /// Values that the code has published, by key.
    pub published: Vec<(Arc<str>, Payload)>,
    /// The owner should look: there is a fact, or a person has asked for something.
    pub notifies_owner: bool,
}
