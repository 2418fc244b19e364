//! Calling again after a time-out, as the seeds' callers do: a new call, two seconds later, a few times.

use std::time::Duration;

use super::{Answered, NewCall};
use crate::Towpath;
use crate::error::CallError;

/// The time-outs that a caller bears before it gives up. A call that timed out is over for good, so each try is a new call.
///
/// A call that timed out before a worker took it never ran. One that a worker has had may have done its work, and a new call does it again.
#[derive(Debug)]
pub struct TimeoutRetries {
    left: u32,
    /// The last try that timed out and may have run.
    ran: Option<CallError>,
}

impl TimeoutRetries {
    /// How long a caller waits before it calls again.
    pub const PAUSE: Duration = Duration::from_secs(2);
    /// The most that a call may ask for.
    pub const MAX: u32 = 10;

    /// As many as the call asks for.
    pub fn of(call: &NewCall) -> Self {
        Self { left: call.retries_on_timeout, ran: None }
    }

    /// What to do after a try that failed: `Ok` to call again after [`PAUSE`](Self::PAUSE), or the error that the caller gets.
    pub fn after(&mut self, error: CallError) -> Result<(), CallError> {
        match error {
            CallError::TimedOut { may_have_run, .. } if self.left > 0 => {
                self.left -= 1;
                if may_have_run {
                    self.ran = Some(error);
                }
                Ok(())
            }
            other => Err(self.last(other)),
        }
    }

    /// The error that the caller gets when no further try can be made, if an earlier one may have done its work.
    pub fn take_unknown(&mut self) -> Option<CallError> {
        self.ran.take()
    }

    /// The error that the caller gets when there is no further try after this one: that of an earlier try, if that one may have done its
    /// work and this one certainly did nothing.
    pub fn last(&mut self, error: CallError) -> CallError {
        if has_no_effect(&error) { self.ran.take().unwrap_or(error) } else { error }
    }
}

fn has_no_effect(error: &CallError) -> bool {
    use towpath_core::store::StoreError;
    match error {
        CallError::Failed { .. } | CallError::Cancelled { .. } | CallError::Decode { .. } => false,
        CallError::TimedOut { may_have_run, .. } => !may_have_run,
        CallError::Store { error, .. } => matches!(error, StoreError::Unavailable(_)),
        _refused_before_it_was_taken => true,
    }
}

impl Towpath {
    /// Submits a call and waits for its outcome; again as a new call after a time-out, if the call asks for that.
    pub async fn call_raw(&self, call: NewCall) -> Result<Answered, CallError> {
        self.call_within(call, |_| {}).await
    }

    /// The same; `cap` shortens each try to the time that its caller has left.
    pub(crate) async fn call_within(&self, mut call: NewCall, cap: impl Fn(&mut NewCall) + Send + Sync) -> Result<Answered, CallError> {
        if call.retries_on_timeout == 0 {
            cap(&mut call);
            return self.submit(call).await?.answer().await;
        }
        Box::pin(self.call_again(call, cap)).await
    }

    async fn call_again(&self, call: NewCall, cap: impl Fn(&mut NewCall) + Send + Sync) -> Result<Answered, CallError> {
        let mut retries = TimeoutRetries::of(&call);
        loop {
            let mut next = call.clone();
            cap(&mut next);
            let tried = match self.submit(next).await {
                Ok(submitted) => submitted.answer().await,
                Err(error) => Err(error),
            };
            match tried {
                Ok(answered) => return Ok(answered),
                Err(error) => retries.after(error)?,
            }
            self.clock().sleep_until(self.clock().now() + TimeoutRetries::PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_core::names::{CallId, FunctionKey, FunctionName};
    use towpath_core::payload::Payload;

    use super::*;
    use crate::error::Phase;

    fn retries(left: u32) -> TimeoutRetries {
        let function = FunctionKey::global(FunctionName::new("f").expect("a name"));
        TimeoutRetries::of(&NewCall { retries_on_timeout: left, ..NewCall::new(function, Payload::from_json("{}")) })
    }

    fn timed_out(id: &str, phase: Phase) -> CallError {
        CallError::TimedOut { call_id: CallId::new(id).expect("an id"), phase, may_have_run: phase == Phase::Running }
    }

    fn heard(result: Result<(), CallError>) -> String {
        match result {
            Err(CallError::TimedOut { call_id, phase, .. }) => format!("{call_id} {phase:?}"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn as_many_timeouts_are_borne_as_asked_for() {
        let mut retries = retries(2);
        assert!(retries.after(timed_out("a", Phase::Queued)).is_ok());
        assert!(retries.after(timed_out("b", Phase::Queued)).is_ok());
        assert_eq!(heard(retries.after(timed_out("c", Phase::Queued))), "c Queued");
    }

    #[test]
    fn a_try_that_may_have_run_is_not_hidden_by_one_that_did_nothing() {
        let mut one = retries(2);
        assert!(one.after(timed_out("ran", Phase::Running)).is_ok());
        assert!(one.after(timed_out("b", Phase::Queued)).is_ok());
        assert_eq!(heard(one.after(timed_out("c", Phase::Queued))), "ran Running");
        let mut failed = retries(1);
        let call_id = CallId::new("failed").expect("an id");
        assert!(failed.after(CallError::TimedOut { call_id, phase: Phase::Queued, may_have_run: true }).is_ok());
        assert_eq!(heard(failed.after(timed_out("b", Phase::Queued))), "failed Queued");
        let mut other = retries(2);
        assert!(other.after(timed_out("ran", Phase::Running)).is_ok());
        let function = FunctionKey::global(FunctionName::new("f").expect("a name"));
        assert_eq!(heard(other.after(CallError::NoWorkers { function })), "ran Running");
    }

    #[test]
    fn any_other_end_is_final() {
        let mut retries = retries(3);
        let call_id = CallId::new("a").expect("an id");
        assert!(matches!(retries.after(CallError::Cancelled { call_id }), Err(CallError::Cancelled { .. })));
    }
}
