//! The promises about calls, in the order of a call's life.

pub mod answer;
pub mod cancel;
pub mod claim;
pub mod dead_letter;
pub mod lease;
pub mod limits;
pub mod retry;
pub mod submit;
pub mod waiting;
pub mod watch;
