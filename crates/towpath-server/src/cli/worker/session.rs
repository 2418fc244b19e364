//! A worker's standing with the server: registered, heard of, and registered again whenever the server has forgotten it.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use towpath_server::http::wire::Json;
use towpath_server::http::wire::workers::{
    ClaimBody, Claimed, ClaimedCall, HeartbeatAnswer, HeartbeatBody, ProgressBody, RegisterBody, Registered, Unregistered,
};

use super::events::Event;
use super::held::Held;
use super::program::Stop;
use crate::cli::client::{Ask, Client, RequestError, routes};
use crate::cli::output::Output;
use crate::cli::pauses::Pauses;
use crate::cli::{time, words};

/// How long one claim waits for work.
const CLAIM_WAIT: Duration = Duration::from_secs(20);
/// Heartbeats are at least this far apart, whatever the server answers.
const BEAT_APART: Duration = Duration::from_millis(250);
/// A progress report that takes longer is not worth the wait: the program's result comes after it.
const REPORT_WITHIN: Duration = Duration::from_secs(2);
/// The most deliveries that one heartbeat names.
const BEAT_MAX: usize = 1_000;

/// A worker and its server.
pub(crate) struct Session {
    pub(crate) client: Arc<Client>,
    pub(crate) out: Output,
    pub(crate) worker_id: String,
    /// What was said at registration, to be said again.
    pub(crate) introduction: RegisterBody,
    pub(crate) lease: Duration,
    pub(crate) held: Held,
    /// Results that the server took.
    pub(crate) finished: AtomicU64,
    /// What people were last told about a server that does not answer, or refuses this worker: the error's kind.
    cut_off: Mutex<Option<String>>,
}

impl Session {
    pub(crate) fn new(client: Arc<Client>, out: Output, introduction: RegisterBody, lease: Duration) -> Self {
        let worker_id = introduction.worker_id.clone().unwrap_or_default();
        let (finished, cut_off) = (AtomicU64::new(0), Mutex::default());
        Self { client, out, worker_id, introduction, lease, held: Held::default(), finished, cut_off }
    }

    /// Introduces the worker. Doing it again does no harm.
    pub(crate) async fn register(&self) -> Result<Registered, RequestError> {
        self.client.ask(Ask::post(routes::WORKERS, &self.introduction)).await
    }

    /// Asks for calls and waits for the first.
    pub(crate) async fn claim(&self, max: u32) -> Result<Vec<ClaimedCall>, RequestError> {
        let body = ClaimBody { max: Some(max), wait_ms: Some(words::millis(CLAIM_WAIT)), lease_ms: Some(words::millis(self.lease)) };
        let ask = Ask::post(&self.verb("claim"), &body).waiting(CLAIM_WAIT);
        self.client.ask::<Claimed>(ask).await.map(|claimed| claimed.calls)
    }

    /// Whether the lease of a delivery that was asked for at `asked_at` certainly runs. After a long wait or a pause of this process the
    /// server is asked; what it does not confirm is not started, because another worker may have it.
    pub(crate) async fn still_holds(&self, delivery_id: &str, mut asked_at: Instant) -> bool {
        let delivery = [delivery_id.to_owned()];
        while time::now() >= asked_at + self.lease {
            asked_at = time::now();
            match self.beat(&delivery, Duration::ZERO).await {
                Ok(answer) if !answer.lost.iter().any(|lost| lost == delivery_id) => {}
                Ok(_lost) => return false,
                Err(_unconfirmed) => return false,
            }
        }
        true
    }

    /// Shows a program's progress to the callers that wait. Losing a report costs nothing but the report.
    pub(crate) async fn report_progress(&self, delivery_id: &str, progress: Json) {
        let body = ProgressBody { delivery_id: delivery_id.to_owned(), progress };
        let sent: Result<serde_json::Value, RequestError> =
            self.client.ask(Ask::post(&self.verb("progress"), &body).within(REPORT_WITHIN)).await;
        if let Err(error) = sent {
            self.out.note(&format!("a progress report was not taken: {}", error.brief()));
        }
    }

    /// Leaves; what is still held goes to other workers.
    pub(crate) async fn unregister(&self, within: Duration) -> Result<Unregistered, RequestError> {
        self.client.ask(Ask::delete(&routes::worker(&self.worker_id)).within(within)).await
    }

    /// One of this worker's verbs.
    pub(crate) fn verb(&self, verb: &str) -> String {
        routes::worker_verb(&self.worker_id, verb)
    }

    /// Says that the worker lives, prolongs its leases and learns what it must stop. Never ends by itself.
    pub(crate) async fn keep_alive(&self, every: Duration) {
        let mut pauses = Pauses::of(&self.worker_id);
        loop {
            let deliveries = self.held.ids();
            let covered = deliveries.iter().cloned().collect();
            let begun = time::now();
            let beat = tokio::select! {
                beat = self.beat_for_all(&deliveries, every) => beat,
                () = self.held.uncovered(&covered) => continue,
            };
            match beat {
                Ok(answer) => {
                    self.heard();
                    pauses.reset();
                    self.heed(&answer);
                    time::sleep_until(begun + BEAT_APART).await;
                }
                Err(error) => self.recover(&error, &mut pauses).await,
            }
        }
    }

