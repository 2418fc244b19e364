//! Answers that come from other processes: one list per process (in a Cluster one per function), read by blocking.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::Cmd;
use towpath_core::names::CallId;
use towpath_core::store::{CallNews, StoreError, StoreTrouble};

use crate::link::Exclusive;
use crate::pause::pause;
use crate::pieces::Pieces;
use crate::record::read_outcome;
use crate::registry::Serving;
use crate::room::Room;
use crate::store::{RedisStore, Shared};

/// How long one read blocks, in seconds.
const BLOCK_S: u64 = 5;
/// So many words are fetched at once, each with one answer or with some that were given together.
const FETCH_MAX: i64 = 64;
const RETRY: Duration = Duration::from_millis(100);

/// Where an answer goes.
#[derive(Clone)]
pub(crate) struct ReplyTo {
    /// The list that the store pushes to when the call ends; empty when nobody waits.
    pub(crate) told: Arc<str>,
    /// The list that the entry names. An old worker that comes later pushes to it, so it is never empty.
    pub(crate) written: Arc<str>,
    /// An old worker may read the entry.
    pub(crate) may_be_old: bool,
}

/// The inboxes that are being read.
#[derive(Default)]
pub(crate) struct Inboxes {
    open: Mutex<HashSet<String>>,
}

impl Inboxes {
    pub(crate) fn all(&self) -> Vec<String> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Shared {
    /// The list on which this process hears about a function's calls.
    pub(crate) fn inbox_of(&self, room: &Room) -> Arc<str> {
        let inbox = || crate::keys::Keys::inbox(&self.caller, self.link.is_cluster().then_some(&room.keys));
        Arc::clone(room.inbox.get_or_init(|| Arc::from(inbox())))
    }
}

impl RedisStore {
    /// Where the answer to a call that is about to be submitted shall go.
    pub(crate) async fn reply_to(&self, room: &Arc<Room>, call_id: &CallId) -> ReplyTo {
        let serving = self.serving(&room.function).await.unwrap_or(Serving::UNKNOWN);
        if serving.is_only_old() {
            self.make_group_for_old(room).await;
        }
        self.reply_to_beside(room, call_id, serving)
    }

    /// The same, if it was seen a moment ago who serves the function, and nothing is to be done for old workers.
    pub(crate) fn reply_to_at_once(&self, room: &Arc<Room>, call_id: &CallId, serving: Option<Serving>) -> Option<ReplyTo> {
        let serving = serving.filter(|serving| serving.all_take_inboxes && !serving.is_only_old())?;
        Some(self.reply_to_beside(room, call_id, serving))
    }

    fn reply_to_beside(&self, room: &Arc<Room>, call_id: &CallId, serving: Serving) -> ReplyTo {
        let listened_to = self.shared.ears.expect_answer(call_id);
        let may_be_old = serving.may_be_old();
        if serving.all_take_inboxes && listened_to {
            let inbox = self.open_inbox(room);
            return ReplyTo { told: Arc::clone(&inbox), written: inbox, may_be_old };
        }
        let list: Arc<str> = Arc::from(crate::keys::response(call_id));
        if serving.all_take_inboxes {
            return ReplyTo { told: Arc::from(""), written: list, may_be_old };
        }
        self.await_old_reply(call_id);
        ReplyTo { told: Arc::clone(&list), written: list, may_be_old }
    }

