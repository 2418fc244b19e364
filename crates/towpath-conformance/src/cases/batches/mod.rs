//! The promises about batches, by what is done to them.

pub mod claim;
pub mod dead_letters;
pub mod finish;
pub mod ingest;
pub mod lists;
pub mod reopen;
pub mod seal;
pub mod settings;
pub mod wakes;
