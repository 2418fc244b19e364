//! How soon a store looks for what goes wrong without a notification.

use std::time::Duration;

/// How often a store looks after its data and after legacy peers. The defaults suit everyone; tests shorten them, all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A call that a legacy worker has read and not answered is given to others when the worker was not heard of for this long.
    pub abandoned_after: Duration,
    /// How often the streams of functions with legacy peers are looked after.
    pub legacy_tick: Duration,
    /// How often the store looks for legacy workers.
    pub look_for_legacy_every: Duration,
    /// How often a part of the data is checked, and repaired where it is wrong.
    pub repair_every: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            // As the seeds have it.
            abandoned_after: Duration::from_secs(30),
            legacy_tick: Duration::from_millis(250),
            look_for_legacy_every: Duration::from_secs(5),
            repair_every: Duration::from_secs(15),
        }
    }
}
