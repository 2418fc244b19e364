//! Which checks go together: on one server all of them, in a Cluster those whose keys lie in one slot. There are two crowds of each, so that
//! one is gathered and told while the server is busy with the other.

use std::array;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use towpath_core::store::StoreError;

use super::wire::{self, Answer, Question, Said};
use crate::lane::{Lane, heard};
use crate::script::{Args, LIMITS};
use crate::store::RedisStore;

type Crowd = Arc<Lane<Question, Answer>>;

/// So many crowds are under way at once. More of them are smaller, and each costs the server a script run: on a machine with nothing to spare
/// one is as good.
const AT_ONCE: usize = 2;

/// Checks that wait, by slot; in a Cluster there are 16,384.
#[derive(Default)]
pub(crate) struct Crowds {
    by_slot: Mutex<HashMap<Option<u16>, [Crowd; AT_ONCE]>>,
    next: AtomicUsize,
}

impl Crowds {
    /// One after the other in turn: none of them gathers all the others.
    fn of(&self, slot: Option<u16>) -> Crowd {
        let mut crowds = self.by_slot.lock().unwrap_or_else(PoisonError::into_inner);
        let crowds = crowds.entry(slot).or_insert_with(|| array::from_fn(|_| Crowd::default()));
        Arc::clone(&crowds[self.next.fetch_add(1, Ordering::Relaxed) % AT_ONCE])
    }
}

impl RedisStore {
    /// Puts a check with all others that come while the last ones are under way.
    pub(super) async fn ask_together(&self, question: Question) -> Result<Said, StoreError> {
        let slot = self.shared.link.slot(question.any_key());
        let store = self.clone();
        let receiver = self.shared.crowds.of(slot).ask_one(question, move |crowd| {
            let store = store.clone();
            async move { store.ask_crowd(&crowd).await }
        });
        heard(receiver).await?.checked()
    }

    async fn ask_crowd(&self, crowd: &[Question]) -> Result<Vec<Answer>, StoreError> {
        let mut args = Args::with_capacity(16);
        match self.given_time() {
            Some(now) => args.number(now.get()),
            None => args.push(""),
        }
        wire::write(crowd, &mut args);
        let keys: Vec<&str> = crowd.iter().flat_map(Question::keys).collect();
        let reply = self.shared.link.run_args(&LIMITS, &keys, &args).await?;
        wire::read(crowd, reply)
    }
}
