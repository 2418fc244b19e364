//! The library as its users see it, on the model and on the embedded store, by the virtual clock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batches;
mod calls;
mod faults;
mod handle;
mod limit_words;
mod limits;
mod lock_words;
mod locks;
mod nested;
mod rates;
mod run_timers;
mod support;
mod workers;
