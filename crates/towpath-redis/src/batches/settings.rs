//! The settings of batchers, as they are kept: one hash, and the news that something in it has changed.

use redis::{Cmd, Value};
use towpath_core::names::BatcherName;
use towpath_core::payload::Payload;
use towpath_core::store::{BatcherPut, StoreError, StoredBatcher};
use towpath_core::time::Timestamp;

use super::{keys, scripts};
use crate::news;
use crate::script::Args;
use crate::store::RedisStore;
use crate::value;

/// The field that counts changes: no batcher has an empty name.
const VERSION: &str = "";

impl RedisStore {
    pub(super) async fn put_settings(&self, name: &BatcherName, settings: Payload) -> Result<BatcherPut, StoreError> {
        let (key, now) = (self.settings_key(), self.shared.now());
        let mut args = Args::with_capacity(3);
        args.number(now.as_millis());
        args.push(name.as_str());
        args.push(settings.as_bytes());
        let reply = self.or_corrupt(self.shared.run_durably(&scripts::PUT, &[&key], &args).await, &[&key]).await?.0;
        let numbers: Vec<Option<i64>> = value::array("putting settings", reply)?.iter().map(value::number).collect();
        let [Some(version), Some(is_new)] = numbers[..] else {
            return Err(StoreError::Corrupt("the reply to putting settings makes no sense".to_owned()));
        };
        self.shared.news.publish(news::BATCHERS).await;
        let version = u64::try_from(version).unwrap_or(0);
        Ok(BatcherPut { created: is_new == 1, stored: StoredBatcher { name: name.clone(), settings, version, updated_at: now } })
    }

    pub(super) async fn settings_of(&self, name: &BatcherName) -> Result<Option<StoredBatcher>, StoreError> {
        let reply = self.ask_settings("HGET", Some(name.as_str())).await?;
        value::into_bytes(reply).map(|kept| read(name.clone(), &kept)).transpose()
    }

    pub(super) async fn all_settings(&self) -> Result<Vec<StoredBatcher>, StoreError> {
        let fields = self.ask_settings("HGETALL", None).await.and_then(|reply| value::array("HGETALL", reply));
        let fields = self.shared.or_pass_over(&self.settings_key(), fields, Vec::new())?;
        let mut all = Vec::with_capacity(fields.len() / 2);
        for pair in fields.chunks_exact(2) {
            // The count of changes, or nothing of ours.
            let Some(name) = value::text(&pair[0]).and_then(|name| BatcherName::new(name).ok()) else { continue };
            // One batcher's trouble hides no other.
            match read(name.clone(), value::bytes(&pair[1]).unwrap_or_default()) {
                Ok(batcher) => all.push(batcher),
                Err(error) => self.shared.pass_over(&self.settings_key(), name.as_str().as_bytes(), error),
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    pub(super) async fn settings_changed(&self, seen: u64, until: Timestamp) -> Result<u64, StoreError> {
        // Before the look: whatever changes after it is heard.
        let mut news = self.shared.news.batchers();
        loop {
            news.mark_unchanged();
            let version = value::number(&self.ask_settings("HGET", Some(VERSION)).await?).and_then(|version| u64::try_from(version).ok());
            let version = version.unwrap_or(0);
            if version != seen {
                return Ok(version);
            }
            tokio::select! {
                biased;
                changed = news.changed() => if changed.is_err() { return Ok(version) },
                () = self.shared.clock.sleep_until(until) => return Ok(version),
            }
        }
    }

    fn settings_key(&self) -> String {
        keys::batchers(self.shared.keys.prefix())
    }

    async fn ask_settings(&self, command: &str, field: Option<&str>) -> Result<Value, StoreError> {
        let (key, mut ask) = (self.settings_key(), Cmd::new());
        ask.arg(command).arg(&key).arg(field);
        self.or_corrupt(self.shared.link.ask(&ask).await, &[&key]).await
    }
}

/// Version, instant, settings.
fn read(name: BatcherName, kept: &[u8]) -> Result<StoredBatcher, StoreError> {
    let odd = || StoreError::Corrupt(format!("what is kept of batcher '{name}' makes no sense: put its settings again"));
    let text = std::str::from_utf8(kept).map_err(|_| odd())?;
    let mut words = text.splitn(3, ' ');
    let mut word = || words.next().ok_or_else(odd);
    let version = word()?.parse().map_err(|_| odd())?;
    let updated_at = word()?.parse().map(Timestamp::from_millis).map_err(|_| odd())?;
    let settings = Payload::from_json(word()?.to_owned());
    Ok(StoredBatcher { name, settings, version, updated_at })
}
