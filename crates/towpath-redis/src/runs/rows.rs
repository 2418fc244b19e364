//! Rows of a run to text and back. The only place that knows how each is written.

use std::collections::BTreeMap;

use bytes::Bytes;
use redis::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;
use towpath_core::names::Reference;
use towpath_core::payload::Payload;
use towpath_core::run::{Child, Entry, EntryKind, Fact, FactKind, Post, Run, RunId, RunTimer, Standing, StepId, TERMINATED_AFTER};
use towpath_core::store::{FACTS_BYTES_MAX, FACTS_MAX, JournalEntry, StoreError, end_without_code};
use towpath_core::time::Timestamp;

use crate::value;

/// Why a deadline ends a run.
const DEADLINE: &str = "its deadline has passed";

pub(super) fn corrupt(what: &str, cause: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("{what} of a run cannot be read: {cause}"))
}

pub(super) fn read_json<T: DeserializeOwned>(what: &str, text: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(text).map_err(|cause| corrupt(what, cause))
}

pub(super) fn write_json<T: Serialize>(value: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|cause| StoreError::Corrupt(format!("a row of a run cannot be written: {cause}")))
}

/// What a run's hash holds.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) version: String,
    pub(super) run: Run,
    /// When the latest entry of its journal was written.
    pub(super) journal_at: Timestamp,
    pub(super) reference: Option<Reference>,
    pub(super) input_hash: String,
}

impl Loaded {
    /// Reads version, header, instant of the latest entry, reference and input hash. `None`: there is no such run.
    pub(super) fn read(parts: &[Value]) -> Result<Option<Self>, StoreError> {
        let [version, header, journal_at, reference, input_hash] = parts else { return Err(corrupt("the hash", "fields are missing")) };
        let Some(header) = value::bytes(header) else { return Ok(None) };
        let reference = value::text(reference).map(|text| Reference::new(text).map_err(|cause| corrupt("the reference", cause)));
        Ok(Some(Self {
            version: value::text(version).unwrap_or_default().to_owned(),
            run: read_json("the header", header)?,
            journal_at: Timestamp::from_millis(value::number(journal_at).unwrap_or_default()),
            reference: reference.transpose()?,
            input_hash: value::text(input_hash).unwrap_or_default().to_owned(),
        }))
    }
}

/// `instant kind step body`, with `-` for no step.
pub(super) fn write_entry(entry: &Entry, at: Timestamp) -> Vec<u8> {
    let step = entry.step.as_ref().map_or("-", StepId::as_str);
    let mut text = format!("{} {} {step} ", at.as_millis(), entry.kind.as_str()).into_bytes();
    text.extend_from_slice(entry.body.as_str().as_bytes());
    text
}

pub(super) fn read_entry(number: u64, text: &[u8]) -> Result<JournalEntry, StoreError> {
    let odd = || corrupt("an entry", "it has another shape");
    let text = std::str::from_utf8(text).map_err(|cause| corrupt("an entry", cause))?;
    let mut words = text.splitn(4, ' ');
    let mut word = || words.next().ok_or_else(odd);
    let at = word()?.parse().map(Timestamp::from_millis).map_err(|_| odd())?;
    let kind = EntryKind::parse(word()?).ok_or_else(odd)?;
    let step = match word()? {
        "-" => None,
        step => Some(StepId::parse(step).map_err(|cause| corrupt("an entry", cause))?),
    };
    Ok(JournalEntry { number, at, entry: Entry { kind, step, body: Payload::from_json(word()?.to_owned()) } })
}

/// Entries whose bodies have at most `bytes_max` bytes, and at least one if there is one.
pub(super) fn page_of_entries(from: u64, texts: &[Value], bytes_max: usize) -> Result<Vec<JournalEntry>, StoreError> {
    let (mut page, mut left) = (Vec::new(), bytes_max);
    for (number, text) in (from..).zip(texts) {
        let entry = read_entry(number, value::bytes(text).unwrap_or_default())?;
        let length = entry.entry.body.len();
        if !page.is_empty() && length > left {
            break;
        }
        left = left.saturating_sub(length.max(1));
        page.push(entry);
        if left == 0 {
            break;
        }
    }
    Ok(page)
}

/// `number instant letter body`: the letter is `e` for an event, `c` for a cancellation, `s` for what belongs to a step.
pub(super) fn write_fact(number: u64, kind: &FactKind, at: Timestamp) -> Result<Vec<u8>, StoreError> {
    let letter = match kind {
        FactKind::Event { .. } => 'e',
        FactKind::Cancel { .. } => 'c',
        FactKind::TimerDue(_) | FactKind::ChildClosed { .. } => 's',
    };
    let mut text = format!("{number} {} {letter} ", at.as_millis()).into_bytes();
    text.extend(write_json(kind)?);
    Ok(text)
}

