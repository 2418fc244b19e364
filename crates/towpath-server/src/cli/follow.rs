//! Waiting for a call to end, and telling the user what happens meanwhile.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use towpath_server::http::wire::calls::{CallDetail, WaitQuery};
use towpath_server::http::wire::functions::{FunctionBody, ScopeQuery};

use super::client::{Ask, Client, RequestError, routes};
use super::failure::Failure;
use super::output::Output;
use super::pauses::Pauses;
use super::{json_text, time, words};

/// How long one request waits when no user watches.
const WAIT_UNWATCHED: Duration = Duration::from_secs(20);
/// And when a user does: a failed attempt or a lost worker is shown this soon, although neither ends the wait.
const WAIT_WATCHED: Duration = Duration::from_secs(1);
/// A server that stops answers every look at once; it is not asked more often than this.
const APART: Duration = Duration::from_millis(100);
/// A look that begins just before the time to wait is over has this much longer for its answer.
pub(crate) const LAST_ANSWER: Duration = Duration::from_secs(1);
/// A call that has waited this long for a worker deserves an explanation.
const EXPLAIN_AFTER: Duration = Duration::from_secs(2);

/// What to wait for.
pub(crate) struct Follow<'a> {
    /// Which call.
    pub(crate) call_id: &'a str,
    /// When to stop waiting.
    pub(crate) until: Option<Instant>,
    /// How long the server may be unreachable before that is an error. The first answer must come at once.
    pub(crate) trouble_for: Duration,
}

/// Waits for a call's end. `None`: it goes on, but the time to wait is over.
pub(crate) async fn follow(client: &Client, out: Output, follow: &Follow<'_>) -> Result<Option<CallDetail>, Failure> {
    let mut watcher = Watcher::new(out);
    let mut pauses = Pauses::of(follow.call_id);
    let mut trouble_since: Option<Instant> = None;
    loop {
        let begun = time::now();
        let left = follow.until.map(|until| until.saturating_duration_since(begun));
        match look(client, out, follow.call_id, left, watcher.progress_seen).await {
            Ok(detail) => {
                trouble_since = None;
                pauses.reset();
                watcher.see(client, &detail).await;
                if detail.outcome.is_some() {
                    return Ok(Some(detail));
                }
                if follow.until.is_some_and(|until| time::now() >= until) {
                    return Ok(None);
                }
                time::sleep_until(begun + APART).await;
            }
            Err(error) if error.may_pass() && patient(follow, *trouble_since.get_or_insert_with(time::now)) => {
                if pauses.is_fresh() {
                    watcher.say(&format!("{}; the call goes on, trying again", error.brief()));
                }
                time::sleep(pauses.next(error.retry_after())).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn patient(follow: &Follow<'_>, trouble_since: Instant) -> bool {
    let too_late = follow.until.is_some_and(|until| time::now() >= until);
    !too_late && time::now().saturating_duration_since(trouble_since) < follow.trouble_for
}

/// One look at the call, held open by the server until there is news.
async fn look(client: &Client, out: Output, call_id: &str, left: Option<Duration>, seen: u32) -> Result<CallDetail, RequestError> {
    let longest = if out.is_json() { WAIT_UNWATCHED } else { WAIT_WATCHED };
    let wait = left.map_or(longest, |left| left.min(longest));
    let query = WaitQuery { wait_ms: Some(words::millis(wait)), after_progress: Some(seen) };
    let ask = Ask::get(&routes::with_query(&routes::call(call_id), &query)).waiting(wait);
    client
        .ask(match left {
            Some(left) => ask.no_longer_than(left.saturating_add(LAST_ANSWER)),
            None => ask,
        })
        .await
}

/// Tells what happens: a moving line on a terminal, a line per event elsewhere, nothing to programs.
struct Watcher {
    out: Output,
    bar: Option<ProgressBar>,
    started: Instant,
    progress_seen: u32,
    failures_seen: u32,
    crashes_seen: u32,
    explained: bool,
}

impl Watcher {
    fn new(out: Output) -> Self {
        let bar = out.stderr_is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{spinner:.cyan} {msg} {elapsed:.dim}").unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { out, bar, started: time::now(), progress_seen: 0, failures_seen: 0, crashes_seen: 0, explained: false }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.out.note(text)),
            None => self.out.note(text),
        }
    }

    async fn see(&mut self, client: &Client, detail: &CallDetail) {
        if self.out.is_json() {
            return self.remember(detail);
        }
        if detail.crashes > self.crashes_seen {
            self.say("its worker stopped answering; another one takes over");
        }
        // A quick retry may have ended well before anybody looked. A call that ended badly tells its last failure itself.
        if detail.failures > self.failures_seen && detail.outcome.as_ref().is_none_or(|outcome| outcome.kind == "ok") {
            self.say(&failed_attempt(detail));
        }
        if let Some(progress) = detail.progress.as_ref().filter(|progress| progress.number > self.progress_seen) {
            self.say(&format!("progress: {}", json_text::brief(progress.value.get(), 200)));
        }
        if detail.state == "queued" && !self.explained && time::now().saturating_duration_since(self.started) >= EXPLAIN_AFTER {
            self.explained = true;
            self.explain_waiting(client, detail).await;
        }
        if let Some(bar) = &self.bar {
            bar.set_message(standing(detail));
        }
        self.remember(detail);
    }

    fn remember(&mut self, detail: &CallDetail) {
        self.progress_seen = detail.progress.as_ref().map_or(self.progress_seen, |progress| progress.number);
        self.failures_seen = detail.failures;
        self.crashes_seen = detail.crashes;
    }

    async fn explain_waiting(&self, client: &Client, detail: &CallDetail) {
        let name = &detail.function_name;
        let query = ScopeQuery { scope: Some(detail.scope.clone()) };
        let asked: Result<FunctionBody, _> = client.get(&routes::with_query(&routes::function(name), &query)).await;
        match asked {
            Ok(function) if function.healthy_workers == 0 && function.target.is_none() => {
                self.say(&format!("waiting: no worker serves '{name}' now; start one with `towpath worker {name} --exec CMD`"));
            }
            Ok(function) => {
                // It is one of those that are queued.
                self.say(&match (function.queued + function.running).saturating_sub(1) {
                    0 => format!("waiting: no other call of '{name}' waits or runs, but no worker has taken it yet"),
                    others => format!("waiting: {} before it or beside it", words::plural(others, "call")),
                });
            }
            Err(_) => {} // only an explanation; the wait itself will tell of real trouble
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn failed_attempt(detail: &CallDetail) -> String {
    let reason = detail
        .last_failure
        .as_ref()
        .map_or_else(String::new, |failure| format!(": {}: {}", failure.code, json_text::brief(&failure.message, 300)));
    let next = detail.next_attempt_at.map_or_else(String::new, |at| format!("; next attempt in {}", words::between(time::unix_ms(), at)));
    format!("attempt {} failed{reason}{next}", detail.failures)
}

fn standing(detail: &CallDetail) -> String {
    match detail.state.as_str() {
        "running" if detail.cancel_requested => "stopping".to_owned(),
        "running" if detail.attempt > 1 => format!("running, attempt {}", detail.attempt),
        state => state.to_owned(),
    }
}
