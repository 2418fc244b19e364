//! Workflows as their users write them, on the embedded store in memory and in a file, by the virtual clock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod basics;
mod busy;
mod crashes;
mod edges;
mod families;
mod needs;
mod on_redis;
mod replays;
mod support;
mod trial;
