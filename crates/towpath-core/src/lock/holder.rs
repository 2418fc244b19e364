//! Who holds a lock, as it is written beside the counter for old workflows and people to read.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Fence, Tenure};
use crate::names::{ExecutionId, LockId, WorkflowLabel};
use crate::time::Timestamp;

/// Who asks, besides the lock id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The execution that the lock ends with.
    pub execution_id: Option<ExecutionId>,
    /// The workflow's id; `unknown` unless given.
    pub workflow_id: WorkflowLabel,
    /// The workflow's name; `unknown` unless given.
    pub workflow_name: WorkflowLabel,
}

impl Identity {
    /// The sidecar's beginning: a JSON object without its closing brace, to which a grant adds when and under which fence it happened.
    ///
    /// ```
    /// use towpath_core::lock::Identity;
    /// use towpath_core::names::LockId;
    ///
    /// let open = Identity::default().open_json(&LockId::new("a\"b").unwrap());
    /// assert_eq!(open, r#"{"lock_id":"a\"b","workflow_id":"unknown","workflow_name":"unknown","execution_id":"unknown""#);
    /// ```
    pub fn open_json(&self, lock_id: &LockId) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let execution_id = self.execution_text();
        format!(
            r#"{{"lock_id":{},"workflow_id":{},"workflow_name":{},"execution_id":{}"#,
            quoted(lock_id.as_str()),
            quoted(self.workflow_id.as_str()),
            quoted(self.workflow_name.as_str()),
            quoted(execution_id)
        )
    }

    /// The execution as it is written down and answered: `unknown` when it was not given.
    pub fn execution_text(&self) -> &str {
        self.execution_id.as_ref().map_or("unknown", ExecutionId::as_str)
    }

    /// The whole sidecar of a grant.
    pub(super) fn sidecar(&self, lock_id: &LockId, locked_at: Timestamp, fence: Fence) -> Arc<str> {
        let open = self.open_json(lock_id);
        Arc::from(format!(r#"{open},"locked_at":"{}","fence":{fence},"towpath":1}}"#, locked_at.to_iso()))
    }
}

/// Whose hand a lock is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderKind {
    /// A holder of ours, with a lease and a fence.
    Towpath,
    /// An old workflow, which has neither.
    Legacy,
}

/// Who holds a lock, as far as it is written down. What is not is `unknown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Ours or an old workflow.
    pub kind: HolderKind,
    /// What it must show to release.
    pub lock_id: String,
    /// Its workflow.
    pub workflow_id: String,
    /// Its workflow's name.
    pub workflow_name: String,
    /// Its execution.
    pub execution_id: String,
    /// Since when, as it wrote it.
    pub locked_at: String,
    /// The fence of a holder of ours.
    pub fence: Option<Fence>,
    /// Until when its lease lasts, where that is known.
    pub lease_end: Option<Timestamp>,
}

impl Holder {
    pub(super) fn of(tenure: &Tenure) -> Self {
        Self { kind: HolderKind::Towpath, lease_end: Some(tenure.lease_end), ..Self::from_meta(Some(&tenure.meta)) }
    }

    /// The holder that a sidecar names. Text that is no JSON thing counts as the lock id, as it always did; no sidecar is nobody known.
    pub fn from_meta(meta: Option<&str>) -> Self {
        let fields = meta.and_then(fields);
        let missing = if meta.is_some() && fields.is_none() { "unknown (legacy meta)" } else { "unknown" };
        let field = |name: &str| fields.as_ref().and_then(|fields| as_text(fields.get(name)?)).unwrap_or_else(|| missing.to_owned());
        let fence = fields.as_ref().and_then(|fields| fields.get("fence")?.as_u64()).map(Fence::new);
        Self {
            kind: if fence.is_some() { HolderKind::Towpath } else { HolderKind::Legacy },
            lock_id: match (meta, &fields) {
                (Some(raw), None) => raw.to_owned(),
                _ => field("lock_id"),
            },
            workflow_id: field("workflow_id"),
            workflow_name: field("workflow_name"),
            execution_id: field("execution_id"),
            locked_at: field("locked_at"),
            fence,
            lease_end: None,
        }
    }

    /// What a workflow is told that does not wait for a lock which somebody has.
    ///
    /// ```
    /// let text = towpath_core::lock::Holder::fail_fast_text("excel", 1);
    /// assert_eq!(text, "Lock acquisition failed (fail-fast): scope 'excel' is held (count=1). Caller passed wait_till_lock_released=false.");
    /// ```
    pub fn fail_fast_text(scope: &str, count: u64) -> String {
        format!(
            "Lock acquisition failed (fail-fast): scope '{scope}' is held (count={count}). Caller passed wait_till_lock_released=false."
        )
    }

    /// What a workflow is told that has waited for so long in vain.
    ///
    /// ```
    /// let text = towpath_core::lock::Holder::timed_out_text("excel", std::time::Duration::from_secs(30));
    /// assert_eq!(text, "Lock acquisition timed out after 30s waiting for scope 'excel'.");
    /// ```
    pub fn timed_out_text(scope: &str, waited: Duration) -> String {
        format!("Lock acquisition timed out after {}s waiting for scope '{scope}'.", waited.as_secs_f64())
    }

    /// What an old workflow is told that wants to release somebody else's lock.
    ///
    /// ```
    /// use towpath_core::lock::Holder;
    ///
    /// let holder = Holder::from_meta(Some("not JSON"));
    /// assert_eq!(
    ///     holder.not_yours("b"),
    ///     "LOGIC ERROR: Lock held by unknown (legacy meta) (id: unknown (legacy meta), execution: unknown (legacy meta)) \
    ///      since unknown (legacy meta), not by lock_id=b"
    /// );
    /// ```
    pub fn not_yours(&self, lock_id: &str) -> String {
        let Self { workflow_name, workflow_id, execution_id, locked_at, .. } = self;
        format!(
            "LOGIC ERROR: Lock held by {workflow_name} (id: {workflow_id}, execution: {execution_id}) since {locked_at}, not by lock_id={lock_id}"
        )
    }
}

/// The text that one field of a sidecar is compared with; nothing for what is no plain value.
pub(super) fn meta_field(meta: &str, name: &str) -> Option<String> {
    match fields(meta) {
        Some(fields) => as_text(fields.get(name)?),
        None => (name == "lock_id").then(|| meta.to_owned()),
    }
}

/// The fields of a sidecar; nothing when it is plain text. A list is a thing without fields.
fn fields(meta: &str) -> Option<serde_json::Map<String, Value>> {
    match serde_json::from_str(meta) {
        Ok(Value::Object(fields)) => Some(fields),
        Ok(Value::Array(_)) => Some(serde_json::Map::new()),
        Ok(_) | Err(_) => None,
    }
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