    /// The inbox, being read from now on.
    pub(crate) fn open_inbox(&self, room: &Room) -> Arc<str> {
        let inbox = self.shared.inbox_of(room);
        if room.inbox_is_read.load(Ordering::Acquire) {
            return inbox;
        }
        let new = self.shared.inboxes.open.lock().unwrap_or_else(PoisonError::into_inner).insert(inbox.to_string());
        if new {
            tokio::spawn(read_for_ever(Arc::downgrade(&self.shared), inbox.to_string()));
        }
        room.inbox_is_read.store(true, Ordering::Release);
        inbox
    }
}

/// Reads an inbox as long as its store is open.
async fn read_for_ever(shared: Weak<Shared>, inbox: String) {
    let mut reading = None;
    while let Some(open) = shared.upgrade() {
        let link = open.link.clone();
        drop(open);
        let read = async {
            let mut own = match reading.take() {
                Some(own) => own,
                None => Reading { line: link.exclusive(&inbox).await?, arrived: 0 },
            };
            own.go_on(&shared, &inbox).await?;
            Ok::<Reading, StoreError>(own)
        };
        match read.await {
            Ok(own) => reading = Some(own),
            Err(error) => {
                tracing::debug!(%error, "reading answers failed; trying again");
                pause(RETRY).await;
            }
        }
    }
}

/// An inbox that is being read.
struct Reading {
    line: Exclusive,
    /// How many of the oldest answers in it have been handed out.
    arrived: usize,
}

impl Reading {
    /// Removes what has arrived, hands out what has come since, oldest first, and if that is nothing waits for the next one. An answer
    /// is removed only after it has arrived. All this is one question, which the server is busy with only once.
    async fn go_on(&mut self, shared: &Weak<Shared>, inbox: &str) -> Result<(), StoreError> {
        let (mut trim, mut all, mut peek) = (Cmd::new(), Cmd::new(), Cmd::new());
        let arrived = i64::try_from(std::mem::take(&mut self.arrived)).unwrap_or(FETCH_MAX);
        trim.arg("LTRIM").arg(inbox).arg(0).arg(-arrived - 1);
        all.arg("LRANGE").arg(inbox).arg(-FETCH_MAX).arg(-1);
        peek.arg("BLMOVE").arg(inbox).arg(inbox).arg("RIGHT").arg("RIGHT").arg(BLOCK_S);
        self.line.tell(&[trim, all, peek]).await?;
        self.line.hear().await?;
        let answers = self.line.hear().await?;
        let answers = answers.items();
        let words = answers.iter().rev().map(|answer| answer.bytes().map(|answer| &answer[..]).unwrap_or_default());
        let Some(open) = shared.upgrade() else { return Ok(()) };
        self.arrived = hand_out_all(&open, inbox, words).await?;
        drop(open);
        let first = match self.line.hear().await {
            // The server takes a wait for a write. Answers come all the same, and are looked for.
            Err(StoreError::Unavailable(StoreTrouble::Full(_))) => {
                pause(RETRY).await;
                return Ok(());
            }
            first => first?,
        };
        if let (true, Some(first), Some(open)) = (answers.is_empty(), first.bytes(), shared.upgrade()) {
            self.arrived = hand_out_all(&open, inbox, std::iter::once(&first[..])).await?;
            tokio::task::yield_now().await; // whoever waited for it goes first
        }
        Ok(())
    }
}

/// Hands answers out, and says how many they are. Whoever wrote them may not know yet whether they are kept. Until they are, they stay
/// where they are, and are looked at again.
async fn hand_out_all<'a>(
    shared: &Arc<Shared>,
    inbox: &str,
    answers: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<usize, StoreError> {
    let count = answers.len();
    if count > 0 {
        shared.confirm(inbox).await?;
    }
    for answer in answers {
        take_in(shared, answer).await?;
    }
    Ok(count)
}

async fn take_in(shared: &Arc<Shared>, answer: &[u8]) -> Result<(), StoreError> {
    if answer.first() == Some(&b'{') {
        // An old worker has taken a call that was not meant for one, and answers as it knows how.
        return RedisStore { shared: Arc::clone(shared) }.take_old_reply(None, answer, None).await;
    }
    hand_out(shared, answer);
    Ok(())
}

/// Hands out the answers of one word.
fn hand_out(shared: &Shared, word: &[u8]) {
    let mut answers = Answers::of(word);
    for (call_id, news) in answers.by_ref() {
        shared.ears.tell(&call_id, &news);
    }
    if answers.is_broken {
        tracing::warn!(bytes = word.len(), "an answer that cannot be read was dropped; whoever waits for it looks at the call");
    }
}

/// The answers in a word. Each begins with the id of its call.
struct Answers<'a> {
    pieces: std::iter::Peekable<Pieces<'a>>,
    /// There was something that is no answer. Nothing follows it.
    is_broken: bool,
}

impl<'a> Answers<'a> {
    fn of(word: &'a [u8]) -> Self {
        Self { pieces: Pieces::of(word).peekable(), is_broken: false }
    }

    fn read(&mut self) -> Option<(CallId, CallNews)> {
        let Some((b'i', id)) = self.pieces.next()? else { return None };
        let call_id = CallId::new(std::str::from_utf8(id).ok()?).ok()?;
        let mut news = CallNews::Changed;
        while let Some(Some((tag, text))) = self.pieces.next_if(|piece| piece.is_some_and(|(tag, _)| tag != b'i')) {
            if tag == b'o' {
                news = CallNews::Ended(Arc::new(read_outcome(text)?));
            }
        }
        Some((call_id, news))
    }
}

impl Iterator for Answers<'_> {
    type Item = (CallId, CallNews);

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_broken {
            return None;
        }
        self.pieces.peek()?;
        let answer = self.read();
        self.is_broken = answer.is_none();
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::Writer;

    fn ids(word: &[u8]) -> (Vec<String>, bool) {
        let mut answers = Answers::of(word);
        let ids = answers.by_ref().map(|(call_id, _)| call_id.to_string()).collect();
        (ids, answers.is_broken)
    }

    #[test]
    fn a_word_has_one_answer_or_many() {
        let mut word = Writer::default();
        word.put(b'i', b"one");
        assert_eq!(ids(&word.done()), (vec!["one".to_owned()], false));
        let mut word = Writer::default();
        word.put(b'i', b"one");
        word.put(b'z', b"from a newer version");
        word.put(b'i', b"two");
        assert_eq!(ids(&word.done()), (vec!["one".to_owned(), "two".to_owned()], false));
        assert_eq!(ids(b""), (vec![], false));
    }

    #[test]
    fn what_comes_before_something_broken_is_heard() {
        let mut word = Writer::default();
        word.put(b'i', b"one");
        word.put(b'i', b"two");
        word.put(b'o', b"no outcome");
        let mut word = word.done();
        assert_eq!(ids(&word), (vec!["one".to_owned()], true));
        word.truncate(8);
        assert_eq!(ids(&word), (vec!["one".to_owned()], true));
    }
}
