//! Batches through the library: gathered, closed in time, delivered, tried again, given up and replayed, in virtual time.

mod delivery;
mod paced;
mod pulled;
mod sources;
mod timing;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use towpath::RunningWorker;
use towpath::batches::{Batch, BatchFailure};
use towpath::testing::TestTowpath;
use towpath_core::time::Timestamp;

/// What a receiver was given, and when.
#[derive(Clone, Debug)]
struct Got {
    at: Timestamp,
    id: String,
    key: String,
    attempt: u32,
    payload: Value,
}

/// A receiver that remembers.
#[derive(Clone, Debug, Default)]
struct Inbox(Arc<Mutex<Vec<Got>>>);

impl Inbox {
    fn got(&self) -> Vec<Got> {
        self.0.lock().unwrap().clone()
    }

    /// Receives all batches of a batcher; `answer` says what becomes of each.
    async fn receive<F>(&self, test: &TestTowpath, batcher: &str, answer: F) -> RunningWorker
    where
        F: Fn(usize, &Batch) -> Result<(), BatchFailure> + Clone + Send + Sync + 'static,
    {
        let (got, clock) = (self.0.clone(), test.virtual_clock().clone());
        test.worker()
            .batches(batcher, move |batch: Batch| {
                let count = note(&got, towpath::Clock::now(&clock), &batch);
                let answer = answer(count, &batch);
                async move { answer }
            })
            .start()
            .await
            .unwrap()
    }
}

fn note(got: &Mutex<Vec<Got>>, at: Timestamp, batch: &Batch) -> usize {
    let payload = batch.read().unwrap();
    let mut got = got.lock().unwrap();
    got.push(Got { at, id: batch.id().to_owned(), key: batch.key().to_owned(), attempt: batch.attempt(), payload });
    got.len()
}

fn message(chat: &str, text: &str) -> Value {
    json!({"tenant_id": "a1b2c3d4", "channel": "telegram", "external_chat_id": chat, "text": text})
}

async fn push(test: &TestTowpath, message: &Value) {
    test.batch("input_contour").push(message).send().await.unwrap();
}
