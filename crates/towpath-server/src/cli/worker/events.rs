//! What a worker tells while it runs: a sentence for people, one JSON line per event for programs.

use serde::Serialize;

use crate::cli::json_text;
use crate::cli::output::Output;
use crate::cli::words;

/// Something that happened.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    /// The worker is registered and asks for calls.
    Serving {
        /// Which function.
        function: &'a str,
        /// As whom.
        worker_id: &'a str,
        /// Where.
        server: &'a str,
        /// How many at once.
        concurrency: u32,
    },
    /// A program was started for a call.
    Started {
        /// Which call.
        call_id: &'a str,
        /// Which attempt.
        attempt: u32,
    },
    /// A claimed call was not started: this process stood still, and the lease may be over.
    Dropped {
        /// Which call.
        call_id: &'a str,
    },
    /// A program ended, or was stopped.
    Ended {
        /// Which call.
        call_id: &'a str,
        /// `ok`, the error's code, or why it was stopped.
        result: &'a str,
        /// More about it.
        #[serde(skip_serializing_if = "str::is_empty")]
        message: &'a str,
        /// How long it ran.
        took_ms: u64,
    },
    /// A result came too late: the call is another's, or over.
    Refused {
        /// Which delivery.
        delivery_id: &'a str,
        /// `expired`, `replaced`, `ended` or `absent`.
        reason: &'a str,
    },
    /// The server does not answer; work goes on.
    CutOff {
        /// What happened.
        message: &'a str,
    },
    /// The server answers again.
    InTouch,
    /// The server had forgotten this worker and knows it again.
    RegisteredAgain,
    /// The worker was asked to leave.
    Draining {
        /// Calls that still run.
        running: usize,
        /// By which signal.
        signal: &'a str,
    },
    /// The worker has left.
    Left {
        /// Results that the server took.
        finished: u64,
        /// Calls that go to other workers.
        handed_back: u64,
    },
}

impl Event<'_> {
    /// Tells it.
    pub(crate) fn tell(&self, out: Output) {
        if out.is_json() {
            return out.json(self);
        }
        match self {
            Self::Serving { function, worker_id, server, concurrency } => out.note(&format!(
                "serving '{function}' at {server} as {worker_id}, {concurrency} at a time; Ctrl-C finishes what runs and leaves"
            )),
            Self::Started { .. } => {}
            Self::Dropped { call_id } => {
                out.note(&format!("{call_id} was not started: this worker stood still, and the call may be another worker's by now"));
            }
            Self::Ended { call_id, result, message, took_ms } => {
                let took = words::length(std::time::Duration::from_millis(*took_ms));
                let more = if message.is_empty() { String::new() } else { format!(": {}", json_text::brief(message, 120)) };
                out.note(&format!("{call_id} {result} after {took}{more}"));
            }
            Self::Refused { delivery_id, reason } => {
                out.note(&format!("the result of {delivery_id} came too late ({reason}); nothing was changed"));
            }
            Self::CutOff { message } => out.note(&format!("{message}; work goes on, trying again")),
            Self::InTouch => out.note("the server answers again"),
            Self::RegisteredAgain => out.note("the server did not know this worker any more; registered again"),
            Self::Draining { running: 0, signal } => out.note(&format!("leaving because of {signal}")),
            Self::Draining { running, signal } => out.note(&format!(
                "leaving because of {signal}: {} to finish first; once more to stop now",
                words::plural(*running as u64, "call")
            )),
            Self::Left { finished, handed_back } => {
                out.note(&format!(
                    "left: {} finished, {} handed back",
                    words::plural(*finished, "call"),
                    words::plural(*handed_back, "call")
                ));
            }
        }
    }
}
