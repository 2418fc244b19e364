//! Adaptive batching without timers: whatever has piled up while the last flush was under way goes with the next one.

use std::collections::HashMap;
use std::future::Future;
use std::mem;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use tokio::sync::oneshot;
use towpath_core::store::StoreError;

use crate::supervised;

/// More than this does not go with one flush: a script should not keep the server from others for long.
pub(crate) const BATCH_MAX: usize = 128;
/// A batch ends with the question that reaches this many bytes, for the same reason.
const BYTES_MAX: usize = 1024 * 1024;
/// Among so many of those that have waited longest the ones of a kind are looked for.
const LOOKED_THROUGH: usize = 4 * BATCH_MAX;

/// A question that costs less together with others of its kind.
pub(crate) trait Kind {
    /// Questions with the same number are of a kind.
    fn kind(&self) -> usize {
        0
    }

    /// About how many bytes it adds to a flush.
    fn bytes(&self) -> usize {
        0
    }
}

/// A queue of questions that are asked together.
pub(crate) struct Lane<Q, A> {
    waiting: Mutex<Waiting<Q, A>>,
    /// How many flushes may be under way at once.
    flushes_max: usize,
}

impl<Q, A> Lane<Q, A> {
    /// A lane in which a full batch does not wait for the flush that is under way: the server shall find it when it is done with that.
    /// So it may overtake, and nobody may mind.
    pub(crate) fn wide() -> Self {
        Self { flushes_max: 2, ..Self::default() }
    }
}

struct Waiting<Q, A> {
    questions: Vec<Q>,
    askers: Vec<oneshot::Sender<Result<A, StoreError>>>,
    /// How many flushes are under way.
    flushes: usize,
}

/// How many questions are worth a flush beside so many others.
const fn enough_beside(others: usize) -> usize {
    if others == 0 { 1 } else { BATCH_MAX }
}

impl<Q, A> Default for Lane<Q, A> {
    fn default() -> Self {
        Self { waiting: Mutex::new(Waiting { questions: Vec::new(), askers: Vec::new(), flushes: 0 }), flushes_max: 1 }
    }
}

