//! The law of Towpath's stores.
//!
//! | room | what is in it |
//! |---|---|
//! | [`model`] | the promise made readable: a whole store in plain maps |
//! | [`backend`] | what a store hands in to be tested |
//! | [`mod@bench`], [`words`], [`waiting`] | the verbs and nouns of the cases |
//! | [`cases`] | what is promised, one function per promise |
//! | [`mod@suite`] | the list of all cases, and the macro that makes a named test of each |
//! | [`mod@differential`] | random operations on the model and a store, which must agree |
//! | [`mod@limits_differential`] | the same for limits, in microseconds |
//! | [`mod@runs_differential`] | the same for runs of workflows |
//! | [`mod@histories`] | random clients of locks, judged without the model |
//! | [`dump`] | all that a store shows, in one comparable piece |
//!
//! A store's whole conformance test is its backend and two lines:
//!
//! ```
//! # mod tests {
//! use towpath_conformance::backend::ModelBackend;
//!
//! towpath_conformance::suite!(ModelBackend);
//! towpath_conformance::differential!(ModelBackend, seeds = 200, operations = 300);
//! # }
//! ```

pub mod backend;
pub mod bench;
#[expect(missing_docs, reason = "a case is named by the sentence that its documentation would say")]
pub mod cases;
pub mod differential;
pub mod dump;
pub mod histories;
pub mod limits_differential;
pub mod model;
pub mod runs_differential;
pub mod suite;
pub mod waiting;
pub mod words;
