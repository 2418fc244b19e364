//! One thing that was looked at, and what to do about it.

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Works, but something should be done.
    Warn,
    /// Does not work, or does not keep its promises.
    Fail,
    /// Not permitted to look.
    Unknown,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Which.
    pub name: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was seen.
    pub says: String,
    /// What to do.
    pub advice: Option<String>,
}

impl Check {
    pub(crate) fn ok(name: &'static str, says: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, says: says.into(), advice: None }
    }

    pub(crate) fn warn(name: &'static str, says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warn, says: says.into(), advice: Some(advice.into()) }
    }

    pub(crate) fn fail(name: &'static str, says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Fail, says: says.into(), advice: Some(advice.into()) }
    }

    /// This user must not look; somebody else has to.
    pub(crate) fn not_permitted(name: &'static str, command: &str) -> Self {
        let advice = format!("allow {command} (`towpath doctor --print-acl` prints the rule), or ask whoever runs the server");
        Self { name, verdict: Verdict::Unknown, says: "not permitted to look".to_owned(), advice: Some(advice) }
    }
}
