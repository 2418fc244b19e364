//! Names of workflows: what runs, in which version, what it waits for, and by which reference a run is known.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{InvalidName, check_text};

/// The longest version or shard, in bytes.
pub const VERSION_BYTES_MAX: usize = 64;

name!(
    /// What a workflow is called. It stands in the name of its stream.
    ///
    /// ```
    /// use towpath_core::names::WorkflowName;
    ///
    /// assert!(WorkflowName::new("order-processing").is_ok());
    /// assert!(WorkflowName::new("").is_err());
    /// ```
    WorkflowName,
    "workflow name",
    |_text| Ok::<(), InvalidName>(())
);

name!(
    /// The version of a workflow: any text, such as `1.0.0`. A run keeps the version that it was started with.
    WorkflowVersion,
    "workflow version",
    |text| check_short("workflow version", text)
);

name!(
    /// A part of a workflow's runs with a stream of its own, such as `us-east`.
    Shard,
    "shard",
    |text| check_short("shard", text)
);

name!(
    /// What an event is called. A workflow waits for events by name.
    EventName,
    "event name",
    |_text| Ok::<(), InvalidName>(())
);

name!(
    /// A caller's own name for a run or an event: the same reference is the same run, or the same event.
    Reference,
    "reference",
    |_text| Ok::<(), InvalidName>(())
);

name!(
    /// A build of a worker's program. A run that does not fit one build waits for another.
    BuildId,
    "build id",
    |_text| Ok::<(), InvalidName>(())
);

fn check_short(what: &'static str, text: &str) -> Result<(), InvalidName> {
    if text.len() > VERSION_BYTES_MAX {
        return Err(InvalidName::TooLong { what, bytes: text.len(), max: VERSION_BYTES_MAX });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_shards_are_short_and_names_have_no_control_characters() {
        assert!(WorkflowVersion::new("v".repeat(VERSION_BYTES_MAX)).is_ok());
        let refused = WorkflowVersion::new("v".repeat(VERSION_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(refused.to_string(), "workflow version has 65 bytes: at most 64 are allowed");
        assert!(Shard::new("us\neast").is_err());
        assert!(EventName::new("approved\t").is_err());
        assert!(Reference::new("order 42/ä").is_ok());
    }
}
