//! How the end of a call reaches a process that waits for it: by a message on the process's channel, with the outcome.

use std::sync::Arc;

use towpath_core::call::Call;
use towpath_core::names::CallId;
use towpath_core::store::CallNews;

use super::tail::{read_outcome, write_outcome};
use super::waiters::Waiters;
use crate::pieces::{Pieces, Writer};

/// A larger outcome is not sent: the waiter reads the call.
const SENT_MAX: usize = 64 * 1024;

/// What is said of a call that has ended, or that has changed otherwise. Messages can follow each other without a break.
///
/// Pieces: `i` the id of the call, then `o` its outcome, or `e` if it has ended and the waiter must read the outcome.
pub(super) fn write_reply(call: &Call, has_ended: bool) -> Vec<u8> {
    let outcome = call.outcome.as_ref().filter(|_| has_ended).map(write_outcome).filter(|outcome| outcome.len() <= SENT_MAX);
    let mut message = Writer::with_capacity(64 + outcome.as_ref().map_or(0, Vec::len));
    message.put(b'i', call.call_id.as_str().as_bytes());
    match &outcome {
        Some(outcome) => message.put(b'o', outcome),
        None if has_ended => message.put(b'e', b""),
        None => {}
    }
    message.done()
}

/// Hands out the replies of one message.
pub(crate) fn hand_out(waiters: &Waiters, message: &[u8]) {
    for (call_id, news) in read_all(waiters, message) {
        waiters.tell(&call_id, &news);
    }
}

/// The replies of one message. If it cannot be read to its end, all waiters look at their calls.
pub(crate) fn read_all(waiters: &Waiters, message: &[u8]) -> Vec<(CallId, CallNews)> {
    let mut replies = Replies::of(message);
    let all = replies.by_ref().collect();
    if replies.is_broken {
        tracing::warn!(bytes = message.len(), "a reply that cannot be read was dropped; its waiters look at their calls");
        waiters.doubt_all();
    }
    all
}

/// The replies in a message. Each begins with the id of its call.
struct Replies<'a> {
    pieces: std::iter::Peekable<Pieces<'a>>,
    /// There was something that is not a reply. Nothing follows it.
    is_broken: bool,
}

impl<'a> Replies<'a> {
    fn of(message: &'a [u8]) -> Self {
        Self { pieces: Pieces::of(message).peekable(), is_broken: false }
    }

    fn read(&mut self) -> Option<(CallId, CallNews)> {
        let Some((b'i', id)) = self.pieces.next()? else { return None };
        let call_id = CallId::new(std::str::from_utf8(id).ok()?).ok()?;
        let mut news = CallNews::Changed;
        while let Some(Some((tag, text))) = self.pieces.next_if(|piece| piece.is_some_and(|(tag, _)| tag != b'i')) {
            match tag {
                b'o' => news = CallNews::Ended(Arc::new(read_outcome(text)?)),
                b'e' => news = CallNews::Doubtful,
                _of_a_newer_version => {}
            }
        }
        Some((call_id, news))
    }
}

impl Iterator for Replies<'_> {
    type Item = (CallId, CallNews);

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_broken {
            return None;
        }
        self.pieces.peek()?;
        let reply = self.read();
        self.is_broken = reply.is_none();
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(message: &[u8]) -> (Vec<String>, bool) {
        let mut replies = Replies::of(message);
        let ids = replies.by_ref().map(|(call_id, _)| call_id.to_string()).collect();
        (ids, replies.is_broken)
    }

    #[test]
    fn a_message_has_one_reply_or_many() {
        let mut message = Writer::default();
        message.put(b'i', b"one");
        message.put(b'z', b"from a newer version");
        message.put(b'i', b"two");
        assert_eq!(ids(&message.done()), (vec!["one".to_owned(), "two".to_owned()], false));
        assert_eq!(ids(b""), (vec![], false));
    }

    #[test]
    fn replies_before_a_broken_one_are_heard() {
        let mut message = Writer::default();
        message.put(b'i', b"one");
        message.put(b'i', b"two");
        message.put(b'o', b"not an outcome");
        assert_eq!(ids(&message.done()), (vec!["one".to_owned()], true));
    }
}
