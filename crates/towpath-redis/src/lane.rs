//! Adaptive batching without timers: whatever has piled up while the last flush was under way goes with the next one.

use std::future::Future;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use towpath_core::store::StoreError;

/// More than this does not go with one flush: a script should not keep the server from others for long.
pub(crate) const BATCH_MAX: usize = 256;

/// A queue of questions that are asked together.
pub(crate) struct Lane<Q, A> {
    waiting: Mutex<Waiting<Q, A>>,
}

struct Waiting<Q, A> {
    questions: Vec<Q>,
    askers: Vec<oneshot::Sender<Result<A, StoreError>>>,
    flushing: bool,
}

impl<Q, A> Default for Lane<Q, A> {
    fn default() -> Self {
        Self { waiting: Mutex::new(Waiting { questions: Vec::new(), askers: Vec::new(), flushing: false }) }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Lane<Q, A> {
    /// Puts a question in the queue and returns where its answer will come. `flush` answers a whole batch, one answer each.
    pub(crate) fn ask_one<F>(
        self: &Arc<Self>,
        question: Q,
        flush: impl Fn(Vec<Q>) -> F + Send + 'static,
    ) -> oneshot::Receiver<Result<A, StoreError>>
    where
        F: Future<Output = Result<Vec<A>, StoreError>> + Send,
    {
        let (sender, receiver) = oneshot::channel();
        self.put([(question, sender)].into_iter(), flush);
        receiver
    }

    /// The same with several, in order.
    pub(crate) fn ask<F>(
        self: &Arc<Self>,
        questions: impl IntoIterator<Item = Q>,
        flush: impl Fn(Vec<Q>) -> F + Send + 'static,
    ) -> Vec<oneshot::Receiver<Result<A, StoreError>>>
    where
        F: Future<Output = Result<Vec<A>, StoreError>> + Send,
    {
        let mut receivers = Vec::new();
        let asked = questions.into_iter().map(|question| {
            let (sender, receiver) = oneshot::channel();
            receivers.push(receiver);
            (question, sender)
        });
        self.put(asked, flush);
        receivers
    }

    fn put<F>(
        self: &Arc<Self>,
        asked: impl Iterator<Item = (Q, oneshot::Sender<Result<A, StoreError>>)>,
        flush: impl Fn(Vec<Q>) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<Vec<A>, StoreError>> + Send,
    {
        let must_start = {
            let mut waiting = self.lock();
            for (question, sender) in asked {
                waiting.questions.push(question);
                waiting.askers.push(sender);
            }
            !mem::replace(&mut waiting.flushing, true)
        };
        if must_start {
            let lane = Arc::clone(self);
            // A task of its own, because an asker that goes away must not take the others' answers with it.
            tokio::spawn(async move {
                while let Some((questions, askers)) = lane.next_batch() {
                    answer(askers, flush(questions).await);
                }
            });
        }
    }

    #[expect(clippy::type_complexity, reason = "a batch is two lists, and has no other name")]
    fn next_batch(&self) -> Option<(Vec<Q>, Vec<oneshot::Sender<Result<A, StoreError>>>)> {
        let mut waiting = self.lock();
        if waiting.questions.is_empty() {
            waiting.flushing = false;
            return None;
        }
        if waiting.questions.len() <= BATCH_MAX {
            return Some((mem::take(&mut waiting.questions), mem::take(&mut waiting.askers)));
        }
        Some((waiting.questions.drain(..BATCH_MAX).collect(), waiting.askers.drain(..BATCH_MAX).collect()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting<Q, A>> {
        // Nothing in here can panic half way.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer<A>(askers: Vec<oneshot::Sender<Result<A, StoreError>>>, answers: Result<Vec<A>, StoreError>) {
    match answers {
        Ok(answers) => {
            for (asker, answer) in askers.into_iter().zip(answers) {
                // Whoever stopped listening does not want to know.
                drop(asker.send(Ok(answer)));
            }
        }
        Err(error) => {
            for asker in askers {
                drop(asker.send(Err(error.clone())));
            }
        }
    }
}

/// Waits for one answer of a lane.
pub(crate) async fn heard<A>(receiver: oneshot::Receiver<Result<A, StoreError>>) -> Result<A, StoreError> {
    match receiver.await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::Unknown("the batch it went with was given up".to_owned())),
    }
}
