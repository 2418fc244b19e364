//! Limits: how many in how long, across every process on the same store.
//!
//! ```
//! use std::time::Duration;
//! use towpath::Towpath;
//! use towpath::limits::Rule;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let towpath = Towpath::open("memory:").await?;
//! let limit = || -> Result<_, towpath::limits::LimitError> {
//!     Ok(towpath
//!         .limit("acme")
//!         .rule(Rule::gcra("per_minute", 100, Duration::from_secs(60))?.burst(20)?)
//!         .rule(Rule::sliding_log("per_user", 2, Duration::from_secs(1))?.key("u17")?))
//! };
//! assert!(limit()?.take().await?.allowed);
//! let verdict = limit()?.take().await?;
//! let denied = limit()?.take().await?;
//! assert!(!denied.allowed && denied.rule.as_str() == "per_user" && denied.retry_after.is_some());
//!
//! // Work that was not done after all gives back what it took.
//! verdict.refund().await?;
//! assert_eq!(limit()?.cost(0).peek().await?.remaining, 1, "a cost of 0 just looks");
//! # towpath.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! | room | what is in it |
//! |---|---|
//! | [`LimitBuilder`] | a question: scope, rules or policy, cost, wait |
//! | [`Verdict`] | the answer |
//! | `denied` | refusals that need not be asked again before their retry |
//! | `local` | what counts while the store is out of reach, for rules that wish so |
//! | [`Policies`] | named lists of rules, kept in the shared configuration |
//! | [`n8n`] | the same in the words of the seed's n8n nodes: `rate_limit_check` |
//! | [`Turns`] | what a policy lets through, for those who take work from a queue |

mod builder;
mod denied;
mod error;
mod local;
pub mod n8n;
mod policies;
mod spec;
mod turns;
mod verdict;

use std::sync::Arc;

use towpath_core::limit::LimitReply;

pub use builder::LimitBuilder;
pub use error::LimitError;
pub use policies::{Policies, Policy};
pub use spec::RuleSpec;
pub use towpath_core::limit::{Algorithm, Check, InvalidLimit, OnError, Retry, Rule, RuleReply, Rules};
pub use towpath_core::names::{LimitScope, RuleKey, RuleName};
pub use turns::{Room, Turn, Turns};
pub use verdict::Verdict;

pub(crate) use builder::not_before;
pub(crate) use denied::Denied;
pub(crate) use local::LocalLimits;
pub(crate) use policies::PolicyCache;
pub(crate) use turns::TurnBook;

use crate::{Observer, Towpath};

/// What a process keeps in mind about limits.
#[derive(Default)]
pub(crate) struct Limits {
    pub(crate) denied: Denied,
    pub(crate) local: LocalLimits,
    pub(crate) policies: PolicyCache,
    pub(crate) turns: TurnBook,
    observer: Option<Arc<dyn Observer>>,
}

impl Limits {
    pub(crate) fn heard_by(observer: Option<Arc<dyn Observer>>) -> Self {
        Self { observer, ..Self::default() }
    }

    /// A check that takes something was answered without the store.
    fn answered_here(&self, check: &Check, reply: &LimitReply, degraded: bool) {
        if let Some(observer) = self.observer.as_ref().filter(|_| check.writes() && check.cost() > 0) {
            observer.limit_answered_here(check, reply, degraded);
        }
    }
}

impl Towpath {
    /// A question to the limits of a scope: a tenant, a service, a file.
    pub fn limit(&self, scope: impl Into<String>) -> LimitBuilder {
        LimitBuilder::new(self.clone(), scope.into())
    }

    /// The policies that all processes share.
    pub fn limit_policies(&self) -> Policies {
        Policies::new(self.clone())
    }
}
