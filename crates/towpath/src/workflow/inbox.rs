//! The facts of a run that its owner has read and not used yet.

use std::collections::BTreeMap;

use towpath_core::run::{Fact, FactKind, Run};
use towpath_core::store::{FACTS_BYTES_MAX, FACTS_MAX};

/// What came from outside, by number.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    facts: BTreeMap<u64, FactKind>,
    /// The number of the latest fact that was read.
    seen: u64,
    /// Numbers of facts that no step needs. They leave the store with the next commit.
    unneeded: Vec<u64>,
}

impl Inbox {
    /// The inbox of a run as it was claimed. The page of facts may be the first of several.
    pub(crate) fn of(run: &Run, facts: Vec<Fact>) -> Self {
        let mut inbox = Self::default();
        let is_last_page = is_last_page(&facts);
        inbox.add(facts);
        if is_last_page {
            inbox.seen = inbox.seen.max(run.facts);
        }
        inbox
    }

    /// Takes in a page. Whether the store may have more.
    pub(crate) fn add(&mut self, facts: Vec<Fact>) -> bool {
        let may_have_more = !is_last_page(&facts);
        for fact in facts {
            self.seen = self.seen.max(fact.number);
            self.facts.insert(fact.number, fact.kind);
        }
        may_have_more
    }

    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// All facts up to this number were read.
    pub(crate) fn note_seen(&mut self, number: u64) {
        self.seen = self.seen.max(number);
    }

    pub(crate) fn facts(&self) -> impl Iterator<Item = (u64, &FactKind)> {
        self.facts.iter().map(|(number, kind)| (*number, kind))
    }

    pub(crate) fn get(&self, number: u64) -> Option<&FactKind> {
        self.facts.get(&number)
    }

    pub(crate) fn has_cancel(&self) -> bool {
        self.facts.values().any(|kind| matches!(kind, FactKind::Cancel { .. }))
    }

    pub(crate) fn take(&mut self, number: u64) -> Option<FactKind> {
        self.facts.remove(&number)
    }

    /// No step needs this fact.
    pub(crate) fn discard(&mut self, number: u64) {
        self.facts.remove(&number);
        self.unneeded.push(number);
    }

    pub(crate) fn take_unneeded(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unneeded)
    }
}

fn is_last_page(facts: &[Fact]) -> bool {
    facts.len() < FACTS_MAX && facts.iter().map(|fact| fact.kind.bytes()).sum::<usize>() < FACTS_BYTES_MAX
}
