//! How soon it is looked for what goes wrong without anybody being told.

use std::time::Duration;

/// How often a store looks after what old peers do to its streams. The defaults suit everybody; tests shorten them, all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// What an old worker has read and not answered is given to others when it was not heard of for so long.
    pub abandoned_after: Duration,
    /// How often streams are searched for what fell out of them.
    pub sweep_every: Duration,
    /// How often it is looked whether there are old workers.
    pub look_for_old_every: Duration,
    /// Every worker is taken for one of this process, so that its deliveries need not be written down at once. For tests of just that.
    pub all_workers_in_process: bool,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            // As the seeds have it.
            abandoned_after: Duration::from_secs(30),
            sweep_every: Duration::from_secs(15),
            look_for_old_every: Duration::from_secs(10),
            all_workers_in_process: false,
        }
    }
}
