//! Where batches go, and where old producers' messages come from.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::names::FunctionName;

/// Where batches go.
///
/// ```
/// use towpath_core::batch::Target;
///
/// let target: Target = serde_json::from_str(r#"{"url": "https://client.example/resolve"}"#).unwrap();
/// assert_eq!(target, Target::Url("https://client.example/resolve".to_owned()));
/// assert!(serde_json::from_str::<Target>(r#"{"url": "ftp://x", "pull": true}"#).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub enum Target {
    /// They are posted there.
    Url(String),
    /// Each is a call of this function.
    Function {
        /// Which.
        name: FunctionName,
        /// The next batch of the key waits for the call's outcome.
        wait: bool,
    },
    /// Each is a run of this workflow: `name` or `name@version`.
    Workflow {
        /// Which.
        name: String,
        /// The next batch of the key waits for the run's outcome.
        wait: bool,
    },
    /// Consumers fetch them.
    Pull,
}

/// A list that old producers push to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object such as {\"list\": \"queue:incoming\"}")]
pub struct Source {
    /// Its key.
    pub list: String,
}

/// A target that cannot be. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidTarget {
    /// None of the four, or several.
    #[error(r#"a target is {{"url": ..}}, {{"function": ..}}, {{"workflow": ..}} or {{"pull": true}}"#)]
    NotOne,
    /// No address that a batch could be posted to.
    #[error("'{0}' is no address to post to: write http:// or https:// and a host, without a user name")]
    BadUrl(String),
    /// A name that nothing can have.
    #[error("{0}")]
    BadName(String),
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object such as {\"url\": \"https://…\"}, {\"function\": \"NAME\"} or {\"pull\": true}")]
struct Wire {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pull: Option<bool>,
    #[serde(default, rename = "await", skip_serializing_if = "Option::is_none")]
    wait: Option<bool>,
}

impl TryFrom<Wire> for Target {
    type Error = InvalidTarget;

    fn try_from(wire: Wire) -> Result<Self, InvalidTarget> {
        let waits = wire.wait.is_some();
        let wait = wire.wait.unwrap_or(false);
        match wire {
            Wire { url: Some(url), function: None, workflow: None, pull: None, .. } if !waits => {
                check_url(&url)?;
                Ok(Self::Url(url))
            }
            Wire { url: None, function: Some(name), workflow: None, pull: None, .. } => {
                let name = FunctionName::new(name).map_err(|refused| InvalidTarget::BadName(refused.to_string()))?;
                Ok(Self::Function { name, wait })
            }
            Wire { url: None, function: None, workflow: Some(name), pull: None, .. } => {
                let bare = name.split('@').next().unwrap_or_default();
                FunctionName::new(bare).map_err(|refused| InvalidTarget::BadName(refused.to_string()))?;
                Ok(Self::Workflow { name, wait })
            }
            Wire { url: None, function: None, workflow: None, pull: Some(true), .. } if !waits => Ok(Self::Pull),
            _ => Err(InvalidTarget::NotOne),
        }
    }
}

/// Only the shape: whether an address may be used is for the guard at the edge to say.
fn check_url(url: &str) -> Result<(), InvalidTarget> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let authority = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let fits = authority.is_some_and(|authority| !authority.is_empty() && !authority.contains('@'));
    let clean = !url.chars().any(|c| c.is_whitespace() || c.is_control()) && url.len() <= 2_048;
    if fits && clean { Ok(()) } else { Err(InvalidTarget::BadUrl(url.chars().take(200).collect())) }
}

impl From<Target> for Wire {
    fn from(target: Target) -> Self {
        let wait = |wait: bool| wait.then_some(true);
        match target {
            Target::Url(url) => Self { url: Some(url), ..Self::default() },
            Target::Function { name, wait: waits } => {
                Self { function: Some(name.as_str().to_owned()), wait: wait(waits), ..Self::default() }
            }
            Target::Workflow { name, wait: waits } => Self { workflow: Some(name), wait: wait(waits), ..Self::default() },
            Target::Pull => Self { pull: Some(true), ..Self::default() },
        }
    }
}