impl<Q: Kind + Send + 'static, A: Send + 'static> Lane<Q, A> {
    /// Puts a question in the queue and returns where its answer will come. `flush` answers a whole batch, one answer each.
    pub(crate) fn ask_one<F>(
        self: &Arc<Self>,
        question: Q,
        flush: impl Fn(Vec<Q>) -> F + Send + Sync + 'static,
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
        flush: impl Fn(Vec<Q>) -> F + Send + Sync + 'static,
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
        flush: impl Fn(Vec<Q>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<Vec<A>, StoreError>> + Send,
    {
        let must_start = {
            let mut waiting = self.lock();
            for (question, sender) in asked {
                waiting.questions.push(question);
                waiting.askers.push(sender);
            }
            let wanted = waiting.questions.len() >= enough_beside(waiting.flushes) && waiting.flushes < self.flushes_max;
            waiting.flushes += usize::from(wanted);
            wanted
        };
        if must_start {
            let lane = Arc::clone(self);
            // A task of its own, because an asker that goes away must not take the others' answers with it.
            tokio::spawn(async move {
                while let Some((questions, askers)) = lane.next_batch() {
                    // A panic ends this batch and nothing else. Its askers hear that nothing is known of it.
                    match AssertUnwindSafe(async { flush(questions).await }).catch_unwind().await {
                        Ok(answers) => answer(askers, answers),
                        Err(_panic) => supervised::note_panic("a batch of questions"),
                    }
                }
            });
        }
    }

    #[expect(clippy::type_complexity, reason = "a batch is two lists, and has no other name")]
    fn next_batch(&self) -> Option<(Vec<Q>, Vec<oneshot::Sender<Result<A, StoreError>>>)> {
        let mut waiting = self.lock();
        if waiting.questions.len() < enough_beside(waiting.flushes - 1) {
            waiting.flushes -= 1;
            return None;
        }
        if waiting.questions.len() <= BATCH_MAX && waiting.questions.iter().map(Q::bytes).sum::<usize>() <= BYTES_MAX {
            return Some((mem::take(&mut waiting.questions), mem::take(&mut waiting.askers)));
        }
        let mut of_a_kind = first_of_a_kind(&waiting.questions[..waiting.questions.len().min(LOOKED_THROUGH)]);
        of_a_kind.truncate(light_enough(&waiting.questions, &of_a_kind));
        Some((take(&mut waiting.questions, &of_a_kind), take(&mut waiting.askers, &of_a_kind)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting<Q, A>> {
        // Nothing in here can panic half way.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places of a full batch: all of the kind of the first, then all of the kind of the first that is left, and so on. Who waits longest
/// is always among them.
fn first_of_a_kind<Q: Kind>(questions: &[Q]) -> Vec<usize> {
    if questions.windows(2).all(|pair| pair[0].kind() == pair[1].kind()) {
        return (0..questions.len().min(BATCH_MAX)).collect();
    }
    let mut kinds: HashMap<usize, usize> = HashMap::new();
    let mut by_kind: Vec<Vec<usize>> = Vec::new();
    for (place, question) in questions.iter().enumerate() {
        let number = *kinds.entry(question.kind()).or_insert(by_kind.len());
        if number == by_kind.len() {
            by_kind.push(Vec::new());
        }
        by_kind[number].push(place);
    }
    let mut batch: Vec<usize> = by_kind.into_iter().flatten().take(BATCH_MAX).collect();
    batch.sort_unstable();
    batch
}

/// How many of these go with one flush: the first in any case, and more until their bytes are too many.
fn light_enough<Q: Kind>(questions: &[Q], places: &[usize]) -> usize {
    let mut bytes = 0;
    let is_light = |place: &&usize| {
        bytes += questions[**place].bytes();
        bytes <= BYTES_MAX
    };
    places.iter().take_while(is_light).count().max(1)
}

/// Takes what stands at these places, the lowest of which comes first. Nothing behind the last of them is looked at.
fn take<T>(all: &mut Vec<T>, places: &[usize]) -> Vec<T> {
    let (mut taken, mut left) = (Vec::with_capacity(places.len()), Vec::new());
    let end = places.last().map_or(0, |last| last + 1);
    let mut places = places.iter().peekable();
    for (place, one) in all.drain(..end).enumerate() {
        let is_meant = places.next_if(|meant| **meant == place).is_some();
        if is_meant { &mut taken } else { &mut left }.push(one);
    }
    all.splice(..0, left);
    taken
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    const SOON: std::time::Duration = std::time::Duration::from_secs(10);

    /// A question of so many bytes.
    struct Heavy(usize);

    impl Kind for Heavy {
        fn bytes(&self) -> usize {
            self.0
        }
    }

    #[tokio::test]
    async fn a_batch_ends_where_its_bytes_are_too_many() {
        let lane: Arc<Lane<Heavy, usize>> = Arc::default();
        // Each answer is the size of its batch.
        let flush = |questions: Vec<Heavy>| async move { Ok(vec![questions.len(); questions.len()]) };
        // The flush is a task that begins when this one waits: all of them are in the queue by then.
        let others = lane.ask([BYTES_MAX / 2, BYTES_MAX / 2, 2 * BYTES_MAX, 10, 10].map(Heavy), flush);
        let mut answers = Vec::new();
        for other in others {
            answers.push(heard(other).await.expect("it is answered"));
        }
        assert_eq!(answers, [2, 2, 1, 2, 2], "a question that is too large alone goes alone");
    }

    #[derive(Clone, Copy)]
    struct Of(usize);

    impl Kind for Of {
        fn kind(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn those_of_a_kind_go_together_and_nobody_is_passed_over_for_ever() {
        // A hundred kinds in turn: five of each are waiting.
        let mut waiting: Vec<Of> = (0..500).map(|number| Of(number % 100)).collect();
        let places = first_of_a_kind(&waiting);
        let batch = take(&mut waiting, &places);
        assert_eq!((batch.len(), waiting.len()), (BATCH_MAX, 500 - BATCH_MAX));
        let of = |all: &[Of], kind| all.iter().filter(|one| one.0 == kind).count();
        for kind in 0..25 {
            assert_eq!(of(&batch, kind), 5, "kind {kind} goes together");
        }
        assert_eq!((of(&batch, 25), of(&waiting, 25)), (3, 2), "the last ones fill the batch up");
        assert_eq!(waiting[0].0, 26, "and who waits longest is the first of the next");
    }

    #[tokio::test]
    async fn a_flush_that_panics_takes_its_own_batch_with_it_and_the_lane_goes_on() {
        let lane: Arc<Lane<Of, usize>> = Arc::default();
        let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let waits = (Arc::clone(&begun), Arc::clone(&gate));
        let panics = move |_questions: Vec<Of>| {
            let (begun, gate) = waits.clone();
            async move {
                begun.add_permits(1);
                gate.acquire().await.expect("it is open").forget();
                panic!("a bug");
            }
        };
        let flush = |questions: Vec<Of>| async move { Ok(questions.into_iter().map(|question| question.0).collect()) };
        // A flush goes on with all that came meanwhile.
        let numbers = Arc::new(AtomicUsize::new(0));
        let first = lane.ask_one(Of(0), move |questions: Vec<Of>| {
            let is_first = numbers.fetch_add(1, Ordering::Relaxed) == 0;
            if is_first { panics(questions).boxed() } else { flush(questions).boxed() }
        });
        begun.acquire().await.expect("it is open").forget();
        let others = lane.ask([Of(1), Of(2)], flush);
        gate.add_permits(1);
        assert!(matches!(heard(first).await, Err(StoreError::Unknown(_))), "what it did is not known");
        let mut answers = Vec::new();
        for other in others {
            answers.push(tokio::time::timeout(SOON, heard(other)).await.expect("the lane goes on"));
        }
        assert_eq!(answers, [Ok(1), Ok(2)]);
        let later = lane.ask_one(Of(3), flush);
        assert_eq!(tokio::time::timeout(SOON, heard(later)).await.expect("the lane goes on"), Ok(3));
    }

    #[test]
    fn without_kinds_the_first_go_first() {
        let mut waiting: Vec<usize> = (0..BATCH_MAX + 9).collect();
        let places = first_of_a_kind(&vec![Of(7); waiting.len()]);
        assert_eq!(take(&mut waiting, &places), (0..BATCH_MAX).collect::<Vec<_>>());
        assert_eq!(waiting, (BATCH_MAX..BATCH_MAX + 9).collect::<Vec<_>>());
    }
}
