//! Who waits for a call in this process, and how they hear.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use towpath_core::call::Call;
use towpath_core::names::CallId;
use towpath_core::store::{CallNews, CallWatch, StoreError};
use towpath_core::time::Timestamp;

use super::moves::Move;
use crate::quick::QuickMap;
use crate::store::RedisStore;

/// So many ends of this process are remembered, to tell an end that was heard from one that must be told.
const ENDS_REMEMBERED: usize = 1_024;

/// All who listen.
#[derive(Default)]
pub(crate) struct Ears {
    listeners: Mutex<QuickMap<CallId, Vec<Ear>>>,
    ended_here: Mutex<VecDeque<CallId>>,
    next: AtomicU64,
}

struct Ear {
    token: u64,
    mailbox: Arc<Mailbox>,
}

/// What was told to one who listens, and is not heard yet. Most hear one thing in their life.
#[derive(Default)]
struct Mailbox {
    mail: Mutex<Mail>,
    /// The answer comes to our inbox, whoever gives it.
    answer_comes_here: AtomicBool,
}

#[derive(Default)]
struct Mail {
    told: VecDeque<CallNews>,
    listening: Option<Waker>,
}

impl Mailbox {
    fn put(&self, news: CallNews) {
        let listening = {
            let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
            mail.told.push_back(news);
            mail.listening.take()
        };
        if let Some(waker) = listening {
            waker.wake();
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<CallNews> {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        match mail.told.pop_front() {
            Some(news) => Poll::Ready(news),
            None => {
                mail.listening = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// One who listens.
pub(crate) struct Listener {
    store: RedisStore,
    call_id: CallId,
    token: u64,
    since: Timestamp,
    mailbox: Arc<Mailbox>,
    attaching: bool,
}

impl Ears {
    fn lock(&self) -> MutexGuard<'_, QuickMap<CallId, Vec<Ear>>> {
        // Nothing in here can panic half way.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all who listen to a call.
    pub(crate) fn tell(&self, call_id: &CallId, news: &CallNews) {
        if matches!(news, CallNews::Ended(_)) {
            self.remember_end(call_id);
        }
        if let Some(ears) = self.lock().get(call_id) {
            ears.iter().for_each(|ear| ear.mailbox.put(news.clone()));
        }
    }

    /// Tells all who listen to a call that it has ended.
    pub(crate) fn tell_end(&self, call: &Call) {
        self.remember_end(&call.call_id);
        if let Some(ears) = self.lock().get(&call.call_id) {
            let news = CallNews::of_end(call);
            ears.iter().for_each(|ear| ear.mailbox.put(news.clone()));
        }
    }

    /// Tells all who listen to any call that it may be gone.
    pub(crate) fn doubt_all(&self) {
        for ear in self.lock().values().flatten() {
            ear.mailbox.put(CallNews::Doubtful);
        }
    }

    fn remember_end(&self, call_id: &CallId) {
        let mut ended = self.ended_here.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() == ENDS_REMEMBERED {
            ended.pop_front();
        }
        ended.push_back(call_id.clone());
    }

    /// Seldom asked, so the many that are told pay nothing for a quick answer.
    fn ended_here(&self, call_id: &CallId) -> bool {
        self.ended_here.lock().unwrap_or_else(PoisonError::into_inner).contains(call_id)
    }

    /// Whether somebody listens; from now on the answer comes to our inbox.
    pub(crate) fn expect_answer(&self, call_id: &CallId) -> bool {
        let listeners = self.lock();
        let Some(ears) = listeners.get(call_id) else { return false };
        ears.iter().for_each(|ear| ear.mailbox.answer_comes_here.store(true, Ordering::Release));
        true
    }
}

impl RedisStore {
    pub(crate) fn listen_to(&self, call_id: &CallId) -> Listener {
        let ears = &self.shared.ears;
        let token = ears.next.fetch_add(1, Ordering::Relaxed);
        let mailbox = Arc::new(Mailbox::default());
        ears.lock().entry(call_id.clone()).or_default().push(Ear { token, mailbox: Arc::clone(&mailbox) });
        Listener { store: self.clone(), call_id: call_id.clone(), token, since: self.shared.now(), mailbox, attaching: false }
    }

    /// Sees to it that the end of a call that another process submitted is told here too.
    async fn attach(&self, call_id: &CallId, since: Timestamp) -> Result<(), StoreError> {
        loop {
            let Some(found) = self.load(call_id).await? else { return Ok(()) };
            let call = &found.life.call;
            if call.state.has_ended() {
                let after_we_listened = call.ended_at.is_some_and(|at| at >= since);
                if after_we_listened && !self.shared.ears.ended_here(call_id) {
                    self.shared.ears.tell(call_id, &CallNews::of_end(call));
                }
                return Ok(());
            }
            let inbox = self.open_inbox(&found.room);
            let known = found.life.channels.iter().any(|channel| **channel == *inbox);
            if known || self.apply(&found.room, vec![Move::tell_too(Arc::clone(&found.life), inbox.to_string())]).await?[0] {
                self.shared.ears.expect_answer(call_id);
                return Ok(());
            }
        }
    }
}

#[async_trait]
impl CallWatch for Listener {
    async fn next(&mut self) -> CallNews {
        if !self.attaching && !self.mailbox.answer_comes_here.load(Ordering::Acquire) {
            self.attaching = true;
            let (store, call_id, since) = (self.store.clone(), self.call_id.clone(), self.since);
            tokio::spawn(async move {
                if let Err(error) = store.attach(&call_id, since).await {
                    tracing::debug!(%call_id, %error, "the end of a call may not be heard here; whoever waits looks at it");
                }
            });
        }
        poll_fn(|context| self.mailbox.poll(context)).await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = self.store.shared.ears.lock();
        if let Some(ears) = listeners.get_mut(&self.call_id) {
            ears.retain(|ear| ear.token != self.token);
            if ears.is_empty() {
                listeners.remove(&self.call_id);
            }
        }
    }
}
