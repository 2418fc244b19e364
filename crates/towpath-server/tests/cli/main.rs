//! The real binary, as people and scripts meet it: a real server on a free port, a data folder of its own for each test.

#![expect(clippy::unwrap_used, reason = "a test whose ground is missing fails, and says where")]

mod batch;
mod bench;
mod call;
mod clock;
mod config;
mod crash;
mod doctor;
mod limit;
mod listing;
mod lock;
mod many_keys;
mod moving;
mod offline;
mod output;
mod redis;
mod run;
mod run_worker;
mod serving;
mod store;
mod support;
mod worker;
mod worker_end;
mod worker_exit;
mod worker_server;
