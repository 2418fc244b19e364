//! The store seam: one trait per capability, one method per atomic move. The store's clock judges: lengths go in, instants come out.
//!
//! What a caller must be ready for is a value of the reply: a lost lease, a duplicate, an overload. A [`StoreError`] is for what the
//! caller did not cause.

mod calls;
mod error;
mod inspect;
mod registry;
mod timers;

pub use calls::{
    CallNews, CallStore, CallWatch, Cancelled, ClaimCalls, ClaimFunction, CompleteCalls, Completed, Delivery, Ended, RenewCalls, Renewal,
    Replayed, SubmitCall, Submitted,
};
pub use error::{StoreError, StoreTrouble};
pub use inspect::InspectStore;
pub use registry::{ConfigView, Heartbeat, RegistryStore, SetConfig};
pub use timers::{Fired, TimerStore};

use serde::{Deserialize, Serialize};

/// A whole store.
pub trait Store: CallStore + RegistryStore + TimerStore + InspectStore {}

impl<T: CallStore + RegistryStore + TimerStore + InspectStore + ?Sized> Store for T {}

/// What an acknowledgement is worth. Named in every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Durability {
    /// Gone with the process.
    Memory,
    /// On disk before the answer: a killed process and a power cut keep it.
    Fsync,
}

impl Durability {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Fsync => "fsync",
        }
    }
}
