//! Towpath's words and decisions. Nothing here opens a socket, a file or a thread, and nothing asks what time it is.
//!
//! | room | what is in it |
//! |---|---|
//! | [`names`], [`ids`] | validated names, id newtypes, and the source of new ids |
//! | [`time`], [`clock`] | instants of the store's clock; the clock that is injected, and one that tests move |
//! | [`payload`] | opaque JSON text |
//! | [`call`] | what a call is, the table of its states, the decision [`call::step`], back-off |
//! | [`lock`], [`permit`] | who holds a scope, under which fence, until when; semaphores and read/write locks as weighted permits |
//! | [`worker`] | functions, their policies, and the workers that serve them |
//! | [`limit`] | rules, and the decision [`limit::take`]: how many, in how long, when there is room again |
//! | [`batch`] | messages gathered per key: when a batch closes, who delivers it, what is sent, what becomes a dead letter |
//! | [`run`] | what a workflow run is, the decision [`run::step`], the identity of its steps |
//! | [`inspect`] | the questions people ask: filters, pages, views |
//! | [`store`] | the traits that a store implements: one method is one atomic move |
//!
//! A decision is a pure function of a record, a command and an instant:
//!
//! ```
//! use std::time::Duration;
//! use towpath_core::call::{Call, CallCommand, CallReply, CallState, Claim, step};
//! use towpath_core::names::{CallId, WorkerId};
//! use towpath_core::time::Timestamp;
//!
//! let now = Timestamp::from_millis(1_000);
//! let call = Call::submitted(CallId::new("call-1").unwrap(), now, Duration::from_secs(30), Duration::from_secs(600));
//! let claim = Claim {
//!     worker: WorkerId::new("worker-1").unwrap(),
//!     lease: Duration::from_secs(30),
//! };
//! let (call, reply) = step(call, CallCommand::Claim(claim), now);
//! assert_eq!(call.state, CallState::Running);
//! assert!(matches!(reply, CallReply::Claimed { number: 1, .. }));
//! ```

pub mod batch;
pub mod call;
pub mod clock;
pub mod ids;
pub mod inspect;
pub mod limit;
pub mod lock;
pub mod names;
pub mod payload;
pub mod permit;
pub mod run;
pub mod store;
pub mod time;
pub mod worker;
