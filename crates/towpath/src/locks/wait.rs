//! Waiting for a lock without polling: asleep until the bell rings, until something ends, or until the place must be kept.

use std::sync::Arc;

use towpath_core::lock::Fence;
use towpath_core::store::{StoreError, StoreTrouble};
use towpath_core::time::Timestamp;

use super::answer::Blocked;
use super::question::{Question, Said, Terms};
use crate::Towpath;
use crate::engine::backoff::Backoff;

/// How often a question that does not wait is repeated when its answer was lost.
const TRIES: u32 = 3;

/// What a question came to at the latest when its time was over. Its place in the queue is kept for a while.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Waited {
    /// The lock is the asker's, under these terms. Nobody renews it.
    Granted(Terms),
    /// Somebody else has it, or goes first.
    Blocked(Blocked),
    /// This lock id has it already and may not enter again.
    SelfHeld {
        /// Its fence.
        fence: Fence,
        /// The end of its lease.
        lease_end: Timestamp,
    },
    /// A late copy of a question whose lock was released before.
    Spent,
    /// More units were asked for than there are.
    Never,
    /// Too many wait already.
    QueueFull {
        /// How many wait.
        waiters: u32,
    },
}

/// An answer, and when its question was sent: from then on the lease counts here.
pub(super) struct Heard {
    pub(super) waited: Waited,
    pub(super) sent_at: Timestamp,
}

impl Towpath {
    /// Asks until the lock is granted or the time is over. The place in the queue is kept either way, for as long as the question says;
    /// whoever asks again with the same question goes on where it was. For edges that speak to callers of their own:
    /// [`Towpath::lock`] is what programs use.
    pub async fn ask_for_lock(&self, question: &Question, until: Timestamp) -> Result<Waited, StoreError> {
        Ok(self.ask_until(question, until).await?.waited)
    }

    /// Takes a question back: its place in the queue, and a grant that nobody learnt of.
    pub async fn take_back_question(&self, question: &Question) -> Result<(), StoreError> {
        question.withdraw(self.store().as_ref()).await
    }

    pub(super) async fn ask_until(&self, question: &Question, until: Timestamp) -> Result<Heard, StoreError> {
        let turn = question.waiter().map(|waiter| self.switchboard().expect(waiter));
        let mut backoff = Backoff::new(self.clock(), "ask for a lock");
        let mut tries = 0;
        loop {
            let sent_at = self.clock().now();
            match question.ask(self.store().as_ref()).await {
                Ok(Said::NotYet { blocked, pause }) => {
                    backoff.succeeded();
                    let now = self.clock().now();
                    let Some(turn) = turn.as_ref().filter(|_| now < until) else {
                        return Ok(Heard { waited: Waited::Blocked(blocked), sent_at });
                    };
                    tokio::select! {
                        () = turn.comes() => {}
                        () = self.clock().sleep_until((now + pause).min(until)) => {}
                    }
                }
                Ok(said) => return Ok(Heard { waited: said.into(), sent_at }),
                // The same question may be put again: if it was granted unseen, the answer is the same.
                Err(error) => {
                    tries += 1;
                    let gives_up = if turn.is_some() { self.clock().now() >= until } else { tries >= TRIES };
                    if gives_up || is_hopeless(&error) {
                        return Err(error);
                    }
                    backoff.failed(error).await?;
                }
            }
        }
    }
}

/// Asking the same again cannot help.
fn is_hopeless(error: &StoreError) -> bool {
    match error {
        StoreError::Corrupt(_) => true,
        StoreError::Unavailable(trouble) => {
            use StoreTrouble::{Broken, Closed, NotAllowed, NotDurable, Removed};
            matches!(trouble, Closed | Broken(_) | Removed(_) | NotAllowed(_) | NotDurable(_))
        }
        StoreError::Unknown(_) => false,
    }
}

impl From<Said> for Waited {
    fn from(said: Said) -> Self {
        match said {
            Said::Granted(terms) => Self::Granted(terms),
            Said::NotYet { blocked, .. } => Self::Blocked(blocked),
            Said::SelfHeld { fence, lease_end } => Self::SelfHeld { fence, lease_end },
            Said::Spent => Self::Spent,
            Said::Never => Self::Never,
            Said::QueueFull { waiters } => Self::QueueFull { waiters },
        }
    }
}

/// Takes a question back when its asker goes away before the answer.
pub(super) struct TakenBack {
    towpath: Towpath,
    question: Option<Arc<Question>>,
}

impl TakenBack {
    pub(super) fn unless_answered(towpath: &Towpath, question: &Arc<Question>) -> Self {
        Self { towpath: towpath.clone(), question: Some(Arc::clone(question)) }
    }

    /// The asker has the answer.
    pub(super) fn answered(mut self) {
        self.question = None;
    }

    /// Takes it back now.
    pub(super) async fn now(self) {
        if let Some(question) = self.question.clone() {
            take_back(self.towpath.clone(), question).await;
        }
        self.answered();
    }
}

/// That it may fail costs the others no more than the place's time.
async fn take_back(towpath: Towpath, question: Arc<Question>) {
    if let Err(error) = question.withdraw(towpath.store().as_ref()).await {
        tracing::warn!(%error, scope = %question.scope(), "a question for a lock could not be taken back; it is forgotten by itself");
    }
}

impl Drop for TakenBack {
    fn drop(&mut self) {
        let Some(question) = self.question.take() else { return };
        // Without a runtime there is nobody to ask: the place is lost after its time.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(take_back(self.towpath.clone(), question));
        }
    }
}
