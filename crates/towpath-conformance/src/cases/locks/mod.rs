//! The promises about locks, in the order of a tenure's life; those about old callers stand apart, because not every store can be reached by them.

pub mod acquire;
pub mod cleanup;
pub mod lease;
pub mod old_callers;
pub mod queue;
pub mod release;
pub mod turns;
