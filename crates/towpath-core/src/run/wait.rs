//! What a parked run waits for. The first match wakes it, once.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::identity::StepId;
use crate::names::EventName;
use crate::time::Timestamp;

/// The most that one run can wait for at once.
pub const WAIT_SET_MAX: usize = 20_000;

/// What a parked run waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitSet {
    /// Names of events.
    pub events: BTreeSet<EventName>,
    /// Steps whose timers are armed, and when they are due.
    pub timers: BTreeMap<StepId, Timestamp>,
    /// Groups of children, by the step that waits for them.
    pub groups: BTreeMap<StepId, Group>,
}

/// Children that a step waits for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// How many of them are open.
    pub open: u32,
    /// The first one that does not complete wakes the run, too.
    pub fail_fast: bool,
}

impl WaitSet {
    /// Counts a child of a group that has closed. Whether the run wakes.
    pub(super) fn child_closed(&mut self, group: &StepId, completed: bool) -> bool {
        let Some(group) = self.groups.get_mut(group) else { return false };
        group.open = group.open.saturating_sub(1);
        group.open == 0 || group.fail_fast && !completed
    }
}
