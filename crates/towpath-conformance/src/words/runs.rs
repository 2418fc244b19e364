//! Words for runs of workflows.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::names::{BuildId, EventName, Reference};
use towpath_core::payload::Payload;
use towpath_core::run::{
    BlockCause, Child, ChildStart, ClosePolicy, Entry, EntryKind, Group, Parent, Post, RunEnd, RunId, RunPlace, StepId, Then, WaitSet,
};
use towpath_core::store::{NewEvent, OnConflict, Reuse, StartRun};

use super::{json, named, seconds};

/// How long a worker of the bench may be silent with a run.
pub const RUN_IDLE: Duration = seconds(15);
/// How long a closed run of the bench can be read.
pub const RUN_RETAIN: Duration = seconds(3_600);

/// A place: `order`, `order:2.0.0` for another version than `1.0.0`, or `order@us-east` for one of its shards.
pub fn run_place(text: &str) -> RunPlace {
    let (workflow, shard) = text.split_once('@').map_or((text, None), |(workflow, shard)| (workflow, Some(shard)));
    let (workflow, version) = workflow.split_once(':').unwrap_or((workflow, "1.0.0"));
    named(towpath_core::run::place(workflow, version, shard))
}

/// The id of a run of this number.
pub fn run_id(place: &str, number: u8) -> RunId {
    RunId::new(&run_place(place), u128::from(number))
}

/// The step of this number.
pub fn step(number: u8) -> StepId {
    StepId::parse(&format!("{number:032x}")).unwrap_or_else(|error| panic!("{error}"))
}

/// An event's name.
pub fn event_name(text: &str) -> EventName {
    named(EventName::new(text))
}

/// A reference.
pub fn reference(text: &str) -> Reference {
    named(Reference::new(text))
}

/// A build.
pub fn build(text: &str) -> BuildId {
    named(BuildId::new(text))
}

/// A run to start, without a reference.
pub fn start(place: &str, number: u8) -> StartRun {
    StartRun {
        run_id: run_id(place, number),
        place: run_place(place),
        begin: entry(EntryKind::Begin, r#"{"input":1}"#),
        input_hash: Arc::from("1"),
        reference: None,
        on_conflict: OnConflict::Refuse,
        reuse: Reuse::Never,
        delay: Duration::ZERO,
        timeout: None,
        retain: RUN_RETAIN,
        event: None,
    }
}

/// Adjectives of a start.
pub trait StartWords {
    /// Known by this name.
    fn known_as(self, text: &str) -> Self;
    /// With another input.
    fn with_input(self, text: &str) -> Self;
    /// With an event.
    fn with_event(self, event: NewEvent) -> Self;
}

impl StartWords for StartRun {
    fn known_as(mut self, text: &str) -> Self {
        self.reference = Some(reference(text));
        self
    }

    fn with_input(mut self, text: &str) -> Self {
        self.input_hash = Arc::from(text);
        self
    }

    fn with_event(mut self, event: NewEvent) -> Self {
        self.event = Some(event);
        self
    }
}

/// An event that says something.
pub fn event(name: &str, data: &str) -> NewEvent {
    NewEvent { name: event_name(name), data: json(data), reference: None }
}

/// An entry of a journal.
pub fn entry(kind: EntryKind, body: &str) -> Entry {
    Entry { kind, step: None, body: Payload::from_json(body.to_owned()) }
}

/// The result of a step.
pub fn done(number: u8, body: &str) -> Entry {
    Entry { step: Some(step(number)), ..entry(EntryKind::Done, body) }
}

/// The run ends with a result.
pub fn completes() -> Then {
    Then::Close(RunEnd::Completed)
}

/// The run waits for one of these events.
pub fn waits_for(events: &[&str]) -> Then {
    let events = events.iter().map(|name| event_name(name)).collect();
    Then::Park { wait: WaitSet { events, ..WaitSet::default() } }
}

/// The run waits for timers alone.
pub fn waits_for_timers() -> Then {
    Then::Park { wait: WaitSet::default() }
}

/// The run waits for `open` children of one step.
pub fn waits_for_children(group: u8, open: u32) -> Then {
    let groups = [(step(group), Group { open, fail_fast: false })].into();
    Then::Park { wait: WaitSet { groups, ..WaitSet::default() } }
}

/// The run does not fit this build.
pub fn does_not_fit(text: &str) -> Then {
    Then::Block { cause: BlockCause::Nondeterminism, build: Some(build(text)) }
}

/// A child of a step, and the post that creates it.
pub fn child(parent: &RunId, number: u8, group: u8, on_close: ClosePolicy) -> (Child, Post) {
    let place = run_place("shipping");
    let run_id = RunId::of_child(&place, parent, 0, &step(number));
    let start = ChildStart {
        run_id: run_id.clone(),
        place,
        begin: entry(EntryKind::Begin, r#"{"input":2}"#),
        retain: RUN_RETAIN,
        parent: Parent { run_id: parent.clone(), step: step(number) },
    };
    (Child { step: step(number), run_id, group: step(group), on_close }, Post::Create(Box::new(start)))
}
