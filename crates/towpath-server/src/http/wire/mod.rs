//! The shapes on the wire: flat snake_case structs, read by the server and written by the command line, or the other way round.
//! Durations end in `_ms`; instants are milliseconds since the Unix epoch by the store's clock.

pub(crate) mod calls;
pub(crate) mod config;
pub(crate) mod dead_letters;
pub(crate) mod error;
pub(crate) mod functions;
pub(crate) mod health;
pub(crate) mod workers;

use serde_json::value::RawValue;

/// Any JSON value, carried byte for byte.
pub(crate) type Json = Box<RawValue>;
