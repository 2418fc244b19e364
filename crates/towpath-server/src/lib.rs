//! The server as a library: what the `towpath` binary and the tests build on. The command line itself is the binary's.

pub mod http;
