//! What one commit of a run holds: entries in the order of decision 051, and what follows from them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use towpath_core::names::Reference;
use towpath_core::payload::Payload;
use towpath_core::run::{Child, ChildStart, Entry, EntryKind, FactKind, Parent, Post, Run, StepId, StepKind, TimerAt};
use towpath_core::time::Timestamp;

use super::body::{Begin, Cancel, Done, Out, Start, entry};
use super::draw;
use super::execution::{Command, Execution, Standing, State, Step};
use super::inbox::Inbox;
use super::start::RETAIN_DEFAULT;

/// One commit has at most this many steps and marks.
const COMMANDS_MAX: usize = 400;
/// One commit has at most this many results.
const RESULTS_MAX: usize = 400;

/// What one commit holds.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) entries: Vec<Entry>,
    pub(crate) consumed: Vec<u64>,
    pub(crate) armed: Vec<(StepId, TimerAt)>,
    pub(crate) disarmed: Vec<StepId>,
    pub(crate) children: Vec<Child>,
    pub(crate) posts: Vec<Post>,
    pub(crate) published: Vec<(Arc<str>, Payload)>,
    /// Steps that the journal has with this commit.
    pub(crate) opened: Vec<StepId>,
    /// Attempts that may begin with this commit.
    pub(crate) started: Vec<StepId>,
    /// Steps that have their result with this commit.
    given: HashSet<StepId>,
    results: usize,
}

impl Batch {
    /// Whether it has a result for the code, or of an attempt.
    pub(crate) fn has_results(&self) -> bool {
        self.results > 0
    }

    /// Takes what the code has issued, as much as fits.
    pub(crate) fn take_commands(&mut self, execution: &Execution, state: &mut State) {
        let count = state.fresh.len().min(COMMANDS_MAX);
        let commands: Vec<Command> = state.fresh.drain(..count).collect();
        for command in commands {
            match command {
                Command::Mark(step, mark) => self.entries.push(entry(EntryKind::Mark, Some(step), &mark)),
                Command::Step(id) => {
                    if let Some(step) = state.steps.get(&id) {
                        self.open(execution, &id, step);
                    }
                }
            }
        }
    }

    /// Takes what the code has issued if that does not fit into one commit. Their results come with a later one.
    pub(crate) fn take_many_commands(&mut self, execution: &Execution, state: &mut State) -> bool {
        let are_many = state.fresh.len() > COMMANDS_MAX;
        if are_many {
            self.take_commands(execution, state);
        }
        are_many
    }

    /// Appends results to what the code has issued.
    pub(crate) fn append(&mut self, results: Self) {
        self.entries.extend(results.entries);
        self.consumed.extend(results.consumed);
        self.armed.extend(results.armed);
        self.given.extend(results.given);
        self.results += results.results;
    }

    fn open(&mut self, execution: &Execution, id: &StepId, step: &Step) {
        let open = &step.open;
        self.entries.push(entry(EntryKind::Open, Some(id.clone()), open));
        self.opened.push(id.clone());
        match open.k {
            StepKind::Sleep | StepKind::Event => {
                let at = open.until.map(|until| TimerAt::At(Timestamp::from_millis(until)));
                let at = at.or(open.ms.map(|ms| TimerAt::After(Duration::from_millis(ms))));
                self.armed.extend(at.map(|at| (id.clone(), at)));
            }
            StepKind::Child => self.start_child(execution, id, step),
            StepKind::Send => self.send(execution, id, step),
            StepKind::Task | StepKind::Call | StepKind::Token | StepKind::Mark => {}
        }
    }

    fn start_child(&mut self, execution: &Execution, id: &StepId, step: &Step) {
        let (Some(place), Some(run_id)) = (step.child.clone(), step.open.run.clone()) else { return };
        let identity = &execution.identity;
        let begin = Begin { seed: draw::child_seed(&identity.seed, id), v: step.input.clone(), trace: None };
        let begin = entry(EntryKind::Begin, None, &begin);
        let on_close = step.open.close.unwrap_or_default();
        self.children.push(Child { step: id.clone(), run_id: run_id.clone(), group: id.clone(), on_close });
        let parent = Parent { run_id: identity.run_id.clone(), step: id.clone() };
        self.posts.push(Post::Create(Box::new(ChildStart { run_id, place, begin, retain: RETAIN_DEFAULT, parent })));
    }

    /// An event to another run is done when it is stored: the store sends it.
    fn send(&mut self, execution: &Execution, id: &StepId, step: &Step) {
        let identity = &execution.identity;
        let reference = Reference::new(format!("{} {} {id}", identity.run_id, identity.generation));
        let name = towpath_core::names::EventName::new(&step.open.name);
        if let (Some(to), Ok(name), Ok(reference)) = (step.open.to.clone(), name, reference) {
            let data = step.input.clone().unwrap_or_else(Payload::null);
            self.posts.push(Post::Send { to, name, data, reference });
        }
    }

    /// Writes that these steps begin an attempt that runs at most once.
    pub(crate) fn start(&mut self, id: StepId, attempt: u32) {
        self.entries.push(entry(EntryKind::Start, Some(id.clone()), &Start { n: attempt }));
        self.started.push(id);
    }

    /// Results of events that are sent: they follow all `open`s of the commit.
    pub(crate) fn finish_sends(&mut self, state: &State) {
        let is_send = |id: &&StepId| state.steps.get(*id).is_some_and(|step| step.open.k == StepKind::Send);
        let sent: Vec<StepId> = self.opened.iter().filter(is_send).cloned().collect();
        for id in sent {
            self.done(id, &Done::bare(Out::Ok));
        }
    }

