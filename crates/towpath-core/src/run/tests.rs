//! What holds for every history of commands, and the moves that matter one by one.

mod histories;
mod moves;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::names::EventName;
use crate::payload::Payload;

const IDLE: Duration = Duration::from_secs(15);
const RETAIN: Duration = Duration::from_secs(3_600);
const MAX_DELIVERIES: u32 = 3;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + seconds * 1_000)
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn event(name: &str) -> EventName {
    EventName::new(name).unwrap()
}

fn build(name: &str) -> BuildId {
    BuildId::new(name).unwrap()
}

fn step_id(number: u8) -> StepId {
    StepId::parse(&format!("{number:032x}")).unwrap()
}

fn entry(kind: EntryKind) -> Entry {
    Entry { kind, step: None, body: Payload::null() }
}

fn new_run() -> Run {
    let place = place("order", "1", None).unwrap();
    let run_id = RunId::new(&place, 1);
    let new = NewRun { run_id, place, start_at: None, deadline: None, retain: RETAIN, parent: None, begin_bytes: 4 };
    Run::created(new, at(0))
}

fn child(number: u8, group: u8) -> Child {
    let place = place("shipping", "1", None).unwrap();
    let run_id = RunId::new(&place, u128::from(number));
    Child { step: step_id(number), run_id, group: step_id(group), on_close: ClosePolicy::Cancel }
}

/// What a fact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Event,
    Cancel,
    OfStep,
}

/// A store of one run: the header, and the rows beside it.
struct Kept {
    run: Run,
    journal: Vec<EntryKind>,
    inbox: BTreeMap<u64, Kind>,
    timers: BTreeSet<StepId>,
    children: BTreeMap<StepId, Child>,
    posts: usize,
    parent_told: usize,
}

impl Kept {
    fn new(run: Run) -> Self {
        Self {
            run,
            journal: vec![EntryKind::Begin],
            inbox: BTreeMap::new(),
            timers: BTreeSet::new(),
            children: BTreeMap::new(),
            posts: 0,
            parent_told: 0,
        }
    }

    /// Puts a command to the run and writes what it decides.
    fn put(&mut self, command: RunCommand, now: Timestamp) -> RunReply {
        let kind = match &command {
            RunCommand::Send { .. } => Kind::Event,
            RunCommand::Cancel { .. } | RunCommand::TimerDue(RunTimer::Deadline { .. }) => Kind::Cancel,
            _other => Kind::OfStep,
        };
        let (run, effects, reply) = step(self.run.clone(), command, now);
        self.run = run;
        self.write(effects, kind);
        reply
    }

    fn write(&mut self, effects: Effects, kind: Kind) {
        self.journal.extend(effects.entries.iter().map(|entry| entry.kind));
        if let Some(begin) = effects.begins {
            self.journal = vec![begin.kind];
        }
        self.inbox.retain(|number, _| !effects.consumed.contains(number));
        self.inbox.extend(effects.fact.map(|number| (number, kind)));
        self.inbox.extend(effects.cancels_again.map(|number| (number, Kind::Cancel)));
        match effects.forgotten {
            ForgottenFacts::None => {}
            ForgottenFacts::OfSteps => self.inbox.retain(|_, kind| *kind != Kind::OfStep),
            ForgottenFacts::All => self.inbox.clear(),
        }
        if effects.disarms_all {
            self.timers.clear();
        }
        self.timers.retain(|step| !effects.disarmed.contains(step));
        if !effects.disarms_all {
            self.timers.extend(effects.armed.into_iter().map(|(step, _)| step));
        }
        self.children.extend(effects.children.into_iter().map(|child| (child.step.clone(), child)));
        self.children.retain(|step, _| effects.closed_child.as_ref() != Some(step));
        if effects.children_follow {
            self.posts += self.children.len();
            self.children.clear();
        }
        self.posts += effects.posts.len();
        self.parent_told += usize::from(effects.tells_parent);
    }

    fn claim(&mut self, name: &str, now: Timestamp) -> RunReply {
        self.put(RunCommand::Claim { worker: worker(name), idle: IDLE }, now)
    }

    fn take_over(&mut self, name: &str, now: Timestamp) -> RunReply {
        self.put(RunCommand::TakeOver { worker: worker(name), idle: IDLE, max_deliveries: MAX_DELIVERIES }, now)
    }

    fn send(&mut self, name: &str, now: Timestamp) -> RunReply {
        self.put(RunCommand::Send { name: event(name), known_as: None }, now)
    }

    /// A commit of the present owner, who has read all facts.
    fn commit(&self, then: Then) -> Commit {
        Commit {
            owner: self.run.owner.clone().unwrap_or_else(|| worker("nobody")),
            epoch: self.run.epoch,
            revision: self.run.revision,
            digest: Arc::from(format!("{:?}{}", then, self.run.revision)),
            entries: Vec::new(),
            consumed: Vec::new(),
            seen: self.run.facts,
            armed: Vec::new(),
            disarmed: Vec::new(),
            children: Vec::new(),
            posts: Vec::new(),
            published: Vec::new(),
            then,
        }
    }

    fn put_commit(&mut self, commit: Commit, now: Timestamp) -> RunReply {
        let is_event = |number: &&u64| self.inbox.get(*number) == Some(&Kind::Event);
        let events_consumed = u32::try_from(commit.consumed.iter().filter(is_event).count()).unwrap();
        self.put(RunCommand::Commit { commit: Box::new(commit), events_consumed }, now)
    }

    fn commit_now(&mut self, then: Then, now: Timestamp) -> RunReply {
        let commit = self.commit(then);
        self.put_commit(commit, now)
    }
}

fn wait_for(events: &[&str]) -> Then {
    let events = events.iter().map(|name| event(name)).collect();
    Then::Park { wait: WaitSet { events, ..WaitSet::default() } }
}
