//! Everything on the server is gone: fences go on rising all the same.

use std::time::Duration;

use crate::rig::{Rig, granted, pause, want};

#[tokio::test]
async fn a_fence_after_everything_was_flushed_is_larger_than_all_before() {
    let rig = Rig::start();
    let store = rig.store().await;
    for round in 0..10 {
        let mut before = Vec::new();
        for number in 0..10 {
            before.push(granted(&store, want(&format!("s{number}"), &format!("a{round}"))).await.fence);
        }
        rig.cli(&["FLUSHALL"]);
        // Fences rise ten times a second by themselves.
        pause(Duration::from_millis(110)).await;
        for (number, before) in before.into_iter().enumerate() {
            let after = granted(&store, want(&format!("s{number}"), &format!("b{round}"))).await.fence;
            assert!(after > before, "round {round}: {after} after {before}");
        }
        rig.cli(&["FLUSHALL"]);
    }
}
