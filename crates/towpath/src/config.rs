//! The configuration that all share: read it, replace it, follow it.

use std::time::Duration;

use towpath_core::store::{ConfigView, SetConfig, StoreError};

use crate::Towpath;
use crate::engine::backoff::Backoff;

/// One question to the store lasts at most this long; then it is asked again.
const ASK_FOR: Duration = Duration::from_secs(60);

impl Towpath {
    /// The shared configuration: version 0 and `null` when nobody has ever set it.
    pub async fn config(&self) -> Result<ConfigView, StoreError> {
        self.store().config().await
    }

    /// Replaces the shared configuration and wakes all who follow it. `None`: its version is no longer the one that was asked for.
    pub async fn set_config(&self, change: SetConfig) -> Result<Option<ConfigView>, StoreError> {
        self.store().set_config(change).await
    }

    /// Follows the shared configuration.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use towpath::{Payload, SetConfig, Towpath};
    ///
    /// let towpath = Towpath::open("memory:").await?;
    /// let mut watch = towpath.watch_config();
    /// assert_eq!(watch.changed().await?.version, 0, "the first answer is how things stand");
    ///
    /// let value = Payload::from_json(r#"{"mode":"night"}"#);
    /// towpath.set_config(SetConfig { value: value.clone(), if_version: None }).await?;
    /// assert_eq!(watch.changed().await?.value, value);
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch_config(&self) -> ConfigWatch {
        ConfigWatch { towpath: self.clone(), seen: None }
    }
}

/// Somebody who follows the shared configuration.
#[derive(Debug)]
pub struct ConfigWatch {
    towpath: Towpath,
    /// The version that was told last; `None` before the first.
    seen: Option<u64>,
}

impl ConfigWatch {
    /// The configuration: at first as it stands, from then on as soon as it has changed. Several changes may be told as one.
    ///
    /// A store in trouble is asked again until it answers; an error means that it never will.
    pub async fn changed(&mut self) -> Result<ConfigView, StoreError> {
        let mut backoff = Backoff::new(self.towpath.clock(), "follow the shared configuration");
        loop {
            match self.ask().await {
                Ok(view) if self.seen != Some(view.version) => {
                    self.seen = Some(view.version);
                    return Ok(view);
                }
                Ok(_same) => backoff.succeeded(),
                Err(error) => backoff.failed(error).await?,
            }
        }
    }

    async fn ask(&self) -> Result<ConfigView, StoreError> {
        let store = self.towpath.store();
        match self.seen {
            None => store.config().await,
            Some(seen) => store.config_changed(seen, self.towpath.clock().now() + ASK_FOR).await,
        }
    }
}
