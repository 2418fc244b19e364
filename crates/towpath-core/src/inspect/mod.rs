//! Questions that people ask, and what they get to see. Engine loops never ask these.

mod filter;
mod lock;
mod view;

pub use filter::{CallFilter, Page, PageRequest};
pub use lock::{LockPage, LockQuery, LockView, PermitPage, PermitView};
pub use view::{CallView, FunctionCounts, FunctionView, StoreStatus};
