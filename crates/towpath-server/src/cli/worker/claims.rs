//! Asking for calls, and running a program for each.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use towpath_server::http::wire::Json;
use towpath_server::http::wire::workers::{ClaimedCall, ResultBody};

use super::answer::OutputForm;
use super::events::Event;
use super::program::{Ending, Program, Start, Stop};
use super::session::Session;
use super::{answer, environment};
use crate::cli::client::RequestError;
use crate::cli::pauses::Pauses;
use crate::cli::{time, words};

/// The most calls that one claim may bring.
const CLAIM_MAX: u32 = 1_000;
/// Lines of a program's standard error that may wait to be shown; more are dropped, the tail is kept anyway.
const LINES_WAITING: usize = 256;

/// Takes calls and runs them.
pub(crate) struct Claimer {
    pub(crate) session: Arc<Session>,
    pub(crate) program: Program,
    /// How many calls may run at once, without those that wait for a call of their own. The store counts, because only it knows which
    /// of them wait: a function that calls itself would otherwise wait for its own place.
    pub(crate) concurrency: u32,
    /// What a program's output becomes.
    pub(crate) output: OutputForm,
    pub(crate) results: mpsc::Sender<ResultBody>,
    /// Every program that runs.
    pub(crate) running: TaskTracker,
}

impl Claimer {
    /// Claims until told to stop. Calls that a dropped claim had been given are handed back by the server.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut pauses = Pauses::of(&self.session.worker_id);
        loop {
            let claimed = tokio::select! {
                claimed = self.claim() => claimed,
                () = stop.cancelled() => return,
            };
            match claimed {
                Ok((asked_at, calls)) => {
                    self.session.heard();
                    pauses.reset();
                    for call in calls {
                        self.start(call, asked_at);
                    }
                }
                Err(error) => tokio::select! {
                    () = self.session.recover(&error, &mut pauses) => {}
                    () = stop.cancelled() => return,
                },
            }
        }
    }

    /// Waits for calls, and says when it began to ask: no lease of theirs is older. Programs that were told to stop still need their
    /// place, although the store no longer counts them.
    async fn claim(&self) -> Result<(Instant, Vec<ClaimedCall>), RequestError> {
        let free = self.session.held.stopping_below(self.concurrency).await;
        let asked_at = time::now();
        self.session.claim(free.min(CLAIM_MAX)).await.map(|calls| (asked_at, calls))
    }

    fn start(self: &Arc<Self>, call: ClaimedCall, asked_at: Instant) {
        let stop = self.session.held.take(&call.delivery_id);
        let claimer = Arc::clone(self);
        self.running.spawn(async move { claimer.serve(call, asked_at, stop).await });
    }

    async fn serve(&self, call: ClaimedCall, asked_at: Instant, stop: watch::Receiver<Option<Stop>>) {
        let session = &self.session;
        if !session.still_holds(&call.delivery_id, asked_at).await {
            Event::Dropped { call_id: &call.call_id }.tell(session.out);
            return session.held.let_go(&call.delivery_id);
        }
        Event::Started { call_id: &call.call_id, attempt: call.attempt }.tell(session.out);
        let begun = time::now();
        let (progress, reports) = watch::channel(None);
        let (lines, shown) = mpsc::channel(LINES_WAITING);
        let start = Start {
            input: format!("{}\n", call.params.get()).into_bytes(),
            input_item: call.input_item.as_ref().map(|item| item.get().as_bytes().to_vec()),
            environment: environment::of_call(&call, session.client.server()),
            deadline: begun + std::time::Duration::from_millis(call.remaining_ms),
            stop,
            progress,
            lines,
        };
        // Reports end with the program; the last one is sent before the result, after which no caller would look at it.
        let (ending, (), ()) =
            tokio::join!(self.program.run(start), self.pass_on(&call.delivery_id, reports), self.show(&call.call_id, shown));
        let result = describe(&ending);
        let answer = answer::of_ending(&call.delivery_id, ending, self.output);
        let message = answer.as_ref().and_then(|answer| answer.error.as_ref()).map_or("", |error| error.message.as_str());
        let code = answer.as_ref().and_then(|answer| answer.error.as_ref()?.code.as_deref()).unwrap_or(result);
        let took_ms = words::millis(time::now().saturating_duration_since(begun));
        Event::Ended { call_id: &call.call_id, result: code, message, took_ms }.tell(session.out);
        match answer {
            Some(answer) => drop(self.results.send(answer).await),
            None if result == HANDED_BACK => {} // held until the worker has left, so that its lease is not given up sooner
            None => session.held.let_go(&call.delivery_id),
        }
    }

    /// Sends the latest progress report whenever there is a new one.
    async fn pass_on(&self, delivery_id: &str, mut reports: watch::Receiver<Option<Json>>) {
        while reports.changed().await.is_ok() {
            let report = reports.borrow_and_update().clone();
            if let Some(report) = report {
                self.session.report_progress(delivery_id, report).await;
            }
        }
    }

    /// Shows a program's own words to the person who looks at the worker.
    async fn show(&self, call_id: &str, mut lines: mpsc::Receiver<String>) {
        while let Some(line) = lines.recv().await {
            self.session.out.note(&format!("{call_id} | {line}"));
        }
    }
}

const HANDED_BACK: &str = "handed_back";

fn describe(ending: &Ending) -> &'static str {
    match ending {
        Ending::Exited(exited) if exited.status.success() => "ok",
        Ending::Exited(_) | Ending::NotStarted(_) | Ending::Unguarded(_) | Ending::Stopped(Stop::TooMuchOutput) => "failed",
        Ending::Stopped(Stop::Deadline) => "deadline",
        Ending::Stopped(Stop::Cancelled) => "cancelled",
        Ending::Stopped(Stop::Lost) => "lost",
        Ending::Stopped(Stop::HandBack) => HANDED_BACK,
    }
}
