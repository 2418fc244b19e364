//! What a pull worker sends becomes entries of the journal, timers, children and posts. The worker names steps and facts; the server makes
//! all ids and writes every result that comes from a fact itself.

use std::sync::Arc;

use towpath_core::payload::Payload;
use towpath_core::run::{
    Child, ChildStart, ClosePolicy, Entry, EntryKind, Fact, FactKind, Parent, Post, Run, RunId, RunPlace, StepId, StepKind, StepParts,
    TimerAt,
};
use towpath_core::store::RunStore;
use towpath_core::time::Timestamp;

use super::book::{Book, key, key_text, kind_of};
use crate::http::bounds;
use crate::http::codes::Code;
use crate::http::error::{ApiError, payload_too_large};
use crate::http::runs::bodies::{self, Ended, Error, Open};
use crate::http::runs::start::RETAIN_DEFAULT;
use crate::http::runs::{PAYLOAD_BYTES_MAX, names};
use crate::http::wire::run_workers::{NewStepBody, RunErrorBody, StepBody};

/// The journal keeps inputs of steps up to this size; replay supplies larger ones.
const INPUT_KEPT_BYTES_MAX: usize = 4 * 1024;

/// What the steps of a commit come to.
#[derive(Debug, Default)]
pub(super) struct Derived {
    opens: Vec<Entry>,
    results: Vec<Entry>,
    pub(super) consumed: Vec<u64>,
    pub(super) armed: Vec<(StepId, TimerAt)>,
    pub(super) disarmed: Vec<StepId>,
    pub(super) children: Vec<Child>,
    pub(super) posts: Vec<Post>,
    pub(super) step_ids: Vec<Option<StepId>>,
}

impl Derived {
    /// The entries in their order: what the code has issued, then results.
    pub(super) fn entries(&mut self) -> Vec<Entry> {
        let mut entries = std::mem::take(&mut self.opens);
        entries.append(&mut self.results);
        entries
    }
}

/// Where the steps belong to.
pub(super) struct Deriving<'a> {
    pub(super) runs: &'a Arc<dyn RunStore>,
    pub(super) run: &'a Run,
    pub(super) book: &'a mut Book,
    pub(super) derived: Derived,
}

fn bad_step(field: String, message: impl Into<String>) -> ApiError {
    ApiError::new(Code::BadStep, message).field(field)
}

fn bad_entry(field: String, message: impl Into<String>) -> ApiError {
    ApiError::new(Code::BadEntry, message).field(field).hint("read the journal and the facts again")
}

