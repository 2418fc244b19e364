//! The dispatcher: claims what is due, hands it to a receiver, and settles it.
//!
//! `dispatcher` waits and claims, `pace` draws the turns of a batcher with a rate, `delivery` takes one batch to its end, `prepare` makes what is sent, `serving` keeps one dispatcher per
//! batcher and follows their settings, `drainer` empties old producers' lists, `function` and the server's receivers deliver.

pub(super) mod claim;
mod delivery;
mod dispatcher;
mod drainer;
mod following;
mod function;
mod keeper;
pub(super) mod pace;
pub(super) mod prepare;
mod receiver;
mod serving;

pub use function::FunctionReceiver;
pub use receiver::{Admission, Delivery, Parcel, Receiver};
pub use serving::ServingBatches;

pub(crate) use following::InProcess;
