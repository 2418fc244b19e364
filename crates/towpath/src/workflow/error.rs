//! Why a run did not do what its caller wanted.

use thiserror::Error;
use towpath_core::call::Failure;
use towpath_core::names::InvalidName;
use towpath_core::run::{RunId, RunState};
use towpath_core::store::StoreError;

use crate::error::store_error_code;

/// Why a run did not do what its caller wanted.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// A name, version, shard or reference that cannot be one.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The input or the data of an event cannot be used. Nothing was started or sent.
    #[error("{message}")]
    InvalidInput {
        /// What to change.
        message: String,
    },
    /// The store keeps no runs.
    #[error("this store keeps no runs: open one that does, such as 'sqlite:./.towpath'")]
    NoRunStore,
    /// The reference belongs to a run with another input. Nothing was started.
    #[error("the reference belongs to run '{run_id}', which was started with another input: use another reference")]
    ReferenceConflict {
        /// Which run has it.
        run_id: RunId,
    },
    /// There is no such run, or its retention is over.
    #[error("there is no run '{run_id}'")]
    NotFound {
        /// Which was asked for.
        run_id: RunId,
    },
    /// The run has closed. Nothing was done.
    #[error("run '{run_id}' has closed: it is {state}")]
    Closed {
        /// Which run.
        run_id: RunId,
        /// How it closed.
        state: RunState,
    },
    /// The run's inbox is full. Nothing was done.
    #[error("the inbox of run '{run_id}' is full: send the event again later")]
    MailboxFull {
        /// Which run.
        run_id: RunId,
    },
    /// The code of the run ended with an error.
    #[error("run '{run_id}' failed: {} ({})", failure.message, failure.code)]
    Failed {
        /// Which run.
        run_id: RunId,
        /// What went wrong.
        failure: Failure,
    },
    /// The run was cancelled.
    #[error("run '{run_id}' was cancelled: {reason}")]
    Cancelled {
        /// Which run.
        run_id: RunId,
        /// Why.
        reason: String,
    },
    /// The run was terminated.
    #[error("run '{run_id}' was terminated: {reason}")]
    Terminated {
        /// Which run.
        run_id: RunId,
        /// Why.
        reason: String,
    },
    /// The result is not of the type that was asked for.
    #[error("the result of run '{run_id}' is not what was asked for: {message}")]
    Decode {
        /// Which run.
        run_id: RunId,
        /// What does not fit.
        message: String,
    },
    /// The code does not do what the journal of the run says.
    #[error("run '{run_id}' cannot be replayed: {message}")]
    Diverged {
        /// Which run.
        run_id: RunId,
        /// What differs.
        message: String,
    },
    /// The store could not be asked.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl RunError {
    /// A word for programs. It does not change between versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidName(_) => "invalid_name",
            Self::InvalidInput { .. } => "unencodable_input",
            Self::NoRunStore => "no_run_store",
            Self::ReferenceConflict { .. } => "reference_conflict",
            Self::NotFound { .. } => "unknown_run",
            Self::Closed { .. } => "run_closed",
            Self::MailboxFull { .. } => "mailbox_full",
            Self::Failed { .. } => "run_failed",
            Self::Cancelled { .. } => "run_cancelled",
            Self::Terminated { .. } => "run_terminated",
            Self::Decode { .. } => "decode_failed",
            Self::Diverged { .. } => "nondeterminism",
            Self::Store(error) => store_error_code(error),
        }
    }
}
