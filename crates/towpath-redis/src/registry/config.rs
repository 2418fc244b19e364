//! The shared configuration. Towpath's part stands in a key of its own, beside its version. The seeds' key holds the seeds' fields: legacy peers
//! replace it as they like, and Towpath merges into it and never wipes it. Everyone sees the merge of both.
//!
//! Legacy peers know no version. So a copy of their value as it was last seen is kept beside the version: a value that differs from it is a
//! new version, from the moment that a process looks. That holds for a value that is gone as well, since legacy peers let theirs expire.

use redis::Value;
use serde_json::Map;
use towpath_core::payload::Payload;
use towpath_core::store::{ConfigView, SetConfig, StoreError, StoreTrouble};
use towpath_core::time::Timestamp;

use super::reply::{arguments, command, half_done, next, read};
use super::scripts;
use crate::keys::GLOBAL_CONFIG;
use crate::news;
use crate::store::RedisStore;
use crate::unreadable::of_key;

/// The fields of the configuration that legacy peers read.
const SEEDS_FIELDS: [&str; 8] = ["queueMode", "redisHost", "redisPort", "redisDb", "redisUser", "redisPassword", "redisSsl", "timestamp"];

type Object = Map<String, serde_json::Value>;

/// `version`, `updated_at`, `value` and `ours`, as they are kept.
type Fields = (Option<u64>, Option<i64>, Option<Vec<u8>>, Option<Vec<u8>>);

