//! Durable function calls: call a function by name from anywhere and get its answer, even if a worker dies.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use towpath::{CallContext, HandlerError, Towpath};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Add {
//!     a: i64,
//!     b: i64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // One file keeps every accepted call: "sqlite:orders.db". In memory, nothing survives the process.
//! let towpath = Towpath::open("memory:").await?;
//!
//! // A worker serves functions. It claims calls under a lease; if it dies, another worker gets them.
//! let worker = towpath
//!     .worker()
//!     .function("add", |add: Add, _ctx: CallContext| async move { Ok::<_, HandlerError>(add.a + add.b) })
//!     .start()
//!     .await?;
//!
//! // A caller needs only the name.
//! let sum: i64 = towpath.call("add", &Add { a: 1, b: 2 }).await?;
//! assert_eq!(sum, 3);
//!
//! // Leaving in good order: finish what runs, hand the rest to others.
//! worker.drain().await;
//! towpath.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! | room | what is in it |
//! |---|---|
//! | [`Towpath`], [`TowpathBuilder`] | the one door: a store, a clock, and the loops that keep time |
//! | [`CallBuilder`], [`NewCall`], [`CallError`] | calling: waited for, detached, typed or raw |
//! | [`WorkerBuilder`], [`FunctionOptions`], [`RunningWorker`] | serving: functions, permits, drain |
//! | [`CallContext`], [`HandlerError`] | what a handler is given, and how it fails |
//! | [`batches`] | messages gathered per key, handed over as one: push, receive, settings, dead letters |
//! | [`limits`] | how many in how long: rules, policies, verdicts |
//! | [`locks`] | locks, semaphores and read/write locks: guards with fences |
//! | [`workflow`] | durable workflows: runs, steps, tasks, events, children |
//! | [`params`] | parameter definitions and JSON Schemas |
//! | [`testing`] | tests of your own functions, in memory, with a clock that you move |
//! | [`core`] | the words: names, ids, states, policies, and the traits of a store |
//!
//! Delivery is at least once: a handler may run again when its worker died before the answer was kept. A call that has ended never runs
//! again, and all who ask see the same outcome. [`CallContext::idempotency_key`] is stable over all deliveries of one call.

pub mod batches;
mod call;
mod clock;
mod config;
mod context;
mod deliveries;
mod engine;
mod error;
mod functions;
mod handler;
mod ids;
pub mod limits;
pub mod locks;
mod observed;
mod open;
pub mod params;
pub mod testing;
mod towpath;
mod worker;
pub mod workflow;

pub use call::{Answered, CallBuilder, CallHandle, NewCall, SubmittedCall, TimeoutRetries, Wait};
pub use clock::SystemClock;
pub use config::ConfigWatch;
pub use context::CallContext;
pub use error::{CallError, HandlerError, Phase, WorkerError, store_error_code};
pub use handler::{FunctionOptions, RawHandler};
pub use ids::SystemIds;
pub use observed::Observer;
pub use open::{
    BatchFloor, Check, Examination, Floor, FloorGauge, FloorReading, LimitFloor, OpenError, RedisFloor, RedisFloorCaller, RedisLockFloor,
    RedisRunFloor, Verdict, acl_options, acl_rule, examine, redis_prefix, shown,
};
pub use params::ParamProblem;
pub use towpath::{Towpath, TowpathBuilder};
pub use worker::{DrainReport, RunningWorker, WorkerBuilder};

pub use towpath_core as core;
pub use towpath_core::call::{AttemptsBefore, Backoff, CallState, DeadReason, Failure, Outcome, RetryPolicy};
pub use towpath_core::clock::{Clock, VirtualClock};
pub use towpath_core::ids::{DeliveryId, Ids};
pub use towpath_core::names::{CallId, FunctionKey, FunctionName, IdempotencyKey, InvalidName, Scope, WorkerId};
pub use towpath_core::payload::Payload;
pub use towpath_core::store::{ConfigView, Durability, Forgotten, Retention, SetConfig, Store, StoreError, StoreTrouble};
pub use towpath_core::time::Timestamp;
pub use towpath_core::worker::{FunctionLimits, FunctionRate};

/// Compiles the Rust in README.md and docs/, so that it cannot lie.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/locks.md")]
#[doc = include_str!("../../../docs/workflows.md")]
struct Pages;
