//! Batches: messages gathered per key until their sender falls silent, then handed over as one. Not here: clocks, keys of stores, waiting.
//!
//! | room | what is in it |
//! |---|---|
//! | [`Settings`], [`SettingsPatch`] | what a batcher does, and how that is written in a file or sent over the wire |
//! | [`Message`], [`key_of`], [`NewMessage`] | a message as it came, for whom it is gathered, what a store needs to know of it |
//! | [`ingest`], [`seal`] | the moves of an open batch |
//! | [`claim`], [`reclaim`], [`extend`], [`finish`] | the moves of a claimed batch |
//! | [`merge()`] | what is sent |
//! | [`CloseReason`] | why a batch was closed |
//! | [`settle`], [`backoff`] | what a delivery's result means, and how long to wait |
//! | [`DeadLetter`] | what could not be delivered |
//!
//! Each move is a pure function of what is kept of one key, the command and an instant. It answers, and says when something is due
//! earlier than before:
//!
//! ```
//! use std::time::Duration;
//! use towpath_core::batch::{IngestReply, KeyState, Known, Message, NewMessage, Rules, ingest};
//! use towpath_core::names::BatchKey;
//! use towpath_core::time::Timestamp;
//!
//! let message = NewMessage {
//!     key: BatchKey::new("a1b2c3d4:telegram:123456789").unwrap(),
//!     body: Message::new(r#"{"text": "Привет"}"#),
//!     message_id: None,
//!     source: None,
//!     debounce: Duration::from_secs(10),
//!     seal: None,
//! };
//! let now = Timestamp::from_millis(1_000);
//! let mut state = KeyState::default();
//! let stepped = ingest(&mut state, &message, &Rules::default(), &Known::default(), now);
//! assert!(matches!(stepped.reply, IngestReply::Accepted { deadline, .. } if deadline == Timestamp::from_millis(11_000)));
//! assert_eq!(stepped.wake, Some(Timestamp::from_millis(11_000)));
//! ```

mod claim;
mod dead_letter;
mod delivery;
mod fields;
mod finish;
mod ingest;
mod key;
mod merge;
mod message;
mod reading;
mod reason;
mod redact;
mod seal;
mod settings;
mod state;

pub use claim::{ClaimBatch, ClaimReply, ClaimedBatch, ExtendBatch, ExtendReply, ReclaimBatch, Skip, Taken, claim, extend, reclaim};
pub use dead_letter::{DeadLetter, DeadReply, NewDeadLetter, ReplayReply};
pub use delivery::{Delivered, Verdict, backoff, is_crash_loop, settle};
pub use finish::{FinishBatch, FinishReply, Finished, Verb, finish};
pub use ingest::{IngestReply, Known, NewMessage, Rules, SOURCE_KEPT, Seal, ingest};
pub use key::key_of;
pub use merge::{MergeError, merge, unreadable};
pub use message::{Message, MessageId, SourceId, hash12};
pub use reading::{BadMessage, MESSAGE_BYTES_MAX, NESTING_MAX, ReadMessage};
pub use reason::{CloseReason, ReasonStyle, UnknownReason};
pub use redact::redacted;
pub use seal::{SealBatch, SealReply, SealVerb, seal};
pub use settings::{
    BatchRate, Duplicates, IdentityFrom, InvalidSettings, InvalidTarget, KeptSettings, MediaMerge, Merge, Order, RatePatch, Settings,
    SettingsPatch, Source, Strategy, Target,
};
pub use state::{BatcherId, Flight, KeyState, Layout, OpenBatch, Stepped};

#[cfg(test)]
mod tests;
