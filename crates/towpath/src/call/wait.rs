//! Waiting for a call: the news first, and a look at the call itself when no news came in time.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::call::Outcome;
use towpath_core::inspect::CallView;
use towpath_core::names::CallId;
use towpath_core::store::{CallNews, CallWatch, Durability, StoreError};
use towpath_core::time::Timestamp;

use super::{Answered, SubmittedCall};
use crate::Towpath;
use crate::error::{CallError, Phase};

/// A call ends at its deadline; its news may take this much longer.
const GRACE: Duration = Duration::from_secs(1);
/// How often a call that should be over is looked at, a second apart, before the caller is told that nobody knows.
const LOOKS: u32 = 10;

/// How long to wait for a call, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Until when, by the store's clock.
    pub until: Timestamp,
    /// Also stop waiting when there is a progress report with a higher number than this.
    pub after_progress: Option<u32>,
}

impl Towpath {
    /// The call, as soon as it has ended or has the progress that is waited for; as it stands when the wait is over.
    /// `None`: there is no such call, or no longer.
    pub async fn wait(&self, call_id: &CallId, wait: Wait) -> Result<Option<CallView>, StoreError> {
        let mut watch = self.store().watch(call_id);
        loop {
            let view = self.store().call(call_id).await?;
            let over = view.as_ref().is_none_or(|view| view.call.state.has_ended() || has_progressed(view, wait.after_progress));
            if over || self.clock().now() >= wait.until {
                return Ok(view);
            }
            // Whatever is heard, the next look decides: news of the end does not carry the whole view.
            tokio::select! {
                biased;
                _news = watch.next() => {}
                () = async { self.clock().sleep_until(wait.until).await } => {}
            }
        }
    }
}

fn has_progressed(view: &CallView, after: Option<u32>) -> bool {
    match (after, &view.progress) {
        (Some(after), Some((number, _))) => *number > after,
        _ => false,
    }
}

impl SubmittedCall {
    /// Waits for the outcome. It comes at the latest a moment after the call's deadline.
    pub async fn answer(self) -> Result<Answered, CallError> {
        // Someone who listens since before the submit misses nothing; someone who starts now may have missed the end.
        let (mut watch, may_have_missed_it) = match self.watch {
            Some(watch) => (watch, self.state.has_ended()),
            None => (self.towpath.store().watch(&self.call_id), true),
        };
        let caller = Caller { towpath: self.towpath, call_id: self.call_id, durability: self.durability };
        // To look is rare. In a box, because everybody who waits would keep room for it.
        if may_have_missed_it && let Some(result) = Box::pin(caller.look()).await? {
            return result;
        }
        let mut patience_until = self.deadline + GRACE;
        let mut looks_left = LOOKS;
        while looks_left > 0 {
            match caller.listen(watch.as_mut(), patience_until).await {
                Heard::Ended(outcome) if *outcome == Outcome::Expired => return Box::pin(caller.expired()).await,
                Heard::Ended(outcome) => return caller.result(Some(&outcome), true),
                Heard::Doubts => {}
                Heard::NothingInTime => {
                    looks_left -= 1;
                    patience_until = caller.towpath.clock().now() + GRACE;
                }
            }
            match Box::pin(caller.look()).await {
                Ok(Some(result)) => return result,
                Err(error) if looks_left == 0 => return Err(error),
                Ok(None) | Err(_) => {}
            }
        }
        let message = format!("it has not ended {} seconds after its deadline; look it up later", u64::from(LOOKS) * GRACE.as_secs());
        Err(caller.unknown(message))
    }
}

/// Somebody who waits for an outcome.
struct Caller {
    towpath: Towpath,
    call_id: CallId,
    durability: Durability,
}

/// What somebody who waits for an end heard.
enum Heard {
    Ended(Arc<Outcome>),
    /// The call may be gone.
    Doubts,
    NothingInTime,
}

impl Caller {
    /// Waits for the end of the call.
    async fn listen(&self, watch: &mut dyn CallWatch, until: Timestamp) -> Heard {
        let ended = async {
            loop {
                match watch.next().await {
                    CallNews::Ended(outcome) => return Heard::Ended(outcome),
                    CallNews::Doubtful => return Heard::Doubts,
                    CallNews::Changed => {}
                }
            }
        };
        tokio::select! {
            biased;
            heard = ended => heard,
            () = self.towpath.patience().until(until, self.towpath.clock()) => Heard::NothingInTime,
        }
    }

    /// Reads the call; `None` while it has not ended.
    async fn look(&self) -> Result<Option<Result<Answered, CallError>>, CallError> {
        let store = self.towpath.store();
        match self.towpath.retry_lost_replies(|| store.call(&self.call_id)).await {
            Ok(Some(view)) if view.call.state.has_ended() => Ok(Some(self.result(view.call.outcome.as_ref(), view.call.may_have_run()))),
            Ok(Some(_unended)) => Ok(None),
            Ok(None) => {
                let gone = "it is no longer known: its outcome was kept as long as it asked for, or the data of the store was replaced";
                Ok(Some(Err(self.unknown(gone.to_owned()))))
            }
            Err(error) => Err(CallError::Store { call_id: Some(self.call_id.clone()), error }),
        }
    }

    /// The end of a call that waited at its deadline. The news does not say whether it ran before that; if the call cannot be read, it may have.
    async fn expired(&self) -> Result<Answered, CallError> {
        let view = self.towpath.store().call(&self.call_id).await;
        let may_have_run = view.ok().flatten().is_none_or(|view| view.call.may_have_run());
        self.result(Some(&Outcome::Expired), may_have_run)
    }

    fn result(&self, outcome: Option<&Outcome>, may_have_run: bool) -> Result<Answered, CallError> {
        to_result(&self.call_id, outcome, may_have_run, self.durability)
    }

    fn unknown(&self, message: String) -> CallError {
        CallError::Store { call_id: Some(self.call_id.clone()), error: StoreError::Unknown(message) }
    }
}

/// What a caller makes of an outcome.
fn to_result(call_id: &CallId, outcome: Option<&Outcome>, may_have_run: bool, durability: Durability) -> Result<Answered, CallError> {
    let call_id = call_id.clone();
    match outcome {
        Some(Outcome::Ok(data)) => Ok(Answered { call_id, data: data.clone(), durability }),
        Some(Outcome::Failed(failure)) => Err(CallError::Failed { call_id, failure: failure.clone(), dead: None }),
        Some(Outcome::Dead { reason, failure }) => Err(CallError::Failed { call_id, failure: failure.clone(), dead: Some(*reason) }),
        Some(Outcome::TimedOut) => Err(CallError::TimedOut { call_id, phase: Phase::Running, may_have_run: true }),
        Some(Outcome::Expired) => Err(CallError::TimedOut { call_id, phase: Phase::Queued, may_have_run }),
        Some(Outcome::Cancelled) => Err(CallError::Cancelled { call_id }),
        None => {
            let error = StoreError::Corrupt(format!("call '{call_id}' has ended without an outcome"));
            Err(CallError::Store { call_id: Some(call_id), error })
        }
    }
}
