//! Batches: messages gathered per key until their sender falls silent, then handed over as one. Here in virtual time, so that nothing is
//! waited for.
//!
//! Run it with `cargo run -p towpath --example 06_batches`.

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use towpath::batches::{Batch, BatchFailure, Batcher, DeadLetterQuery, Pushed, Select};
use towpath::testing::TestTowpath;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let towpath = TestTowpath::new().await;

    // Ten seconds of silence close a batch, or five minutes after its first message. Every process on the store follows these settings.
    let chats = Batcher::builder("chats").key(["chat"]).debounce(Duration::from_secs(10)).max_wait(Duration::from_secs(300)).build()?;
    towpath.batchers().put(&chats).await?;

    // A receiver in this process. Ok is the end of a batch, any error another attempt, a fatal one a dead letter.
    let (sender, mut received) = mpsc::unbounded_channel();
    let worker = towpath
        .worker()
        .batches("chats", move |batch: Batch| {
            let sender = sender.clone();
            async move {
                let payload: Value = batch.read()?;
                if payload["messages"][0]["text"] == "nonsense" && batch.attempt() == 1 {
                    return Err(BatchFailure::fatal("nobody understands this"));
                }
                sender.send(payload).map_err(|_| "nobody listens")?;
                Ok(())
            }
        })
        .start()
        .await?;

    for text in ["hello", "my screen is broken", "it is an old one"] {
        let pushed = towpath.batch("chats").push(&json!({"chat": "anna", "text": text, "message_id": text})).send().await?;
        assert!(matches!(pushed, Pushed::Accepted { .. }));
        towpath.advance(Duration::from_secs(2)).await;
    }
    // Whoever repeats a message under its id does no harm.
    let again = towpath.batch("chats").push(&json!({"chat": "anna", "text": "hello", "message_id": "hello"})).send().await?;
    assert!(matches!(again, Pushed::Duplicate { .. }));

    towpath.advance(Duration::from_secs(10)).await;
    let batch = received.try_recv()?;
    println!("one batch of {} messages, closed because of {}", batch["meta"]["batch_size"], batch["meta"]["close_reason"]);
    assert_eq!(batch["meta"]["batch_size"], 3);

    // What is given up is kept, and goes again under the same batch id.
    towpath.batch("chats").push(&json!({"chat": "bert", "text": "nonsense"})).debounce(Duration::ZERO).send().await?;
    towpath.advance(Duration::from_secs(1)).await;
    let letters = towpath.dead_letters().batcher("chats");
    let page = letters.list(&DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() }).await?;
    println!("{} dead letter: {}", page.items.len(), page.items[0].1.reason.as_deref().unwrap_or_default());
    assert_eq!(letters.drop(&Select::All, "an example").await?, 1);

    worker.drain().await;
    Ok(())
}
