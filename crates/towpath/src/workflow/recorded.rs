//! A journal as replay reads it: steps by id, and the entries that the code must see again, in order.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use towpath_core::payload::Payload;
use towpath_core::run::{EntryKind, StepId};
use towpath_core::store::JournalEntry;
use towpath_core::time::Timestamp;

use super::body::{Attempt, Begin, Done, Mark, Open, Start, read};
use super::execution::{Reveal, Sight};

/// A step that the journal has.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) open: Open,
    /// The number of its entry.
    pub(crate) number: u64,
    /// Attempts that have failed.
    pub(crate) attempts: u32,
    /// The latest attempt that was started at most once.
    pub(crate) started: u32,
    pub(crate) has_result: bool,
    /// The code has asked for it.
    pub(crate) is_bound: bool,
    /// Its result was revealed before the code asked for it.
    pub(crate) revealed: Option<Done>,
}

/// A journal.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) begin: Begin,
    pub(crate) steps: HashMap<StepId, Recorded>,
    pub(crate) marks: HashMap<Arc<str>, u32>,
    /// What the code must see, in order.
    pub(crate) reveals: Vec<Reveal>,
    /// Up to the first entry.
    pub(crate) first: Sight,
    /// Up to the last entry.
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) last_at: Timestamp,
}

impl Journal {
    /// Reads the entries of a generation. The error says which one makes no sense.
    pub(crate) fn read(entries: &[JournalEntry]) -> Result<Self, String> {
        let Some((first, rest)) = entries.split_first().filter(|(first, _)| first.entry.kind == EntryKind::Begin) else {
            return Err("the journal does not begin with its input".to_owned());
        };
        let sight = Sight { now: first.at, entries: 1, bytes: first.entry.body.len() as u64 };
        let mut journal = Self {
            begin: body(first)?,
            steps: HashMap::new(),
            marks: HashMap::new(),
            reveals: Vec::new(),
            first: sight,
            entries: 1,
            bytes: sight.bytes,
            last_at: first.at,
        };
        rest.iter().try_for_each(|entry| journal.add(entry))?;
        Ok(journal)
    }

    fn add(&mut self, entry: &JournalEntry) -> Result<(), String> {
        self.entries = entry.number + 1;
        self.bytes += entry.entry.body.len() as u64;
        self.last_at = entry.at;
        match entry.entry.kind {
            EntryKind::Open => {
                let step = entry.entry.step.clone().ok_or_else(|| nameless(entry))?;
                let (open, number) = (body(entry)?, entry.number);
                let recorded = Recorded { open, number, attempts: 0, started: 0, has_result: false, is_bound: false, revealed: None };
                self.steps.insert(step, recorded);
            }
            EntryKind::Start => self.step(entry)?.started = body::<Start>(entry)?.n,
            EntryKind::Attempt => self.step(entry)?.attempts = body::<Attempt>(entry)?.n,
            EntryKind::Mark => {
                let mark: Mark = body(entry)?;
                self.marks.insert(mark.name, mark.ver);
            }
            EntryKind::Done => {
                self.step(entry)?.has_result = true;
                self.hide(entry);
            }
            EntryKind::Cancel => self.hide(entry),
            EntryKind::Begin | EntryKind::Close => {}
        }
        Ok(())
    }

    fn step(&mut self, entry: &JournalEntry) -> Result<&mut Recorded, String> {
        let step = entry.entry.step.as_ref().and_then(|step| self.steps.get_mut(step));
        step.ok_or_else(|| nameless(entry))
    }

    fn hide(&mut self, entry: &JournalEntry) {
        let sight = Sight { now: entry.at, entries: self.entries, bytes: self.bytes };
        let JournalEntry { entry, .. } = entry;
        self.reveals.push(Reveal { kind: entry.kind, step: entry.step.clone(), body: entry.body.clone(), sight });
    }
}

fn nameless(entry: &JournalEntry) -> String {
    format!("entry {} ({}) names no step that was opened", entry.number, entry.entry.kind.as_str())
}

fn body<B: serde::de::DeserializeOwned>(entry: &JournalEntry) -> Result<B, String> {
    read(&entry.entry.body).map_err(|error| format!("entry {} ({}) cannot be read: {error}", entry.number, entry.entry.kind.as_str()))
}

/// Whether two inputs are equal but for members of objects that only one of them has.
pub(crate) fn differs_by_members_only(one: &Payload, other: &Payload) -> bool {
    match (serde_json::from_str::<Value>(one.as_str()), serde_json::from_str::<Value>(other.as_str())) {
        (Ok(one), Ok(other)) => is_like(&one, &other),
        _unreadable => false,
    }
}

fn is_like(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.iter().all(|(name, value)| other.get(name).is_none_or(|other| is_like(value, other)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_like(one, other))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_added_and_removed_members_make_two_inputs_alike() {
        let like = |one: &'static str, other: &'static str| differs_by_members_only(&Payload::from_json(one), &Payload::from_json(other));
        assert!(like(r#"{"a":1}"#, r#"{"a":1,"b":2}"#));
        assert!(like(r#"{"a":{"x":1,"y":2}}"#, r#"{"a":{"x":1}}"#));
        assert!(like(r#"[{"a":1}]"#, r#"[{"a":1,"b":2}]"#));
        assert!(!like(r#"{"a":1}"#, r#"{"a":2,"b":2}"#));
        assert!(!like("[1]", "[1,2]"));
        assert!(!like("1", "2"));
    }
}
