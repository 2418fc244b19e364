//! Questions that people ask, and what they get to see. Engine loops never ask these.

mod filter;
mod view;

pub use filter::{CallFilter, Page, PageRequest};
pub use view::{CallView, FunctionCounts, FunctionView, StoreStatus};