    /// Uses facts in the order of their numbers. An event is only used as the first result of a commit.
    pub(crate) fn use_facts(&mut self, state: &State, inbox: &mut Inbox) -> Vec<(StepId, u64)> {
        let mut ends_of_back_off = Vec::new();
        let numbers: Vec<u64> = inbox.facts().map(|(number, _)| number).collect();
        for number in numbers {
            if self.results >= RESULTS_MAX {
                break;
            }
            match self.use_fact(state, inbox, number) {
                Used::No => {}
                Used::Yes => self.consumed.extend(inbox.take(number).map(|_| number)),
                Used::Unneeded => inbox.discard(number),
                Used::EndsBackOff(step) => {
                    inbox.take(number);
                    ends_of_back_off.push((step, number));
                }
                Used::NotYet => break,
            }
        }
        ends_of_back_off
    }

    fn use_fact(&mut self, state: &State, inbox: &Inbox, number: u64) -> Used {
        let Some(kind) = inbox.get(number) else { return Used::No };
        match kind {
            FactKind::Event { name, data } => {
                let waits = |step: &Step| step.open.k == StepKind::Event && *step.open.name == *name.as_str();
                let mut pending = state.pending.values().filter(|id| !self.given.contains(*id));
                let Some(id) = pending.find(|id| state.steps.get(*id).is_some_and(waits)).cloned() else { return Used::No };
                if self.results > 0 {
                    return Used::NotYet;
                }
                self.done(id, &Done { n: Some(number), ..Done::ok(data.clone()) });
                Used::Yes
            }
            FactKind::TimerDue(id) => self.use_timer(state, id),
            FactKind::ChildClosed { step: id, outcome, .. } => match self.pending_step(state, id) {
                Pending::Yes(_) => {
                    self.results += 1;
                    self.given.insert(id.clone());
                    self.entries.push(Entry { kind: EntryKind::Done, step: Some(id.clone()), body: outcome.clone() });
                    Used::Yes
                }
                Pending::No => Used::Unneeded,
                Pending::Unknown => Used::No,
            },
            FactKind::Cancel { reason } => {
                if state.cancelled.is_some() {
                    return Used::Unneeded;
                }
                self.results += 1;
                self.entries.push(entry(EntryKind::Cancel, None, &Cancel { reason: Arc::clone(reason) }));
                Used::Yes
            }
        }
    }

    fn use_timer(&mut self, state: &State, id: &StepId) -> Used {
        let kind = match self.pending_step(state, id) {
            Pending::Yes(kind) => kind,
            Pending::No => return Used::Unneeded,
            Pending::Unknown => return Used::No,
        };
        match kind {
            StepKind::Sleep => self.done(id.clone(), &Done::bare(Out::Ok)),
            StepKind::Task | StepKind::Call => return Used::EndsBackOff(id.clone()),
            _event => self.done(id.clone(), &Done::bare(Out::Timeout)),
        }
        Used::Yes
    }

    fn pending_step(&self, state: &State, id: &StepId) -> Pending {
        match state.steps.get(id) {
            Some(step) if step.is_pending() && !self.given.contains(id) => Pending::Yes(step.open.k),
            Some(_) => Pending::No,
            None => Pending::Unknown,
        }
    }

    /// Whether the step still wants a result.
    pub(crate) fn wants(&self, state: &State, id: &StepId) -> bool {
        matches!(self.pending_step(state, id), Pending::Yes(_))
    }

    pub(crate) fn has_room(&self) -> bool {
        self.results < RESULTS_MAX
    }

    pub(crate) fn done(&mut self, id: StepId, done: &Done) {
        self.result(EntryKind::Done, id, done);
    }

    /// A result that the journal keeps: of an attempt, or of a step.
    pub(crate) fn result<B: serde::Serialize>(&mut self, kind: EntryKind, id: StepId, body: &B) {
        self.results += 1;
        self.entries.push(entry(kind, Some(id.clone()), body));
        if kind == EntryKind::Done {
            self.given.insert(id);
        }
    }

    /// Disarms timers of steps that have their result by something else, and arms none for them.
    pub(crate) fn disarm_given(&mut self, armed: &HashSet<StepId>) {
        self.armed.retain(|(id, _)| !self.given.contains(id));
        let given = self.given.iter().filter(|id| armed.contains(*id));
        self.disarmed.extend(given.cloned());
    }

    /// The commit counts: the journal has its steps.
    pub(crate) fn note_committed(&self, state: &mut State) {
        for id in &self.opened {
            if let Some(step) = state.steps.get_mut(id).filter(|step| matches!(step.standing, Standing::Fresh)) {
                step.standing = Standing::Open;
                step.input = None;
            }
        }
        for id in &self.started {
            if let Some(step) = state.steps.get_mut(id) {
                step.started = step.attempts + 1;
            }
        }
    }
}

enum Used {
    Yes,
    /// No step waits for it now.
    No,
    /// No step will ever wait for it.
    Unneeded,
    /// The next attempt of this step may begin.
    EndsBackOff(StepId),
    /// After what precedes it was revealed.
    NotYet,
}

enum Pending {
    Yes(StepKind),
    No,
    /// The code has not asked for it.
    Unknown,
}

/// The timers of a run's steps that are armed in the store, as it was claimed.
pub(crate) fn armed(run: &Run) -> HashSet<StepId> {
    run.wait.timers.keys().cloned().collect()
}
