//! The server as a library: what the `towpath` binary and the tests build on. The command line itself is the binary's.

pub mod batches;
pub mod demo;
pub mod doctor;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod push;
pub mod serve;
pub mod settings;
