//! Delivery of batches: posted to a target, signed and guarded, or handed to a function.
//!
//! `post` makes one request and reads its answer, `hosts` counts deliveries per host and stops asking one that only fails, `secrets` finds
//! what a batcher signs with, `receiver` puts them together, `check` refuses settings that could not be delivered, `file` reads batchers
//! from the configuration file.

mod check;
mod file;
mod hosts;
mod post;
mod receiver;
mod secrets;

pub use file::{ConfigFile, EloRoutes, UnreadableConfig};

pub(crate) use check::check;
pub(crate) use receiver::ServerReceiver;
