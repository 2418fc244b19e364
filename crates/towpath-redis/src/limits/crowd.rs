//! Which checks go together: on one server all of them, in a Cluster those whose keys lie in one slot.

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
        let receivers = self.shared.crowds.of(slot).ask([question], move |crowd| {
            let store = store.clone();
            async move { store.ask_crowd(&crowd).await }
        });
        match receivers.into_iter().next() {
            Some(receiver) => heard(receiver).await?.checked(),
            None => Err(StoreError::Unknown("the check was not put".to_owned())),
        }
    }

    async fn ask_crowd(&self, crowd: &[Question]) -> Result<Vec<Answer>, StoreError> {
        let mut args = Args::with_capacity(2 + crowd.len() * 9);
        match self.given_time() {
            Some(now) => args.number(now.get()),
            None => args.push(""),
        }
        args.number(crowd.len());
        let mut keys: Vec<&str> = Vec::with_capacity(crowd.len());
        for question in crowd {
            question.write(&mut args);
            keys.extend(question.keys());
        }
        let reply = self.shared.link.run_args(&LIMITS, &keys, &args).await?;
        wire::read(crowd, reply)
    }
}
