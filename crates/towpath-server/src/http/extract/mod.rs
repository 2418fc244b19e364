//! Reading requests. Whatever cannot be read is answered with what to change, before any handler runs.

mod body;
mod depth;
mod path;
mod query;
mod shape;

pub(crate) use body::{BODY_BYTES_MAX, JsonBody, OptionalJsonBody, RawJsonBody};
pub(crate) use depth::is_too_deep;
pub(crate) use path::{PathPair, PathText};
pub(crate) use query::Query;