fn read_fact(text: &[u8]) -> Result<Fact, StoreError> {
    let odd = || corrupt("a fact", "it has another shape");
    let text = std::str::from_utf8(text).map_err(|cause| corrupt("a fact", cause))?;
    let mut words = text.splitn(4, ' ');
    let mut word = || words.next().ok_or_else(odd);
    let number = word()?.parse().map_err(|_| odd())?;
    let at = word()?.parse().map(Timestamp::from_millis).map_err(|_| odd())?;
    word()?;
    Ok(Fact { number, at, kind: read_json("a fact", word()?.as_bytes())? })
}

/// One page of facts, as all stores bound it.
pub(super) fn page_of_facts(texts: &[Value]) -> Result<Vec<Fact>, StoreError> {
    let (mut facts, mut left) = (Vec::new(), FACTS_BYTES_MAX);
    for text in texts.iter().take(FACTS_MAX) {
        if left == 0 {
            break;
        }
        let fact = read_fact(value::bytes(text).unwrap_or_default())?;
        left = left.saturating_sub(fact.kind.bytes());
        facts.push(fact);
    }
    Ok(facts)
}

/// What is known of an event: its number, and when it came.
pub(super) fn read_known(text: &str) -> Option<(u64, Timestamp)> {
    let (number, at) = text.split_once(' ')?;
    Some((number.parse().ok()?, Timestamp::from_millis(at.parse().ok()?)))
}

/// The children of a run, by their steps. The reply has steps and children in turns.
pub(super) fn read_children(fields: &[Value]) -> Result<Vec<Child>, StoreError> {
    let child = |pair: &[Value]| read_json("a child", value::bytes(&pair[1]).unwrap_or_default());
    let mut children: Vec<Child> = fields.chunks_exact(2).map(child).collect::<Result<_, _>>()?;
    children.sort_by(|one, other| one.step.cmp(&other.step));
    Ok(children)
}

/// `instant target body`.
pub(super) fn write_post(post: &Post, now: Timestamp) -> Result<Vec<u8>, StoreError> {
    let mut text = format!("{} {} ", now.as_millis(), post.to()).into_bytes();
    text.extend(write_json(post)?);
    Ok(text)
}

/// When it was written, and what it is.
pub(super) fn read_post(text: &[u8]) -> Result<(Timestamp, Post), StoreError> {
    let odd = || corrupt("a post", "it has another shape");
    let text = std::str::from_utf8(text).map_err(|cause| corrupt("a post", cause))?;
    let mut words = text.splitn(3, ' ');
    let mut word = || words.next().ok_or_else(odd);
    let at = word()?.parse().map(Timestamp::from_millis).map_err(|_| odd())?;
    word()?;
    Ok((at, read_json("a post", word()?.as_bytes())?))
}

/// The end of a reference whose run has closed: workflow, reference, and how long the reference is still kept, in ms.
pub(super) fn read_reference_end(text: &[u8]) -> Result<(String, String, i64), StoreError> {
    read_json("the end of a reference", text)
}

/// The timers of a run as its header has them: the line of each, and when it is due. Lines that are due together sort as they fire: what starts the
/// run, its steps, its deadline.
pub(super) fn timers(run: &Run) -> BTreeMap<String, Timestamp> {
    let mut timers = BTreeMap::new();
    if run.state.is_closed() {
        return timers;
    }
    let mut arm = |name: &str, at: Timestamp| timers.extend([(format!("{} {name}", run.run_id), at)]);
    match run.standing() {
        Standing::Start(at) => arm("0 start", at),
        Standing::BacksOff(at) => arm("0 back_off", at),
        _other => {}
    }
    run.wait.timers.iter().for_each(|(step, at)| arm(&format!("1 {step}"), *at));
    match run.deadline {
        Some(at) if run.cancel_requested => arm("2 after_deadline", at + TERMINATED_AFTER),
        Some(at) => arm("2 deadline", at),
        None => {}
    }
    timers
}

/// A timer's run, the timer, and the fact that it is for its run.
pub(super) fn read_timer(line: &str) -> Option<(RunId, RunTimer, Option<FactKind>)> {
    let (run_id, name) = line.split_once(' ')?;
    let (timer, fact) = match name {
        "0 start" => (RunTimer::Start, None),
        "0 back_off" => (RunTimer::BackOff, None),
        "2 deadline" => {
            let timer = RunTimer::Deadline { entry: end_without_code("cancelled", DEADLINE) };
            (timer, Some(FactKind::Cancel { reason: DEADLINE.into() }))
        }
        "2 after_deadline" => (RunTimer::AfterDeadline { entry: end_without_code("terminated", DEADLINE) }, None),
        step => {
            let step = StepId::parse(step.strip_prefix("1 ")?).ok()?;
            (RunTimer::Step(step.clone()), Some(FactKind::TimerDue(step)))
        }
    };
    Some((RunId::parse(run_id).ok()?, timer, fact))
}

/// A value that was published.
pub(super) fn payload(reply: Value) -> Payload {
    Payload::from_json(Bytes::from(value::into_bytes(reply).unwrap_or_default()))
}