impl RedisStore {
    pub(super) async fn read_config(&self) -> Result<ConfigView, StoreError> {
        loop {
            let kept = self.kept_config().await?;
            if kept.seeds == kept.copy {
                return Ok(kept.view());
            }
            if let Some(noted) = self.note_config(kept, None).await? {
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
        loop {
            let kept = self.kept_config().await?;
            let after = kept.merge(change.value.as_bytes());
            let [now_ms, expected, known, written] =
                arguments![now.as_millis(), expected, u8::from(kept.seeds.is_some()), u8::from(after.is_some())];
            let (before, new) = (kept.seeds.clone().unwrap_or_default(), after.clone().unwrap_or_default());
            let arguments = [now_ms, expected, known, before, written, new, change.value.as_bytes().to_vec()];
            let reply = self.shared.link.run(&scripts::CONFIG_SET, &[GLOBAL_CONFIG, &self.shared.keys.config()], &arguments).await?;
            let parts: Vec<Value> = read(reply)?;
            let mut parts = parts.into_iter();
            match next::<String>(&mut parts)?.as_str() {
                "set" => {
                    let (ours, seeds) = (Some(change.value.as_bytes().to_vec()), after.or(kept.seeds));
                    let set =
                        Kept { seeds, is_foreign: kept.is_foreign, version: next(&mut parts)?, updated_at: Some(now), copy: None, ours };
                    return Ok(Some(set.view()));
                }
                "refused" => return Ok(None),
                _a_legacy_peer_was_faster => {}
            }
        }
    }

    /// In a Cluster the two keys lie on different servers. The version comes last: should this process die in between, the seeds' fields are
    /// there and become a version as soon as a process looks.
    pub(super) async fn set_in_steps(&self, change: SetConfig) -> Result<Option<ConfigView>, StoreError> {
        self.read_config().await?;
        let mut kept = self.kept_config().await?;
        if change.if_version.is_some_and(|expected| expected != kept.version) {
            return Ok(None);
        }
        if let Some(after) = kept.merge(change.value.as_bytes()) {
            let mut set = command("SET", &[GLOBAL_CONFIG]);
            set.arg(&after);
            self.shared.link.ask(&set).await?;
            kept.seeds = Some(after);
        }
        let ours = change.value.as_bytes().to_vec();
        if let Some(noted) = self.note_config(kept, Some(ours.clone())).await.map_err(half_done)? {
            return Ok(Some(noted));
        }
        // Another process made the next version meanwhile, perhaps of the seeds' fields that were just set.
        if change.if_version.is_some() {
            return Ok(None);
        }
        loop {
            let kept = self.kept_config().await.map_err(half_done)?;
            if let Some(noted) = self.note_config(kept, Some(ours.clone())).await.map_err(half_done)? {
                return Ok(Some(noted));
            }
        }
    }

    async fn kept_config(&self) -> Result<Kept, StoreError> {
        let fields = [self.shared.keys.config(), "version".to_owned(), "updated_at".to_owned(), "value".to_owned(), "ours".to_owned()];
        let ask = [command("GET", &[GLOBAL_CONFIG]), command("HMGET", &fields)];
        let mut replies = self.shared.link.ask_all(&ask).await?.into_iter();
        let (seeds, is_foreign) = match next(&mut replies) {
            Err(StoreError::Unavailable(StoreTrouble::WrongType(trouble))) => {
                let why = format!("the configuration of legacy peers is not a string; Towpath's own settings count alone: {trouble}");
                self.shared.pass_over(GLOBAL_CONFIG, b"", why);
                (None, true)
            }
            seeds => (seeds?, false),
        };
        let (version, updated_at, copy, ours): Fields = next(&mut replies).map_err(|error| of_key(error, &self.shared.keys.config()))?;
        Ok(Kept { seeds, is_foreign, version: version.unwrap_or(0), updated_at: updated_at.map(Timestamp::from_millis), copy, ours })
    }

    /// Makes what was kept the next version, with a new part of Towpath's own if there is one. `None`: there is another version by now.
    async fn note_config(&self, kept: Kept, ours: Option<Vec<u8>>) -> Result<Option<ConfigView>, StoreError> {
        let now = self.shared.now();
        let [now_ms, version, present, written] =
            arguments![now.as_millis(), kept.version, u8::from(kept.seeds.is_some()), u8::from(ours.is_some())];
        let arguments = [now_ms, version, present, kept.seeds.clone().unwrap_or_default(), written, ours.clone().unwrap_or_default()];
        let reply = self.shared.link.run(&scripts::CONFIG_NOTE, &[&self.shared.keys.config()], &arguments).await?;
        let words: Vec<String> = read(reply)?;
        let noted = words.first().is_some_and(|word| word == "noted");
        let kept = Kept { version: kept.version + 1, updated_at: Some(now), ours: ours.or(kept.ours), ..kept };
        Ok(noted.then(|| kept.view()))
    }
}

/// What stands in the two keys.
struct Kept {
    /// The value of the seeds' key.
    seeds: Option<Vec<u8>>,
    /// The seeds' key is not a string. It counts as absent and is not replaced.
    is_foreign: bool,
    version: u64,
    updated_at: Option<Timestamp>,
    /// The value of the seeds' key that the version was given to.
    copy: Option<Vec<u8>>,
    /// The value that was last set by Towpath.
    ours: Option<Vec<u8>>,
}

impl Kept {
    /// The value of the seeds' key with the seeds' fields of a value that is being set. `None`: the key is not written.
    fn merge(&self, value: &[u8]) -> Option<Vec<u8>> {
        if self.is_foreign { None } else { merged_into_seeds(self.seeds.as_deref(), value) }
    }

    fn view(self) -> ConfigView {
        let value = shown(self.seeds, self.ours).map_or_else(Payload::null, Payload::from_json);
        ConfigView { version: self.version, value, updated_at: self.updated_at }
    }
}

/// The merge of both: the seeds' fields as legacy peers have set them, every other field as Towpath has set it. A value of Towpath that is not
/// an object is the whole. Without anything to merge the value stays as it was written.
fn shown(seeds: Option<Vec<u8>>, ours: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let Some(written) = ours.filter(|ours| ours.trim_ascii() != b"null") else { return seeds };
    let (Some(fields), Some(seeds)) = (object(&written), seeds.as_deref().and_then(object)) else { return Some(written) };
    let mut merged = fields.clone();
    for (name, value) in seeds {
        if SEEDS_FIELDS.contains(&name.as_str()) || !merged.contains_key(&name) {
            merged.insert(name, value);
        }
    }
    if merged == fields { Some(written) } else { serde_json::to_vec(&merged).ok() }
}

/// The value of the seeds' key with the seeds' fields of a value that is being set. `None`: there is nothing to write.
fn merged_into_seeds(seeds: Option<&[u8]>, value: &[u8]) -> Option<Vec<u8>> {
    let new: Object = object(value)?.into_iter().filter(|(name, _)| SEEDS_FIELDS.contains(&name.as_str())).collect();
    let before = seeds.and_then(object).unwrap_or_default();
    let mut after = before.clone();
    after.extend(new);
    (after != before).then(|| serde_json::to_vec(&after).ok()).flatten()
}

fn object(text: &[u8]) -> Option<Object> {
    serde_json::from_slice(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(seeds: Option<&str>, ours: Option<&str>) -> Option<String> {
        let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        shown(bytes(seeds), bytes(ours)).map(|shown| String::from_utf8(shown).unwrap())
    }

    #[test]
    fn the_merge_of_both_is_shown() {
        assert_eq!(seen(None, None), None);
        assert_eq!(seen(Some("{ \"queueMode\":true}"), None).as_deref(), Some("{ \"queueMode\":true}"));
        assert_eq!(seen(Some("{\"queueMode\":true}"), Some("{\"a\": 1}")).as_deref(), Some("{\"a\":1,\"queueMode\":true}"));
        assert_eq!(
            seen(Some("{\"queueMode\":false,\"a\":2}"), Some("{\"a\":1,\"queueMode\":true}")).as_deref(),
            Some("{\"a\":1,\"queueMode\":false}")
        );
        assert_eq!(seen(Some("not JSON"), Some("{ \"a\":1}")).as_deref(), Some("{ \"a\":1}"));
        assert_eq!(seen(Some("{\"queueMode\":true}"), Some("[1, 2]")).as_deref(), Some("[1, 2]"));
        assert_eq!(seen(Some("{\"queueMode\":true}"), Some(" null ")).as_deref(), Some("{\"queueMode\":true}"));
    }

    #[test]
    fn only_the_seeds_fields_are_written_to_the_seeds_key() {
        let merged = |seeds: Option<&str>, value: &str| merged_into_seeds(seeds.map(str::as_bytes), value.as_bytes());
        assert_eq!(merged(Some("{\"x\":1}"), "{\"lockScopes\":{}}"), None);
        assert_eq!(merged(None, "[1]"), None);
        let written = merged(Some("{\"x\":1,\"queueMode\":true}"), "{\"queueMode\":false,\"lockScopes\":{}}").unwrap();
        assert_eq!(object(&written), object(b"{\"x\":1,\"queueMode\":false}"));
    }
}
