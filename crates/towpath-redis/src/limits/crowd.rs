//! Which checks go together: on one server all of them, in a Cluster those whose keys lie in one slot. One crowd at a time: several that are
//! under way at once are smaller, and have not been faster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use towpath_core::store::StoreError;

use super::wire::{self, Answer, Question, Said};
use crate::lane::{Lane, heard};
use crate::script::{Args, LIMITS};
use crate::store::RedisStore;

type Crowd = Arc<Lane<Question, Answer>>;

/// Checks that wait, by slot; in a Cluster there are 16,384.
#[derive(Default)]
pub(crate) struct Crowds {
    by_slot: Mutex<HashMap<Option<u16>, Crowd>>,
}

impl Crowds {
    fn of(&self, slot: Option<u16>) -> Crowd {
        let mut crowds = self.by_slot.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(crowds.entry(slot).or_default())
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