impl Deriving<'_> {
    /// Takes one step of the request, the `place`-th.
    pub(super) async fn take(&mut self, place: usize, body: StepBody) -> Result<(), ApiError> {
        let at = format!("steps[{place}]");
        let StepBody { step, step_id, out, value, error, fact } = body;
        let (id, is_send) = match (step, step_id) {
            (Some(_), Some(_)) => return Err(bad_entry(at, "a step is new (`step`) or of the journal (`step_id`), not both")),
            (Some(new), None) => {
                let is_send = new.kind == StepKind::Send.as_str();
                (Some(self.open(&at, &new)?), is_send)
            }
            (None, Some(text)) => (Some(names::step_id(format!("{at}.step_id"), &text)?), false),
            (None, None) => (None, false),
        };
        self.derived.step_ids.push(id.clone());
        match (id, out, fact) {
            (Some(_), Some(_), Some(_)) => Err(bad_entry(at, "a result comes from a task (`out`) or from a fact, not from both")),
            (Some(id), Some(out), None) => self.end_task(&at, id, &out, value, error),
            (Some(id), None, Some(number)) => self.end_with_fact(&at, id, number).await,
            (Some(_), None, None) if is_send => Ok(()),
            (Some(_), None, None) if value.is_some() || error.is_some() => {
                Err(bad_entry(format!("{at}.out"), "a result says how the task ended: `ok` or `err`"))
            }
            (Some(_), None, None) => Ok(()),
            (None, None, Some(number)) => self.note_cancel(&at, number).await,
            (None, _, _) => Err(bad_entry(at, "name a step: `step` or `step_id`")),
        }
    }

    /// The code has issued a step. Returns its id.
    fn open(&mut self, at: &str, new: &NewStepBody) -> Result<StepId, ApiError> {
        let field = |name: &str| format!("{at}.step.{name}");
        let Some(kind) = kind_of(&new.kind) else {
            return Err(bad_step(field("kind"), format!("'{}' is not task, sleep, event, child or send", new.kind.escape_default())));
        };
        refuse_options(kind, new, at)?;
        let name: Arc<str> = match (kind, new.name.as_deref()) {
            (StepKind::Sleep, _) => Arc::from("sleep"),
            (_, Some(name)) => Arc::from(names::event(field("name"), name)?.as_str()), // all names of steps have the same form
            (_, None) => return Err(bad_step(field("name"), format!("a {} has a name", kind.as_str()))),
        };
        if new.key.as_ref().is_some_and(|key| key.len() > towpath_core::names::NAME_BYTES_MAX) {
            return Err(bad_step(field("key"), format!("a key has at most {} bytes", towpath_core::names::NAME_BYTES_MAX)));
        }
        let input = new.input.clone().map(|input| names::payload("input", Some(input))).transpose()?;
        let key = key(self.book.seed(), new.key.as_deref(), input.as_ref())
            .map_err(|refused| ApiError::new(Code::UnencodableInput, refused.to_string()).field(field("input")))?;
        let deadline = bounds::length(&field("deadline_ms"), new.deadline_ms)?;
        let parts = StepParts { branch: Vec::new(), kind, name, key };
        let (id, ordinal) = self.book.open(parts.clone(), kind == StepKind::Sleep || deadline.is_some());
        let mut open = Open { k: kind.as_str(), name: &parts.name, key: key_text(&parts.key), n: ordinal, ..Open::default() };
        match kind {
            StepKind::Sleep => self.open_sleep(at, new, &id, &mut open)?,
            StepKind::Event => {
                open.ms = new.deadline_ms;
                self.derived.armed.extend(deadline.map(|length| (id.clone(), TimerAt::After(length))));
            }
            StepKind::Send => return self.open_send(at, new, id, open, input),
            StepKind::Child => return self.open_child(at, new, id, open, input),
            _task => {
                let (v, bytes) = kept(input.as_ref());
                self.push_open(&id, &Open { v, bytes, ..open });
                return Ok(id);
            }
        }
        self.push_open(&id, &open);
        Ok(id)
    }

    fn push_open(&mut self, id: &StepId, open: &Open<'_>) {
        self.derived.opens.push(Entry { kind: EntryKind::Open, step: Some(id.clone()), body: bodies::body(open) });
    }

    fn open_sleep(&mut self, at: &str, new: &NewStepBody, id: &StepId, open: &mut Open<'_>) -> Result<(), ApiError> {
        let length = bounds::length(&format!("{at}.step.sleep_ms"), new.sleep_ms)?;
        let timer = match (length, new.until) {
            (Some(length), None) => TimerAt::After(length),
            (None, Some(until)) => TimerAt::At(Timestamp::from_millis(until)),
            _ => return Err(bad_step(format!("{at}.step.sleep_ms"), "a sleep has `sleep_ms` or `until`")),
        };
        (open.ms, open.until) = (new.sleep_ms, new.until);
        self.derived.armed.push((id.clone(), timer));
        Ok(())
    }

    /// An event for another run. The post is stored with the commit, so the step is done with it.
    fn open_send(&mut self, at: &str, new: &NewStepBody, id: StepId, open: Open<'_>, data: Option<Payload>) -> Result<StepId, ApiError> {
        let Some(to) = new.to.as_deref() else {
            return Err(bad_step(format!("{at}.step.to"), "a send says for which run it is"));
        };
        let (to, name) = (names::run_id_in(format!("{at}.step.to"), to)?, names::event(format!("{at}.step.name"), open.name)?);
        let data = data.unwrap_or_else(Payload::null);
        self.push_open(&id, &Open { to: Some(to.as_str()), v: Some(&data), ..open });
        let reference = format!("{}/{}/{id}", self.run.run_id, self.book.generation());
        let reference = names::reference(format!("{at}.step"), &reference)?;
        self.derived.posts.push(Post::Send { to, name, data, reference });
        self.push_done(id.clone(), &Ended { out: "ok", ..Ended::default() });
        Ok(id)
    }

    /// Another workflow. Its id follows from the step, so it cannot start twice.
    fn open_child(&mut self, at: &str, new: &NewStepBody, id: StepId, open: Open<'_>, input: Option<Payload>) -> Result<StepId, ApiError> {
        let Some(version) = new.version.as_deref() else {
            return Err(bad_step(format!("{at}.step.version"), "a child has the version of its workflow"));
        };
        let place = RunPlace {
            workflow: names::workflow(format!("{at}.step.name"), open.name)?,
            version: names::version(format!("{at}.step.version"), version)?,
            shard: self.run.place.shard.clone(),
        };
        let on_close = new.on_close.as_deref().map_or(Ok(ClosePolicy::default()), |word| close_policy(at, word))?;
        let run_id = RunId::of_child(&place, &self.run.run_id, self.book.generation(), &id);
        let ((v, bytes), close) = (kept(input.as_ref()), Some(policy_word(on_close)));
        self.push_open(&id, &Open { run: Some(run_id.as_str()), ver: Some(version), close, v, bytes, ..open });
        let begin = bodies::begin(&bodies::seed(&[self.book.seed(), id.as_str()]), &input.unwrap_or_else(Payload::null), None);
        let parent = Parent { run_id: self.run.run_id.clone(), step: id.clone() };
        self.derived.children.push(Child { step: id.clone(), run_id: run_id.clone(), group: id.clone(), on_close });
        self.derived.posts.push(Post::Create(Box::new(ChildStart { run_id, place, begin, retain: RETAIN_DEFAULT, parent })));
        Ok(id)
    }

    fn push_done(&mut self, id: StepId, ended: &Ended<'_>) {
        self.book.mark_done(&id);
        self.derived.results.push(bodies::done(id, ended));
    }

    /// The step of an open kind, if it has no result yet.
    fn open_step(&self, at: &str, id: &StepId) -> Result<(StepKind, bool), ApiError> {
        match self.book.step(id) {
            None => Err(bad_entry(format!("{at}.step_id"), format!("the journal has no step '{id}'"))),
            Some(step) if step.is_done => Err(bad_entry(format!("{at}.step_id"), format!("step '{id}' has its result already"))),
            Some(step) => Ok((step.kind, step.has_timer)),
        }
    }

    fn end_task(
        &mut self,
        at: &str,
        id: StepId,
        out: &str,
        value: Option<crate::http::wire::Json>,
        error: Option<RunErrorBody>,
    ) -> Result<(), ApiError> {
        let (kind, _) = self.open_step(at, &id)?;
        if kind != StepKind::Task {
            return Err(bad_entry(format!("{at}.out"), format!("a {} ends with a fact, not with `out`", kind.as_str())));
        }
        match (out, error) {
            ("ok", None) => {
                let value = names::payload("value", value)?;
                self.push_done(id, &Ended { out: "ok", v: Some(&value), ..Ended::default() });
            }
            ("err", Some(error)) if value.is_none() => {
                let error = self::error(error)?;
                self.push_done(id, &Ended { out: "err", err: Some(&error), ..Ended::default() });
            }
            ("ok", Some(_)) => return Err(bad_entry(format!("{at}.error"), "a task that ended with `ok` has no error")),
            ("err", None) => return Err(bad_entry(format!("{at}.error"), "a task that ended with `err` has an error")),
            ("err", Some(_)) => return Err(bad_entry(format!("{at}.value"), "a task that ended with `err` has no value")),
            _ => return Err(bad_entry(format!("{at}.out"), format!("'out' is ok or err, not '{}'", out.escape_default()))),
        }
        Ok(())
    }

    /// A fact of the inbox that is not used yet.
    async fn fact(&self, at: &str, number: u64) -> Result<Fact, ApiError> {
        let facts = self.runs.facts(&self.run.run_id, number.saturating_sub(1)).await?;
        let is_used = self.derived.consumed.contains(&number);
        facts
            .into_iter()
            .find(|fact| fact.number == number && !is_used)
            .ok_or_else(|| bad_entry(format!("{at}.fact"), format!("the inbox has no fact {number}, or it was used before")))
    }

    async fn end_with_fact(&mut self, at: &str, id: StepId, number: u64) -> Result<(), ApiError> {
        let (kind, has_timer) = self.open_step(at, &id)?;
        let fact = self.fact(at, number).await?;
        let name = self.book.step(&id).map(|step| Arc::clone(&step.name)).unwrap_or_default();
        let does_not_fit = || bad_entry(format!("{at}.fact"), format!("fact {number} does not end a {} '{name}'", kind.as_str()));
        match (kind, &fact.kind) {
            (StepKind::Event, FactKind::Event { name: event, data }) if *event.as_str() == *name => {
                if !self.derived.results.is_empty() {
                    return Err(bad_entry(at.to_owned(), "an event is the first result of its commit: commit what is before it"));
                }
                self.push_done(id.clone(), &Ended { out: "ok", v: Some(data), n: Some(number), ..Ended::default() });
                self.derived.armed.retain(|(armed, _)| *armed != id);
                self.derived.disarmed.extend(has_timer.then_some(id));
            }
            (StepKind::Event, FactKind::TimerDue(step)) if *step == id => {
                self.push_done(id, &Ended { out: "timeout", ..Ended::default() });
            }
            (StepKind::Sleep, FactKind::TimerDue(step)) if *step == id => {
                self.push_done(id, &Ended { out: "ok", ..Ended::default() });
            }
            (StepKind::Child, FactKind::ChildClosed { step, outcome, .. }) if *step == id => {
                self.book.mark_done(&id);
                self.derived.results.push(Entry { kind: EntryKind::Done, step: Some(id), body: outcome.clone() });
            }
            _other => return Err(does_not_fit()),
        }
        self.derived.consumed.push(number);
        Ok(())
    }

    /// The code has noticed that a caller wants the run cancelled.
    async fn note_cancel(&mut self, at: &str, number: u64) -> Result<(), ApiError> {
        let fact = self.fact(at, number).await?;
        let FactKind::Cancel { reason } = &fact.kind else {
            return Err(bad_entry(format!("{at}.fact"), format!("fact {number} is not a cancellation: name the step that it ends")));
        };
        let body = bodies::body(&serde_json::json!({ "reason": &**reason }));
        self.derived.results.push(Entry { kind: EntryKind::Cancel, step: None, body });
        self.derived.consumed.push(number);
        Ok(())
    }
}

