//! Old pollers behind a dead holder of ours, whose counter they keep alive themselves.

use std::time::{Duration, Instant};

use crate::old_workflow::{Inputs, counter};
use crate::rig::{Rig, granted, lease_ms, pause, want};

const LEASE: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "how long old pollers wait is a matter of the real clock")]
async fn old_pollers_get_in_two_seconds_after_the_lease_of_a_dead_holder_at_the_latest() {
    let rig = Rig::start();
    let old = rig.old_workflow().await;
    // Whatever is left of ours looks after what the dead have left.
    let _alive = rig.towpath().await;
    let dead = rig.store().await;
    let began = Instant::now();
    granted(&dead, lease_ms(6_000, want("s", "dead"))).await;
    drop(dead);
    let failed = old.acquire(&Inputs::new("s", "poller")).await;
    assert!(failed.is_err(), "it is held");
    assert!(old.left_ms(&counter("s")).await > 80_000_000, "the poller itself has prolonged it to a day");
    while old.attempt(&Inputs::new("s", "poller")).await != 1 {
        assert!(began.elapsed() < LEASE + Duration::from_secs(2), "old pollers are stuck");
        pause(Duration::from_millis(50)).await;
    }
    assert!(began.elapsed() >= LEASE, "and nobody gets in before");
}
