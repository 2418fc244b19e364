//! What every store promises: one function per promise, named by a sentence that can be false.
//!
//! A new case stands in the room of its move and in the list in `suite.rs`; a test compares the two.

pub mod batches;
pub mod calls;
pub mod inspect;
pub mod locks;
pub mod permits;
pub mod rate_limits;
pub mod registry;
pub mod reopen;
pub mod runs;
pub mod timers;

pub use batches::{
    claim as batches_claim, dead_letters as batches_dead_letters, finish as batches_finish, ingest as batches_ingest,
    lists as batches_lists, reopen as batches_reopen, seal as batches_seal, settings as batches_settings, wakes as batches_wakes,
};
pub use calls::{answer, cancel, claim, dead_letter, lease, limits, retry, submit, waiting, watch};
pub use locks::{
    acquire as locks_acquire, cleanup as locks_cleanup, lease as locks_lease, old_callers as locks_old_callers, queue as locks_queue,
    release as locks_release, turns as locks_turns,
};
pub use runs::{
    children as runs_children, claim as runs_claim, commit as runs_commit, events as runs_events, lists as runs_lists,
    owners as runs_owners, requests as runs_requests, start as runs_start, timers as runs_timers,
};
