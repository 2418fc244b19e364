//! The moves of limits.

use async_trait::async_trait;

use super::StoreError;
use crate::limit::{Check, LimitReply, Rules};
use crate::names::LimitScope;

/// The moves of limits. One method is one atomic transition; the store's clock judges, in microseconds.
#[async_trait]
pub trait LimitStore: Send + Sync {
    /// Asks all rules of a check at once, as [`limit::take`](crate::limit::take) decides: all allow and all are written, or none is. Taking,
    /// looking and giving back are all asked here. A denial is a reply.
    ///
    /// What was taken may be forgotten by a store that loses power, never invented. A lost reply may have cost its units once.
    async fn take(&self, check: &Check) -> Result<LimitReply, StoreError>;

    /// Forgets what is remembered of these rules under a scope; of a fixed window, the present one. Returns how many of the rules had
    /// anything in use.
    async fn reset(&self, scope: &LimitScope, rules: &Rules) -> Result<u64, StoreError>;
}
