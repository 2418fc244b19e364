//! Notices that the machine's clock was set while this process runs, and says so once for each time.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::clock::{Clock, Jumps};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(2);
/// The distance to a clock that was set back changes by moments, which is not worth a word.
const THE_SAME: Duration = Duration::from_secs(2);

pub(crate) async fn run(clock: Arc<dyn Clock>) {
    let mut known = clock.jumps().unwrap_or_default();
    loop {
        clock.sleep_until(clock.now() + EVERY).await;
        let Some(found) = clock.jumps() else { return };
        tell(known, found);
        known = found;
    }
}

fn tell(known: Jumps, found: Jumps) {
    if found.ahead > known.ahead {
        let ahead = found.ahead - known.ahead;
        tracing::warn!(
            ?ahead,
            "the machine's clock was set ahead, or the machine was suspended: leases count from now on, and deadlines have come as much nearer"
        );
    }
    if found.behind.abs_diff(known.behind) <= THE_SAME {
        return;
    }
    if found.behind > known.behind {
        tracing::warn!(
            behind = ?found.behind,
            "the machine's clock was set back: this process goes on by its own, so that nothing is held longer than its length; \
             times that it tells are ahead by this much until it is started again"
        );
    } else if found.behind.is_zero() {
        tracing::info!("the machine's clock has caught up with that of this process");
    }
}
