//! The law of Towpath's stores: a model that is the promise made readable.

pub mod model;
