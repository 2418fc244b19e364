//! Why a limit gave no verdict. A denial is a verdict.

use thiserror::Error;
use towpath_core::limit::InvalidLimit;
use towpath_core::names::InvalidName;
use towpath_core::store::StoreError;

use crate::error::store_error_code;

/// A question that got no verdict.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The rules, the cost or the scope cannot be.
    #[error(transparent)]
    Invalid(#[from] InvalidLimit),
    /// Neither rules nor a policy were given.
    #[error("no rule was given for scope '{scope}': give rules or name a policy")]
    NoRules {
        /// The scope.
        scope: String,
    },
    /// Rules and a policy were given.
    #[error("rules and the policy '{policy}' were given: give one of them")]
    Ambiguous {
        /// The policy.
        policy: String,
    },
    /// There is no such policy.
    #[error("there is no policy '{policy}', neither of scope '{scope}' nor for all: put one, or give rules")]
    NoPolicy {
        /// The scope.
        scope: String,
        /// The policy.
        policy: String,
    },
    /// What stands in the shared configuration is no policy.
    #[error("the shared configuration's limit_policies cannot be read: {0}")]
    BadPolicies(String),
    /// The store was in trouble, and a rule says that nothing passes uncounted then.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LimitError {
    /// The word for programs. It does not change between versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(invalid) => invalid.code(),
            Self::NoRules { .. } => "missing_field",
            Self::Ambiguous { .. } => "ambiguous",
            Self::NoPolicy { .. } => "policy_not_found",
            Self::BadPolicies(_) => "bad_policies",
            Self::Store(error) => store_error_code(error),
        }
    }
}

impl From<InvalidName> for LimitError {
    fn from(refused: InvalidName) -> Self {
        Self::Invalid(refused.into())
    }
}
