//! The scopes that the shared configuration names: locks of old workflows, which keep no list of their own.
//!
//! `{"lock_scopes": ["excel-fileId-123", "nightly"]}`

use serde_json::Value;
use towpath_core::names::LockScope;
use towpath_core::store::StoreError;

use crate::Towpath;

/// Where they stand in the shared configuration.
const FIELD: &str = "lock_scopes";
/// The same, as the seeds write it.
const SEEDS_FIELD: &str = "lockScopes";

impl Towpath {
    /// The scopes that the shared configuration names under `lock_scopes`: lists and clean-ups look at them, whoever holds them. What is no
    /// name of a lock is left out, with a warning in the log.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use towpath::{Payload, SetConfig, Towpath};
    ///
    /// let towpath = Towpath::open("memory:").await?;
    /// let value = Payload::from_json(r#"{"lock_scopes":["nightly"]}"#);
    /// towpath.set_config(SetConfig { value, if_version: None }).await?;
    /// assert_eq!(towpath.registered_lock_scopes().await?[0].as_str(), "nightly");
    /// # towpath.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn registered_lock_scopes(&self) -> Result<Vec<LockScope>, StoreError> {
        let config = self.config().await?;
        let value: Value = serde_json::from_slice(config.value.as_bytes()).unwrap_or_default();
        let mut scopes = Vec::new();
        for field in [FIELD, SEEDS_FIELD] {
            match value.get(field) {
                None | Some(Value::Null) => {}
                Some(Value::Array(names)) => scopes.extend(names.iter().filter_map(read)),
                Some(_) => tracing::warn!("`{field}` in the shared configuration is no list of names and is ignored"),
            }
        }
        Ok(scopes)
    }
}

fn read(name: &Value) -> Option<LockScope> {
    match name.as_str().map(LockScope::new) {
        Some(Ok(scope)) => Some(scope),
        Some(Err(refused)) => {
            tracing::warn!(%refused, "a name in `{FIELD}` of the shared configuration is ignored");
            None
        }
        None => {
            tracing::warn!(%name, "what is no text in `{FIELD}` of the shared configuration is ignored");
            None
        }
    }
}
