//! The shared configuration. Its value stands under the seeds' key, where old peers write it too; its version beside it in our own.
//!
//! Old peers set the value and know of no version. So a copy of what was last seen is kept beside the version: a value that differs from
//! it is a new version, from the moment somebody looks. That holds for a value that is gone as well, since old peers let theirs expire.

use redis::Value;
use towpath_core::payload::Payload;
use towpath_core::store::{ConfigView, SetConfig, StoreError};
use towpath_core::time::Timestamp;

use super::reply::{arguments, command, half_done, next, read};
use super::scripts;
use crate::keys::GLOBAL_CONFIG;
use crate::news;
use crate::store::RedisStore;

impl RedisStore {
    pub(super) async fn read_config(&self) -> Result<ConfigView, StoreError> {
        loop {
            let kept = self.kept_config().await?;
            if kept.value == kept.copy {
                return Ok(kept.view());
            }
            if let Some(noted) = self.note_config(kept.version, kept.value).await? {
                self.shared.news.publish(news::CONFIG).await;
                return Ok(noted);
            }
        }
    }

    pub(super) async fn write_config(&self, change: SetConfig) -> Result<Option<ConfigView>, StoreError> {
        let set = if self.shared.link.is_cluster() { self.set_in_steps(change).await? } else { self.set_at_once(change).await? };
        if set.is_some() {
            self.shared.news.publish(news::CONFIG).await;
        }
        Ok(set)
    }

    async fn set_at_once(&self, change: SetConfig) -> Result<Option<ConfigView>, StoreError> {
        let now = self.shared.now();
        let expected = change.if_version.map(|version| version.to_string()).unwrap_or_default();
        let [now_ms, expected] = arguments![now.as_millis(), expected];
        let arguments = [now_ms, expected, change.value.as_bytes().to_vec()];
        let reply = self.shared.link.run(&scripts::CONFIG_SET, &[GLOBAL_CONFIG, &self.shared.keys.config()], &arguments).await?;
        let parts: Vec<Value> = read(reply)?;
        let mut parts = parts.into_iter();
        let word: String = next(&mut parts)?;
        if word != "set" {
            return Ok(None);
        }
        Ok(Some(ConfigView { version: next(&mut parts)?, value: change.value, updated_at: Some(now) }))
    }

    /// In a Cluster the value and its version lie on different servers. The version comes last: should this process die in between, the
    /// value is there and becomes a version as soon as somebody looks.
    pub(super) async fn set_in_steps(&self, change: SetConfig) -> Result<Option<ConfigView>, StoreError> {
        let present = self.read_config().await?;
        if change.if_version.is_some_and(|expected| expected != present.version) {
            return Ok(None);
        }
        let mut set = command("SET", &[GLOBAL_CONFIG]);
        set.arg(change.value.as_bytes());
        self.shared.link.ask(&set).await?;
        let value = change.value.as_bytes().to_vec();
        if let Some(noted) = self.note_config(present.version, Some(value.clone())).await.map_err(half_done)? {
            return Ok(Some(noted));
        }
        // Somebody made the next version meanwhile. If it is of our value, a reader has noted what we set; else the later set counts.
        let seen = self.read_config().await.map_err(half_done)?;
        let ours = seen.value.as_bytes() == value || change.if_version.is_none();
        Ok(ours.then_some(seen))
    }

    async fn kept_config(&self) -> Result<Kept, StoreError> {
        let ask =
            [command("GET", &[GLOBAL_CONFIG]), command("HMGET", &[self.shared.keys.config().as_str(), "version", "updated_at", "value"])];
        let mut replies = self.shared.link.ask_all(&ask).await?.into_iter();
        let value = next(&mut replies)?;
        let (version, updated_at, copy): (Option<u64>, Option<i64>, Option<Vec<u8>>) = next(&mut replies)?;
        Ok(Kept { value, version: version.unwrap_or(0), updated_at: updated_at.map(Timestamp::from_millis), copy })
    }

    /// Makes a value the version after `version`. `None`: there is another one by now.
    async fn note_config(&self, version: u64, value: Option<Vec<u8>>) -> Result<Option<ConfigView>, StoreError> {
        let now = self.shared.now();
        let [now_ms, version_text, present] = arguments![now.as_millis(), version, u8::from(value.is_some())];
        let arguments = [now_ms, version_text, present, value.clone().unwrap_or_default()];
        let reply = self.shared.link.run(&scripts::CONFIG_NOTE, &[&self.shared.keys.config()], &arguments).await?;
        let words: Vec<String> = read(reply)?;
        let noted = words.first().is_some_and(|word| word == "noted");
        let kept = Kept { value, version: version + 1, updated_at: Some(now), copy: None };
        Ok(noted.then(|| kept.view()))
    }
}

/// What stands in the two keys.
struct Kept {
    value: Option<Vec<u8>>,
    version: u64,
    updated_at: Option<Timestamp>,
    /// The value that the version was given to.
    copy: Option<Vec<u8>>,
}

impl Kept {
    fn view(self) -> ConfigView {
        let value = self.value.map_or_else(Payload::null, Payload::from_json);
        ConfigView { version: self.version, value, updated_at: self.updated_at }
    }
}
