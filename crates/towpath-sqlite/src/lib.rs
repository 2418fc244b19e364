//! Towpath's embedded store: one SQLite file, one thread that writes, group commit, `synchronous=FULL`.
//!
//! ```
//! use std::sync::Arc;
//! use towpath_core::clock::VirtualClock;
//! use towpath_core::store::InspectStore;
//! use towpath_sqlite::{Location, OpenOptions, SqliteStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let options = OpenOptions { location: Location::Memory, owner: "the example".into(), renew_leases: true };
//! let store = SqliteStore::open(&options, Arc::new(VirtualClock::new()))?;
//! assert!(store.functions().await?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })
//! # }
//! ```
//!
//! | room | what is in it |
//! |---|---|
//! | `open`, `files` | path, lock file, pragmas, migrations; whether the files are still there |
//! | `writer` | the one thread that writes: takes what piled up, one transaction, one commit, then all answers |
//! | `memory` | what the writer knows by heart: functions, workers, counts; rebuilt from the file whenever in doubt |
//! | `rows` | records to columns and back |
//! | `calls`, `claims`, `registry`, `locks`, `permits`, `limits`, `batches`, `runs`, `timers`, `inspect` | the moves |
//! | `gone` | removes the rows of calls whose retention is over |
//! | `waiters` | the queues of locks and permits |
//! | `ears` | wake-ups after a commit |
//! | [`floor`] | the bare loop that the store is measured against |

mod ahead;
mod batches;
mod calls;
mod claims;
mod ears;
mod files;
pub mod floor;
mod gone;
mod inspect;
mod jobs;
mod limits;
mod lists;
mod locks;
mod memory;
mod open;
mod permits;
#[cfg(test)]
mod plans;
mod registry;
mod retention;
mod rows;
mod runs;
mod store;
mod timers;
mod trouble;
mod unreadable;
mod waiters;
mod writer;
#[cfg(test)]
mod writer_tests;

pub use open::{Location, OpenError, OpenOptions};
pub use store::SqliteStore;
