//! What the doctor found, and what to do about it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Info,
    /// Works, but something should be done.
    Warn,
    /// Does not work, or does not keep its promises.
    Fail,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// Which check.
    pub check: String,
    /// How bad it is.
    pub level: Level,
    /// What was seen.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(check: impl Into<String>, message: impl Into<String>) -> Self {
        Self { check: check.into(), level: Level::Ok, message: message.into(), advice: None }
    }

    /// Worth knowing.
    pub fn info(check: impl Into<String>, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::advised(check, Level::Info, message, advice)
    }

    /// Something should be done.
    pub fn warn(check: impl Into<String>, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::advised(check, Level::Warn, message, advice)
    }

    /// It does not work, or does not keep its promises.
    pub fn fail(check: impl Into<String>, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::advised(check, Level::Fail, message, advice)
    }

    fn advised(check: impl Into<String>, level: Level, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check: check.into(), level, message: message.into(), advice: Some(advice.into()) }
    }
}
