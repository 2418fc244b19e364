//! The promises about runs of workflows, by what is done to them.

pub mod children;
pub mod claim;
pub mod commit;
pub mod events;
pub mod lists;
pub mod owners;
pub mod requests;
pub mod start;
pub mod timers;
