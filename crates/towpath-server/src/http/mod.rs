//! The HTTP API: one table of routes, one error body, one shape per thing.

pub mod wire;
