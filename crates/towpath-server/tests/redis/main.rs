//! The real binary on a real Redis, in all the trouble that a Redis, a network and a kill -9 can make.
//!
//! Each test also looks whether the fault it is about really happened; a run without it proves nothing and says so.

#![expect(clippy::unwrap_used, reason = "a test whose ground is missing fails, and says where")]

mod backlog;
#[path = "../cli/crash/batches/mod.rs"]
mod batch_histories;
mod batches;
mod batches_away;
#[path = "../cli/crash/caller.rs"]
mod caller;
#[path = "../cli/crash/careless.rs"]
mod careless;
mod crowd;
mod drainers;
mod durability;
mod failover;
mod full;
mod in_trouble;
mod killed;
mod legacy_params;
mod paced;
mod paused;
mod pull_worker;
mod recovery;
mod repeated;
mod rig;
mod scene;
mod sharing;
#[path = "../cli/support.rs"]
#[expect(dead_code, reason = "the tests of the command line use more of it")]
mod support;
mod worker_trouble;
