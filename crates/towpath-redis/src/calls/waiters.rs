//! The tasks of this process that wait for calls, and how they hear.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use towpath_core::call::Call;
use towpath_core::names::CallId;
use towpath_core::store::{CallNews, CallWatch, StoreError};

use super::change::Change;
use super::record::Record;
use crate::quick::QuickMap;
use crate::store::RedisStore;

/// All waiters of this process.
#[derive(Default)]
pub(crate) struct Waiters {
    listeners: Mutex<QuickMap<CallId, Vec<Waiter>>>,
    next: AtomicU64,
}

struct Waiter {
    token: u64,
    mailbox: Arc<Mailbox>,
}

/// News for one waiter that it has not heard yet. Most waiters hear one thing.
#[derive(Default)]
struct Mailbox {
    mail: Mutex<Mail>,
    /// The record of the call names this process, so its end is told here.
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

/// A waiter's handle.
pub(crate) struct Listener {
    store: RedisStore,
    call_id: CallId,
    token: u64,
    mailbox: Arc<Mailbox>,
    attaching: bool,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, QuickMap<CallId, Vec<Waiter>>> {
        // Nothing in here can panic half way.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all waiters of a call.
    pub(crate) fn tell(&self, call_id: &CallId, news: &CallNews) {
        if let Some(waiters) = self.lock().get(call_id) {
            waiters.iter().for_each(|waiter| waiter.mailbox.put(news.clone()));
        }
    }

    /// Tells all waiters of a call that it has ended.
    pub(crate) fn tell_end(&self, call: &Call) {
        if let Some(waiters) = self.lock().get(&call.call_id) {
            let news = CallNews::of_end(call);
            waiters.iter().for_each(|waiter| waiter.mailbox.put(news.clone()));
        }
    }

    /// Tells all waiters that their calls may have changed or be gone.
    pub(crate) fn doubt_all(&self) {
        for waiter in self.lock().values().flatten() {
            waiter.mailbox.put(CallNews::Doubtful);
        }
    }

    /// Whether a task of this process waits for the call.
    pub(crate) fn has_waiter(&self, call_id: &CallId) -> bool {
        self.lock().contains_key(call_id)
    }

    /// The record of the call names this process, so its waiters need not attach to it.
    pub(crate) fn expect_answer(&self, call_id: &CallId) {
        for waiter in self.lock().get(call_id).into_iter().flatten() {
            waiter.mailbox.answer_comes_here.store(true, Ordering::Release);
        }
    }
}

impl RedisStore {
    pub(crate) fn listen_to(&self, call_id: &CallId) -> Listener {
        let waiters = &self.shared.waiters;
        let token = waiters.next.fetch_add(1, Ordering::Relaxed);
        let mailbox = Arc::new(Mailbox::default());
        waiters.lock().entry(call_id.clone()).or_default().push(Waiter { token, mailbox: Arc::clone(&mailbox) });
        Listener { store: self.clone(), call_id: call_id.clone(), token, mailbox, attaching: false }
    }

    /// Adds this process to those that are told the end of a call that another process submitted.
    async fn attach(&self, call_id: &CallId, mailbox: &Mailbox) -> Result<(), StoreError> {
        loop {
            let Some(found) = self.find_call(call_id).await? else { return Ok(()) };
            let call = &found.record.call;
            if call.state.has_ended() {
                // It may have ended before this process could be told.
                mailbox.put(CallNews::Doubtful);
                return Ok(());
            }
            if found.record.tells(&self.shared.process) {
                self.shared.waiters.expect_answer(call_id);
                return Ok(());
            }
            let replies = found.record.replies.iter().cloned().chain([Arc::from(self.shared.process.as_str())]).collect();
            let after = Record { replies, ..found.record.next(call.clone()) };
            if self.apply(&found.partition, vec![Change::to(Arc::clone(&found.record), after)]).await?[0] {
                self.shared.waiters.expect_answer(call_id);
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
            let (store, call_id, mailbox) = (self.store.clone(), self.call_id.clone(), Arc::clone(&self.mailbox));
            tokio::spawn(async move {
                if let Err(error) = store.attach(&call_id, &mailbox).await {
                    tracing::debug!(%call_id, %error, "the end of a call may not be heard here; its waiter looks at it");
                }
            });
        }
        poll_fn(|context| self.mailbox.poll(context)).await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = self.store.shared.waiters.lock();
        if let Some(waiters) = listeners.get_mut(&self.call_id) {
            waiters.retain(|waiter| waiter.token != self.token);
            if waiters.is_empty() {
                listeners.remove(&self.call_id);
            }
        }
    }
}
