//! The shapes on the wire: flat snake_case structs, read by the server and written by the command line, or the other way round.
//! Durations end in `_ms`; instants are milliseconds since the Unix epoch by the store's clock.

pub mod batches;
pub mod calls;
pub mod config;
pub mod count;
pub mod dead_letters;
pub mod decimal;
pub mod doctor;
pub mod error;
pub mod functions;
pub mod health;
pub(crate) mod lenient;
pub mod limits;
pub mod locks;
pub(crate) mod object;
pub mod run_workers;
pub mod runs;
pub mod workers;

use serde_json::value::RawValue;

/// Any JSON value, carried byte for byte.
pub type Json = Box<RawValue>;
