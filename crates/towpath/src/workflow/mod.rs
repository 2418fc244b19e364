//! Durable workflows: an `async fn` whose run outlives crashes, deploys and restarts. A step with a recorded result never runs again.
//!
//! ```
//! use std::time::Duration;
//! use towpath::workflow::{Event, TaskContext, Workflow, WorkflowContext};
//! use towpath::{HandlerError, Towpath};
//!
//! static ORDER: Workflow<u64, String> = Workflow::new("order-processing", "1.0.0");
//! static APPROVED: Event<bool> = Event::new("approved");
//!
//! // A task has effects. Its result is recorded; a worker that died before is repeated, under the same idempotency key.
//! async fn charge(amount: u64, task: TaskContext) -> Result<String, HandlerError> {
//!     Ok(format!("charged {amount} under {}", task.idempotency_key()))
//! }
//!
//! // A workflow has steps. While it waits, no worker holds it.
//! async fn order(amount: u64, ctx: WorkflowContext) -> Result<String, HandlerError> {
//!     match ctx.event(&APPROVED).timeout(Duration::from_secs(86_400)).await? {
//!         Some(true) => ctx.task("charge", &amount, charge).await,
//!         _no => Err(HandlerError::fatal("rejected", "no approval within a day")),
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let towpath = Towpath::open("memory:").await?;
//! let worker = towpath.worker().workflow(&ORDER, order).start().await?;
//! let run = towpath.start(&ORDER, &5).reference("order-42").await?;
//! run.send(&APPROVED, &true).reference("click-7").await?;
//! assert!(run.result().await?.starts_with("charged 5 under "));
//! worker.drain().await;
//! # Ok(())
//! # }
//! ```

mod admission;
mod attempts;
mod batch;
mod body;
mod build;
mod calls;
mod child;
mod code;
#[doc(hidden)]
pub mod combine;
mod commit;
mod context;
mod definition;
mod draw;
mod error;
mod execution;
mod handle;
mod host;
mod inbox;
mod loops;
mod options;
mod recorded;
mod replay;
mod results;
mod runner;
mod running;
mod start;
mod step;
mod steps;
mod task;
mod waits;

pub use calls::CallStep;
pub use child::{ChildBuilder, ChildHandle, ChildOutcome};
pub use combine::{Either, race};
pub use context::{History, WorkflowContext};
pub use definition::{Event, Workflow};
pub use error::RunError;
pub use handle::{RunHandle, SendBuilder};
pub use options::WorkflowOptions;
pub(crate) use running::{RunningWorkflows, Workflows};
pub use start::StartBuilder;
pub use step::StepResult;
pub use task::{TaskBuilder, TaskContext};
pub use waits::{EventTimeout, EventWait};

pub use towpath_core::run::{BlockCause, ClosePolicy, RunId, RunState};
pub use towpath_core::store::{OnConflict, Reuse, RunView};
