//! Settings that could not be delivered are refused when they are stored, where that can be known by then.

use thiserror::Error;
use towpath::batches::{Settings, Target};

use crate::push::{AllowedTarget, TargetPolicy, TargetRefused};

/// Why settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum RefusedTarget {
    /// The guard does not let it pass.
    #[error("{0}; or allow it with the batcher's own allow_targets")]
    Guarded(TargetRefused),
    /// Something in `allow_targets` names no place.
    #[error("allow_targets: {0}")]
    BadPlace(String),
    /// There are no workflows yet.
    #[error("batches cannot go to a workflow yet: use a url, a function or pull")]
    Workflow,
}

/// The policy of a batcher: the server's, and what the batcher itself allows.
pub(super) fn policy(server: &TargetPolicy, settings: &Settings) -> Result<TargetPolicy, RefusedTarget> {
    let place = |text: &String| text.parse::<AllowedTarget>().map_err(|invalid| RefusedTarget::BadPlace(invalid.to_string()));
    Ok(server.for_batches(settings.allow_targets.iter().map(place).collect::<Result<Vec<_>, _>>()?))
}

/// Whether a batcher may have these settings on this server. What a name leads to is judged at every delivery.
pub(crate) fn check(server: &TargetPolicy, settings: &Settings) -> Result<(), RefusedTarget> {
    let policy = policy(server, settings)?;
    match &settings.target {
        Some(Target::Url(url)) => policy.check(url).map(|_| ()).map_err(RefusedTarget::Guarded),
        Some(Target::Workflow { .. }) => Err(RefusedTarget::Workflow),
        Some(Target::Function { .. } | Target::Pull) | None => Ok(()),
    }
}
