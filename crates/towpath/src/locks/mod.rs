//! Locks, semaphores and read/write locks: only one of us at a time, or so many, and free again when the holder dies.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use towpath::locks::{Acquired, LockWait};
//! use towpath::Towpath;
//!
//! let towpath = Towpath::open("memory:").await?;
//! match towpath.lock("excel-fileId-123").ttl(Duration::from_secs(600)).wait(LockWait::UpTo(Duration::from_secs(30))).acquire().await? {
//!     Acquired::Granted(guard) => {
//!         // The protected resource refuses a fence smaller than the largest it has seen.
//!         let write = async { guard.fence() };
//!         tokio::select! {
//!             fence = write => println!("written under fence {fence}"),
//!             why = guard.lost() => println!("stop, and write nothing more: {why:?}"),
//!         }
//!         guard.release().await?;
//!     }
//!     Acquired::Held(blocked) | Acquired::TimedOut(blocked) => println!("not now: {blocked}"),
//!     other => println!("not for this caller: {other:?}"),
//! }
//! # towpath.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! Exclusion is by lease. A guard renews its lease for as long as it lives, up to the lock's `ttl`; a process that is paused can outlive
//! its lease all the same. That is what the fence is for: it rises with every grant.
//!
//! | room | what is in it |
//! |---|---|
//! | [`LockBuilder`], [`SemaphoreBuilder`], [`RwBuilder`], [`LockAllBuilder`] | asking, with or without waiting |
//! | [`LockGuard`], [`LockGuards`] | holding: fence, loss, release |
//! | [`Cleanup`], [`Cleaned`] | freeing what a failed execution held |
//! | [`LockQuery`], [`LockView`], [`PermitView`] | looking: [`Towpath::locks_in_use`](crate::Towpath::locks_in_use) and its kin |
//! | [`n8n`] | the same in the words of the seed's n8n nodes: `lock_acquisition`, `lock_release`, `error_handler_lock_cleanup` |

mod all;
mod answer;
mod builder;
mod cleanup;
mod error;
mod guard;
mod look;
pub mod n8n;
mod permits;
mod question;
mod registered;
mod renewal;
mod switchboard;
mod wait;

pub use all::{AcquiredAll, LockAllBuilder, LockGuards};
pub use answer::{Acquired, Blocked};
pub use builder::{LockBuilder, LockWait};
pub use cleanup::{Cleaned, Cleanup};
pub use error::LockError;
pub use guard::LockGuard;
pub use permits::{RwBuilder, SemaphoreBuilder};
pub use question::{Entry, Question, Terms};
pub(crate) use switchboard::Switchboard;
pub use wait::Waited;

pub use towpath_core::inspect::{LockPage, LockQuery, LockView, PermitPage, PermitView};
pub use towpath_core::lock::{Fence, Holder, HolderKind, LostLock, ReleaseReply as Released};
pub use towpath_core::names::{ExecutionId, LockId, LockScope, RequestId};
pub use towpath_core::permit::PermitKind;
pub use towpath_core::store::HeldScope;
