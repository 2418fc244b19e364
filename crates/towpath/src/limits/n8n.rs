//! Limits in the words of the seed's n8n node `rate_limit_check`, with its inputs, output and defaults. On Redis it counts in the bucket
//! `n8n-ratelimit-<scope>-<number of the window>` that n8n workflows count in, by the server's clock.

use std::time::Duration;

use serde::Serialize;
use towpath_core::limit::{InvalidLimit, Rule};

use super::LimitError;
use crate::Towpath;

/// The inputs of `rate_limit_check`. What is left out has the node's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitCheck {
    /// What is limited. Default: `default`.
    pub scope: Option<String>,
    /// Number in a window. Default: 10.
    pub limit: Option<u64>,
    /// How long a window is: `windowSeconds`. Default: 60.
    pub window_seconds: Option<u64>,
}

/// The output of `rate_limit_check`.
#[must_use = "an output that is not read limits nothing"]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RateLimitChecked {
    /// Whether the count is within the limit.
    pub allowed: bool,
    /// What is limited.
    pub scope: String,
    /// How many have asked in this window, with this one and with those that were denied.
    pub count: u64,
    /// As it was given.
    pub limit: u64,
}

impl Towpath {
    /// `rate_limit_check`: counts one call in the present window, also when it is denied.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use towpath::limits::n8n::RateLimitCheck;
    /// use towpath::Towpath;
    ///
    /// let towpath = Towpath::open("memory:").await?;
    /// let mail = || RateLimitCheck { scope: Some("mail".to_owned()), limit: Some(1), window_seconds: Some(86_400) };
    /// assert!(towpath.rate_limit_check(mail()).await?.allowed);
    /// let denied = towpath.rate_limit_check(mail()).await?;
    /// assert_eq!((denied.allowed, denied.count, denied.limit), (false, 2, 1));
    /// # towpath.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn rate_limit_check(&self, inputs: RateLimitCheck) -> Result<RateLimitChecked, LimitError> {
        const SECONDS_MAX: u64 = Rule::WINDOW_MS_MAX / 1_000;
        let (limit, seconds) = (inputs.limit.unwrap_or(10), inputs.window_seconds.unwrap_or(60));
        if !(1..=SECONDS_MAX).contains(&seconds) {
            let given = seconds.to_string();
            return Err(InvalidLimit::OutOfRange { field: "windowSeconds", given, min: 1, max: SECONDS_MAX }.into());
        }
        let rule = Rule::seed(limit, Duration::from_secs(seconds))?;
        let verdict = self.limit(inputs.scope.as_deref().unwrap_or("default")).rule(rule).take().await?;
        Ok(RateLimitChecked { allowed: verdict.allowed, scope: verdict.scope.to_string(), count: verdict.count, limit })
    }
}
