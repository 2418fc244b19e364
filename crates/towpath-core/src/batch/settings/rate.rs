//! The policy that the deliveries of a batcher take from, checked and as it is written.

use serde::{Deserialize, Serialize};

use super::InvalidSettings;
use crate::names::{BatcherName, InvalidName, LimitScope, RuleName};

/// The policy that every delivery of a batcher takes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRate {
    /// What the policy is called.
    pub policy: RuleName,
    /// What is limited: whoever names the same scope shares its limit, functions too. `None`: the batcher's own name.
    pub scope: Option<LimitScope>,
}

impl BatchRate {
    /// What is limited when a batcher names this rate. A batcher whose name is nothing but blanks must name a scope.
    pub fn scope_of(&self, batcher: &BatcherName) -> Result<LimitScope, InvalidSettings> {
        let own = || LimitScope::new(batcher.as_str()).map_err(|refused| bad_name("rate.scope", refused));
        self.scope.clone().map_or_else(own, Ok)
    }
}

/// A rate as it is written. A name that cannot be is refused by the name of its field, which a file or a request shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object such as {\"policy\": \"NAME\"}")]
#[expect(missing_docs, reason = "each field is the one of its name in `BatchRate`")]
pub struct RatePatch {
    pub policy: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

impl RatePatch {
    pub(super) fn checked(&self) -> Result<BatchRate, InvalidSettings> {
        let policy = RuleName::new(&self.policy).map_err(|refused| bad_name("rate.policy", refused))?;
        let scope = self.scope.as_ref().map(LimitScope::new).transpose().map_err(|refused| bad_name("rate.scope", refused))?;
        Ok(BatchRate { policy, scope })
    }
}

impl From<&BatchRate> for RatePatch {
    fn from(rate: &BatchRate) -> Self {
        Self { policy: rate.policy.as_str().to_owned(), scope: rate.scope.as_ref().map(|scope| scope.as_str().to_owned()) }
    }
}

fn bad_name(field: &'static str, refused: InvalidName) -> InvalidSettings {
    InvalidSettings::BadName { field, refused }
}