/// What the journal keeps of an input: itself, or its size.
fn kept(input: Option<&Payload>) -> (Option<&Payload>, Option<usize>) {
    match input {
        Some(input) if input.len() > INPUT_KEPT_BYTES_MAX => (None, Some(input.len())),
        small => (small, None),
    }
}

/// Refuses options that a kind of step does not have: a misspelt or misplaced one never passes silently.
fn refuse_options(kind: StepKind, new: &NewStepBody, at: &str) -> Result<(), ApiError> {
    use StepKind::{Child, Event, Send, Sleep, Task};
    let options: [(&str, bool, &[StepKind]); 8] = [
        ("name", new.name.is_some(), &[Task, Event, Child, Send]),
        ("key", new.key.is_some(), &[Task, Child, Send]),
        ("input", new.input.is_some(), &[Task, Child, Send]),
        ("sleep_ms", new.sleep_ms.is_some() || new.until.is_some(), &[Sleep]),
        ("deadline_ms", new.deadline_ms.is_some(), &[Event]),
        ("version", new.version.is_some(), &[Child]),
        ("on_close", new.on_close.is_some(), &[Child]),
        ("to", new.to.is_some(), &[Send]),
    ];
    match options.iter().find(|(_, is_given, kinds)| *is_given && !kinds.contains(&kind)) {
        None => Ok(()),
        Some((name, _, _)) => Err(bad_step(format!("{at}.step.{name}"), format!("a {} has no '{name}'", kind.as_str()))),
    }
}

