//! The API over real sockets: every route, every kind of bad input, keys, hosts, push, drain.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod bad_input;
mod bad_limits;
mod bad_locks;
mod batches;
mod calls;
mod config;
mod dead_letters;
mod demo;
mod drain;
mod forgetting;
mod functions;
mod generated;
mod health;
mod keys;
mod limits;
mod locks;
mod nested;
mod pages;
mod push;
mod rate_limits;
mod rates;
mod runs;
mod security;
mod support;
mod unreachable_limits;
mod workers;
