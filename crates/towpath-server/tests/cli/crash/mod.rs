//! Real processes ended with kill -9, stopped with SIGSTOP, and a real disk filled up: nothing accepted is lost, everything ends once.
//!
//! Each test also looks whether the fault it is about really happened; a run without it proves nothing and says so.

mod batches;
mod batches_killed;
mod caller;
mod careless;
mod disk;
mod lock_crowd;
mod paused;
mod power_cut;
mod server_killed;
mod witness;
mod workers_killed;

pub(crate) use caller::Caller;
