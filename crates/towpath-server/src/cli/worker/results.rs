//! Results on their way to the server: as many in one request as have piled up, and again until they are taken. Sending one twice is
//! safe: the server says `already`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use towpath_server::http::wire::workers::{CompleteAnswer, CompleteBody, ResultAnswer, ResultBody};

use super::answer;
use super::events::Event;
use super::session::Session;
use crate::cli::client::{Ask, RequestError};
use crate::cli::pauses::Pauses;

/// At most this many results in one request.
const RESULTS_MAX: usize = 256;
/// And no more data than this, unless a single result is larger.
const BYTES_MAX: usize = 1024 * 1024;

/// Sends results until all senders are gone and everything is taken.
pub(crate) async fn deliver(session: Arc<Session>, mut results: mpsc::Receiver<ResultBody>) {
    let mut waiting = Vec::new();
    while results.recv_many(&mut waiting, RESULTS_MAX).await > 0 {
        while !waiting.is_empty() {
            let batch = take_batch(&mut waiting);
            send_until_taken(&session, batch).await;
        }
    }
}

/// The first results that fit into one request.
fn take_batch(waiting: &mut Vec<ResultBody>) -> Vec<ResultBody> {
    let mut bytes = 0;
    let fits = waiting.iter().take_while(|result| {
        bytes += result.data.as_ref().map_or(256, |data| data.get().len());
        bytes <= BYTES_MAX
    });
    let many = fits.count().max(1);
    waiting.drain(..many).collect()
}

async fn send_until_taken(session: &Session, batch: Vec<ResultBody>) {
    let mut pauses = Pauses::of(&session.worker_id);
    let mut todo = vec![batch];
    while let Some(batch) = todo.pop() {
        match send(session, &batch).await {
            Ok(answer) => {
                session.heard();
                pauses.reset();
                answer.results.iter().for_each(|result| settle(session, result));
            }
            // A right that the store's user lacks may come back, and what was run must not be run again for it.
            Err(error) if error.may_pass() || error.is_not_found() || error.is_not_allowed_by_store() => {
                session.recover(&error, &mut pauses).await;
                todo.push(batch);
            }
            Err(error) if batch.len() > 1 => {
                // One of them is at fault; alone, the others go through.
                session.out.note(&format!("results are sent one by one: {}", error.brief()));
                todo.extend(batch.into_iter().map(|result| vec![result]));
            }
            Err(error) => todo.extend(after_refusal(session, &batch, &error)),
        }
    }
}

async fn send(session: &Session, batch: &[ResultBody]) -> Result<CompleteAnswer, RequestError> {
    let body = CompleteBody { results: batch.to_vec() };
    session.client.ask(Ask::post(&session.verb("complete"), &body)).await
}

/// A result that the server will never take becomes an error that it can.
fn after_refusal(session: &Session, batch: &[ResultBody], error: &RequestError) -> Option<Vec<ResultBody>> {
    let result = batch.first()?;
    session.out.note(&format!("the result of {} was refused: {}", result.delivery_id, error.brief()));
    if !result.success {
        session.held.let_go(&result.delivery_id); // even the error was refused: the lease will tell
        return None;
    }
    Some(vec![answer::refused(&result.delivery_id, &error.brief())])
}

fn settle(session: &Session, result: &ResultAnswer) {
    session.held.let_go(&result.delivery_id);
    match result.result.as_str() {
        "lost" => Event::Refused { delivery_id: &result.delivery_id, reason: result.reason.as_deref().unwrap_or("lost") }.tell(session.out),
        _taken => drop(session.finished.fetch_add(1, Ordering::Relaxed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(bytes: usize) -> ResultBody {
        let data = serde_json::value::to_raw_value(&"x".repeat(bytes)).unwrap();
        ResultBody { delivery_id: format!("1-{bytes}"), success: true, data: Some(data), error: None }
    }

    #[test]
    fn a_batch_is_bounded_in_bytes_but_never_empty() {
        let mut waiting = vec![result(10), result(10), result(2 * BYTES_MAX), result(10)];
        let sizes: Vec<usize> = std::iter::from_fn(|| (!waiting.is_empty()).then(|| take_batch(&mut waiting).len())).collect();
        assert_eq!(sizes, [2, 1, 1]);
    }
}
