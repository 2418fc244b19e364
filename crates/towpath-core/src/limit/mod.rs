//! Limits: how many, in how long, and when there will be room again. Pure arithmetic in whole microseconds; no clock, no keys, no waiting.
//!
//! | room | what is in it |
//! |---|---|
//! | [`Rule`], [`Rules`] | one limit; one to eight of them that are checked together |
//! | [`Check`] | what is asked: take, look or give back, and how much |
//! | [`take`] | the decision: all rules allow and all are written, or none is |
//! | `gcra`, `fixed_window`, `sliding_counter`, `sliding_log` | one step of each algorithm |
//! | [`Noted`], [`NotedRule`] | which rules are asked, for a list |
//! | [`Recent`] | what a process remembers by scope and key, bounded |
//! | [`LimitReply`], [`Summary`] | what each rule says; what that means for the caller |
//!
//! | algorithm | most in any window of its length |
//! |---|---|
//! | `gcra` | limit + burst − 1; with the default burst of 1: limit |
//! | `sliding_log` | limit |
//! | `sliding_counter` | below 2 · limit; limit if calls come evenly |
//! | `fixed_window` | 2 · limit, across the edge of two windows |
//!
//! ```
//! use std::time::Duration;
//! use towpath_core::limit::{Check, Rule, Rules, Retry, take};
//! use towpath_core::names::LimitScope;
//! use towpath_core::time::Micros;
//!
//! let rules = Rules::new(vec![Rule::gcra("per_minute", 60, Duration::from_secs(60)).unwrap()]).unwrap();
//! let check = Check::take(LimitScope::new("acme").unwrap(), rules, 1, Duration::ZERO).unwrap();
//! let (states, reply) = take(&check, &[None], Micros::new(0));
//! assert!(reply.allowed);
//! let (_, reply) = take(&check, &states, Micros::new(0));
//! assert!(!reply.allowed);
//! assert_eq!(reply.rules[0].retry, Retry::After(Duration::from_secs(1)));
//! ```

mod check;
mod fixed_window;
mod gcra;
mod invalid;
mod noted;
mod recent;
mod reply;
mod rule;
mod rules;
mod sliding_counter;
mod sliding_log;
mod state;
mod summary;
mod take;
#[cfg(test)]
mod tests;
mod text;

pub use check::Check;
pub use invalid::InvalidLimit;
pub use noted::{Note, Noted, NotedRule, counted};
pub use recent::Recent;
pub use reply::{LimitReply, Retry, RuleReply};
pub use rule::{Algorithm, OnError, Rule};
pub use rules::{RULES_MAX, Rules};
pub use state::{LimitState, StateName};
pub use summary::Summary;
pub use take::{in_use, take, told};
pub use text::parse_length;

/// Above this a number that Redis computes with is not exact any more: its scripts know only doubles.
pub(crate) const EXACT_MAX: i128 = (1 << 53) - 1;
