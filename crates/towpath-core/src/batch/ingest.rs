//! Taking a message into its open batch: duplicate test, append, deadline, seal and arming are one step.

use std::time::Duration;

use super::{CloseReason, KeyState, Message, MessageId, OpenBatch, SourceId, Stepped};
use crate::names::BatchKey;
use crate::time::Timestamp;

/// How long a source id is remembered. Whoever drained an element and died repeats it within this time.
pub const SOURCE_KEPT: Duration = Duration::from_secs(7 * 86_400);

/// The settings of a batcher that a store decides by. They come along with every command: a store keeps none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A batch closes so long after its first message at the latest.
    pub max_wait: Duration,
    /// A batch has at most so many messages.
    pub max_messages: u64,
    /// A batch has at most so many bytes, unless a single message has more.
    pub max_bytes: u64,
    /// One batch per key at a time, so that order is kept over retries.
    pub serial: bool,
    /// A message id is remembered so long; zero: not at all.
    pub idempotency: Duration,
    /// So many messages of a batcher may be in open batches.
    pub max_open: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            max_wait: Duration::from_secs(300),
            max_messages: 100,
            max_bytes: 1 << 20,
            serial: true,
            idempotency: Duration::from_secs(3_600),
            max_open: 1_000_000,
        }
    }
}

/// A message to take, with what its batcher's settings say of it. Made by [`Settings::message`](super::Settings::message).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// For whom it is gathered.
    pub key: BatchKey,
    /// The message, byte for byte as it came.
    pub body: Message,
    /// What makes it the same message as another of its key.
    pub message_id: Option<MessageId>,
    /// Which element of an old producer's list it is.
    pub source: Option<SourceId>,
    /// How long the sender must be silent after it.
    pub debounce: Duration,
    /// It closes its batch.
    pub seal: Option<Seal>,
}

/// How a message closes its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// By what it says.
    Keyword,
    /// By a debounce time of nothing.
    Immediate,
}

impl Seal {
    /// The reason that the batch is then closed for.
    pub const fn reason(self) -> CloseReason {
        match self {
            Self::Keyword => CloseReason::Keyword,
            Self::Immediate => CloseReason::Immediate,
        }
    }
}

/// What a store knows beside the state of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The message id or the source id was taken before, and still counts.
    pub seen: bool,
    /// How many messages of the batcher are in open batches.
    pub open_messages: u64,
    /// The earliest deadline that counts, of all keys of the batcher.
    pub earliest: Option<Timestamp>,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngestReply {
    /// It is in its open batch: append it, and remember its ids.
    Accepted {
        /// When the batch closes, as things stand.
        deadline: Timestamp,
        /// How many messages it has now.
        size: u64,
        /// What will close it, as things stand.
        reason: CloseReason,
    },
    /// It was taken before. Nothing changed.
    Duplicate {
        /// When the open batch of its key closes, if there is one.
        deadline: Option<Timestamp>,
        /// How many messages that has.
        size: u64,
    },
    /// Too many messages are open. Nothing changed.
    Full {
        /// How many.
        open_messages: u64,
    },
}

/// Takes a message. The store appends it and remembers its ids if it is accepted.
pub fn ingest(state: &mut KeyState, message: &NewMessage, rules: &Rules, known: &Known, now: Timestamp) -> Stepped<IngestReply> {
    if known.seen {
        let (deadline, size) = state.open.map_or((None, 0), |open| (Some(open.deadline), open.size));
        return Stepped::quiet(IngestReply::Duplicate { deadline, size });
    }
    if known.open_messages >= rules.max_open {
        return Stepped::quiet(IngestReply::Full { open_messages: known.open_messages });
    }
    let mut open = joined(state.open, message, now);
    if !open.sealed {
        set_deadline(&mut open, message, rules, now);
    }
    let busy = state.is_busy(rules.serial);
    open.armed = !busy;
    state.open = Some(open);
    let earliest_now = !busy && known.earliest.is_none_or(|earliest| open.deadline < earliest);
    let reply = IngestReply::Accepted { deadline: open.deadline, size: open.size, reason: open.reason };
    Stepped { reply, wake: earliest_now.then_some(open.deadline) }
}

fn joined(before: Option<OpenBatch>, message: &NewMessage, now: Timestamp) -> OpenBatch {
    let bytes = message.body.len() as u64;
    match before {
        Some(open) => OpenBatch { last: now, bytes: open.bytes + bytes, size: open.size + 1, ..open },
        None => OpenBatch {
            first: now,
            last: now,
            deadline: now,
            reason: CloseReason::SilenceReached,
            sealed: false,
            bytes,
            size: 1,
            armed: false,
        },
    }
}

fn set_deadline(open: &mut OpenBatch, message: &NewMessage, rules: &Rules, now: Timestamp) {
    (open.deadline, open.reason) = silence_or_cap(open.first, message.debounce, rules.max_wait, now);
    let full = if open.size >= rules.max_messages {
        Some(CloseReason::MaxMessages)
    } else if open.bytes >= rules.max_bytes {
        Some(CloseReason::MaxBytes)
    } else {
        None
    };
    if let Some(reason) = message.seal.map(Seal::reason).or(full) {
        (open.deadline, open.reason, open.sealed) = (now, reason, true);
    }
}

/// The end of the silence, or of the longest wait when that comes first.
pub(super) fn silence_or_cap(first: Timestamp, debounce: Duration, max_wait: Duration, now: Timestamp) -> (Timestamp, CloseReason) {
    let (silence, cap) = (now + debounce, first + max_wait);
    if silence <= cap { (silence, CloseReason::SilenceReached) } else { (cap, CloseReason::MaxWaitReached) }
}