fn close_policy(at: &str, word: &str) -> Result<ClosePolicy, ApiError> {
    let policies = [ClosePolicy::Cancel, ClosePolicy::Terminate, ClosePolicy::Abandon];
    let known = policies.map(policy_word);
    policies.into_iter().find(|policy| policy_word(*policy) == word).ok_or_else(|| {
        bad_step(format!("{at}.step.on_close"), format!("'on_close' is {}, not '{}'", known.join(", "), word.escape_default()))
    })
}

const fn policy_word(policy: ClosePolicy) -> &'static str {
    match policy {
        ClosePolicy::Cancel => "cancel",
        ClosePolicy::Terminate => "terminate",
        ClosePolicy::Abandon => "abandon",
    }
}

/// An error as it stands in a journal.
pub(super) fn error(body: RunErrorBody) -> Result<Error, ApiError> {
    let RunErrorBody { code, message, details } = body;
    let (bytes, limit) = (message.len() + details.as_ref().map_or(0, |details| details.get().len()), PAYLOAD_BYTES_MAX as u64);
    if bytes as u64 > limit {
        let said = format!("an error has {bytes} bytes: at most {limit} are kept");
        return Err(payload_too_large("error", said, bytes as u64, limit));
    }
    Ok(Error { code: code.unwrap_or_else(|| "handler_error".to_owned()), message, details })
}
