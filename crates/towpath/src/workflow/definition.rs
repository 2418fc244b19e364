//! What a workflow and an event are called, and which types belong to them.

use std::marker::PhantomData;

use towpath_core::names::{EventName, InvalidName};
use towpath_core::run::{RunPlace, place};

/// A workflow: its name, its version, the type of its input and of its result.
///
/// ```
/// use towpath::workflow::Workflow;
///
/// static ORDER: Workflow<u64, String> = Workflow::new("order-processing", "1.0.0");
/// assert_eq!(ORDER.name(), "order-processing");
/// ```
pub struct Workflow<I, O> {
    name: &'static str,
    version: &'static str,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Workflow<I, O> {
    /// A workflow of this name and version. [`WorkerBuilder::start`](crate::WorkerBuilder::start) and [`Towpath::start`](crate::Towpath::start)
    /// check both.
    pub const fn new(name: &'static str, version: &'static str) -> Self {
        Self { name, version, types: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its version. A run keeps the version that it was started with.
    pub const fn version(&self) -> &'static str {
        self.version
    }

    pub(crate) fn place(&self) -> Result<RunPlace, InvalidName> {
        place(self.name, self.version, None)
    }
}

impl<I, O> std::fmt::Debug for Workflow<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workflow({} {})", self.name, self.version)
    }
}

/// An event that a run can wait for: its name, and the type of its data.
///
/// ```
/// use towpath::workflow::Event;
///
/// static APPROVED: Event<bool> = Event::new("approved");
/// assert_eq!(APPROVED.name(), "approved");
/// ```
pub struct Event<T> {
    name: &'static str,
    data: PhantomData<fn(T) -> T>,
}

impl<T> Event<T> {
    /// An event of this name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, data: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn checked_name(&self) -> Result<EventName, InvalidName> {
        EventName::new(self.name)
    }
}

impl<T> std::fmt::Debug for Event<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({})", self.name)
    }
}
