//! A worker's standing with the server: registered, heard of, and registered again whenever the server has forgotten it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
    /// The server does not answer, and people have been told so.
    cut_off: AtomicBool,
}

impl Session {
    pub(crate) fn new(client: Arc<Client>, out: Output, introduction: RegisterBody, lease: Duration) -> Self {
        let worker_id = introduction.worker_id.clone().unwrap_or_default();
        let (finished, cut_off) = (AtomicU64::new(0), AtomicBool::new(false));
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
        let delivery = HashSet::from([delivery_id.to_owned()]);
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

    /// Shows a program's progress to whoever waits for the call. Losing a report costs nothing but the report.
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
            let covered: HashSet<String> = self.held.ids().into_iter().take(BEAT_MAX).collect();
            let begun = time::now();
            let beat = tokio::select! {
                beat = self.beat(&covered, every) => beat,
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

    async fn beat(&self, deliveries: &HashSet<String>, wait: Duration) -> Result<HeartbeatAnswer, RequestError> {
        let body = HeartbeatBody {
            delivery_ids: deliveries.iter().cloned().collect(),
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
        let forgotten = error.is_not_found();
        if forgotten && self.register().await.is_ok() {
            Event::RegisteredAgain.tell(self.out);
            pauses.reset();
            return;
        }
        if !self.cut_off.swap(true, Ordering::Relaxed) {
            Event::CutOff { message: &error.brief() }.tell(self.out);
        }
        time::sleep(pauses.next(error.retry_after())).await;
    }

    /// After a request that worked.
    pub(crate) fn heard(&self) {
        if self.cut_off.swap(false, Ordering::Relaxed) {
            Event::InTouch.tell(self.out);
        }
    }
}