    /// Prolongs the leases of all deliveries, in as many heartbeats as that takes, and returns the first answer with something to stop.
    async fn beat_for_all(&self, deliveries: &[String], wait: Duration) -> Result<HeartbeatAnswer, RequestError> {
        if deliveries.len() <= BEAT_MAX {
            return self.beat(deliveries, wait).await;
        }
        // All of them before any wait: the first answer below ends the waits of the others.
        for part in deliveries.chunks(BEAT_MAX) {
            self.heed(&self.beat(part, Duration::ZERO).await?);
        }
        select_all(deliveries.chunks(BEAT_MAX).map(|part| Box::pin(self.beat(part, wait)))).await.0
    }

    async fn beat(&self, deliveries: &[String], wait: Duration) -> Result<HeartbeatAnswer, RequestError> {
        let body = HeartbeatBody {
            delivery_ids: deliveries.to_vec(),
            lease_ms: Some(words::millis(self.lease)),
            wait_ms: Some(words::millis(wait)),
        };
        self.client.ask(Ask::post(&self.verb("heartbeat"), &body).waiting(wait)).await
    }

    fn heed(&self, answer: &HeartbeatAnswer) {
        for delivery_id in &answer.lost {
            self.held.stop(delivery_id, Stop::Lost);
        }
        for delivery_id in &answer.cancelled {
            self.held.stop(delivery_id, Stop::Cancelled);
        }
    }

    /// After a request that failed: registers again when the server has forgotten this worker, and waits a little.
    pub(crate) async fn recover(&self, error: &RequestError, pauses: &mut Pauses) {
        let refused = match error.is_not_found() {
            false => None,
            true => match self.register().await {
                Ok(_registered) => {
                    self.cut_off().take();
                    Event::RegisteredAgain.tell(self.out);
                    pauses.reset();
                    return;
                }
                Err(refused) => Some(refused),
            },
        };
        // Why the worker stays out, and not that it was forgotten.
        let error = refused.as_ref().unwrap_or(error);
        if self.is_news(error) {
            Event::CutOff { message: &error.brief() }.tell(self.out);
        }
        time::sleep(pauses.next(error.retry_after())).await;
    }

    /// Whether people have not been told of an error of this kind yet. From now on they have.
    fn is_news(&self, error: &RequestError) -> bool {
        let kind = error.refused_with().unwrap_or_default().to_owned();
        self.cut_off().replace(kind.clone()) != Some(kind)
    }

    fn cut_off(&self) -> MutexGuard<'_, Option<String>> {
        self.cut_off.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a request that worked.
    pub(crate) fn heard(&self) {
        if self.cut_off().take().is_some() {
            Event::InTouch.tell(self.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_server::http::wire::workers::OfferBody;

    use super::*;
    use crate::cli::ids;

    async fn session() -> Session {
        let client = Client::on_store("memory:", None).await.unwrap();
        let offer = OfferBody {
            name: "f".to_owned(),
            scope: None,
            description: None,
            parameters: None,
            concurrency: Some(10_000),
            retry: None,
            limits: None,
        };
        let introduction = RegisterBody { worker_id: Some(ids::worker_id()), kind: None, functions: vec![offer] };
        let session = Session::new(Arc::new(client), Output::new(false), introduction, Duration::from_secs(30));
        session.register().await.unwrap();
        session
    }

    #[tokio::test]
    async fn a_worker_that_is_not_taken_again_is_told_why() {
        let client = Client::on_store("memory:", None).await.unwrap();
        let offer = serde_json::json!({ "name": "f", "limits": { "rate": { "policy": "missing" } } });
        let introduction = serde_json::from_value(serde_json::json!({ "worker_id": ids::worker_id(), "functions": [offer] })).unwrap();
        let session = Session::new(Arc::new(client), Output::new(false), introduction, Duration::from_secs(30));
        let unknown = session.beat(&[], Duration::ZERO).await.unwrap_err();
        assert!(unknown.is_not_found(), "{unknown:?}");
        session.recover(&unknown, &mut Pauses::of(&session.worker_id)).await;
        assert_eq!(session.cut_off().as_deref(), Some("policy_not_found"));
    }

    #[tokio::test]
    async fn heartbeats_cover_more_deliveries_than_one_of_them_names() {
        let session = session().await;
        // The server never gave these away, so each heartbeat says of all that it names that they are lost.
        let stops: Vec<_> = (0..2 * BEAT_MAX + 1).map(|number| session.held.take(&format!("1-call-{number}"))).collect();
        let all_heard_of = async {
            for mut stop in stops {
                stop.wait_for(|stop| *stop == Some(Stop::Lost)).await.unwrap();
            }
        };
        tokio::select! {
            () = all_heard_of => {}
            () = session.keep_alive(Duration::from_secs(10)) => {}
            () = time::sleep(Duration::from_secs(30)) => panic!("no heartbeat named some of the deliveries"),
        }
    }
}
