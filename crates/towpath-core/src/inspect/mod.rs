//! Questions that people ask, and what they get to see. Engine loops never ask these.

mod batch;
mod filter;
mod limit;
mod lock;
mod view;

pub use batch::{BatchCounts, BatchView, Cursor, CursorPage, DeadLetterQuery, FlightView, OpenBatchView};
pub use filter::{CallFilter, Page, PageRequest};
pub use limit::{LimitPage, LimitQuery, LimitView};
pub use lock::{LockPage, LockQuery, LockView, PermitPage, PermitView};
pub use view::{CallView, FunctionCounts, FunctionView, StoreStatus, StreamGroup, StreamView};
