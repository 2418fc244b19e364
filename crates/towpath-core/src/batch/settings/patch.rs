//! Settings as they are written in a file, sent over the wire and kept: only what differs, under the names that people use.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Duplicates, IdentityFrom, InvalidSettings, MediaMerge, Order, RatePatch, Settings, Source, Strategy, Target};
use crate::batch::merge::check_template;
use crate::batch::{Layout, ReasonStyle};

/// Some settings of a batcher. What is not named stays as it is; what is not known is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object of settings")]
#[expect(missing_docs, reason = "each field is the one of its name in `Settings`")]
pub struct SettingsPatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debounce_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_keywords: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<Duplicates>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_unknown: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<Strategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice_template: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_from: Option<IdentityFrom>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_merge: Option<MediaMerge>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_style: Option<ReasonStyle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_base_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_cap_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_host: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RatePatch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_targets: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<Source>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_open: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dlq_keep_days: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u16>,
}

/// What was kept, as far as this version knows of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptSettings {
    /// What is known.
    pub patch: SettingsPatch,
    /// Settings of another version, which this one does not know.
    pub unknown: Vec<String>,
}

impl SettingsPatch {
    /// Reads what was kept, by whichever version. What this one does not know is left out and named: a server that is older or newer than the
    /// one that kept it goes by the rest, as before.
    ///
    /// ```
    /// use towpath_core::batch::SettingsPatch;
    ///
    /// let kept = SettingsPatch::read_kept(br#"{"debounce_seconds": 2, "colour": "red"}"#).unwrap();
    /// assert_eq!((kept.patch.debounce_seconds, kept.unknown), (Some(2.0), vec!["colour".to_owned()]));
    /// ```
    pub fn read_kept(text: &[u8]) -> Result<KeptSettings, serde_json::Error> {
        let mut fields: serde_json::Map<String, Value> = serde_json::from_slice(text)?;
        // Every setting may be absent, so null is refused of those only that are not known.
        let is_known = |name: &str| serde_json::from_value::<Self>(serde_json::json!({ name: null })).is_ok();
        let unknown: Vec<String> = fields.keys().filter(|name| !is_known(name)).cloned().collect();
        fields.retain(|name, _| !unknown.contains(name));
        Ok(KeptSettings { patch: serde_json::from_value(Value::Object(fields))?, unknown })
    }
}

const WEEK: f64 = 7.0 * 86_400.0;

impl Settings {
    /// These settings with what a file, a request or a store says instead. All of them are checked, whoever said them.
    pub fn patched(mut self, patch: &SettingsPatch) -> Result<Self, InvalidSettings> {
        self.patch_gathering(patch)?;
        self.patch_merging(patch)?;
        self.patch_delivery(patch)?;
        self.patch_keeping(patch)?;
        Ok(self)
    }

    fn patch_gathering(&mut self, patch: &SettingsPatch) -> Result<(), InvalidSettings> {
        set(&mut self.debounce, length("debounce_seconds", patch.debounce_seconds, 0.0, 3_600.0)?);
        set(&mut self.max_wait, length("max_wait_seconds", patch.max_wait_seconds, 1.0, 86_400.0)?);
        set(&mut self.max_messages, within("max_messages", patch.max_messages, 1, 10_000)?);
        set(&mut self.max_bytes, within("max_bytes", patch.max_bytes, 1 << 10, 16 << 20)?);
        set(&mut self.idempotency, length("idempotency_seconds", patch.idempotency_seconds, 0.0, WEEK)?);
        if let Some(words) = &patch.flush_keywords {
            check_list("flush_keywords", words, 0, 32, |word| !word.trim().is_empty() && word.len() <= 256)?;
            self.flush_keywords = words.iter().map(|word| fold(word)).collect();
        }
        if let Some(key) = &patch.key {
            check_list("key", key, 1, 8, |part| !part.trim_matches('/').is_empty() && part.len() <= 256)?;
            self.key.clone_from(key);
        }
        set(&mut self.duplicates, patch.duplicates);
        set(&mut self.split_unknown, patch.split_unknown);
        set(&mut self.serial, patch.serial);
        Ok(())
    }

    fn patch_merging(&mut self, patch: &SettingsPatch) -> Result<(), InvalidSettings> {
        set(&mut self.order, patch.order);
        set(&mut self.reason_style, patch.reason_style);
        set(&mut self.merge.strategy, patch.merge);
        set(&mut self.merge.identity_from, patch.identity_from);
        set(&mut self.merge.media_merge, patch.media_merge);
        if let Some(voice) = &patch.voice_template {
            let fits = voice.contains("{text}") && voice.len() <= 1_024;
            if !fits {
                return Err(bad("voice_template", "write {text} where the transcribed text belongs, in at most 1024 bytes"));
            }
            self.merge.voice_template.clone_from(voice);
        }
        if let Some(separator) = &patch.separator {
            if separator.len() > 1_024 {
                return Err(bad("separator", "it may have at most 1024 bytes"));
            }
            self.merge.separator.clone_from(separator);
        }
        if let Some(template) = &patch.template {
            check_template(template).map_err(|why| bad("template", why))?;
            self.merge.template = Some(template.clone());
        }
        if self.merge.strategy == Strategy::Template && self.merge.template.is_none() {
            return Err(bad("merge", "the strategy 'template' needs a template"));
        }
        Ok(())
    }

    fn patch_delivery(&mut self, patch: &SettingsPatch) -> Result<(), InvalidSettings> {
        const HOUR_MS: u64 = 3_600_000;
        set(&mut self.max_attempts, within("max_attempts", patch.max_attempts, 1, 50)?);
        set(&mut self.backoff_base, within("backoff_base_ms", patch.backoff_base_ms, 1, HOUR_MS)?.map(Duration::from_millis));
        set(&mut self.backoff_cap, within("backoff_cap_ms", patch.backoff_cap_ms, 1, HOUR_MS)?.map(Duration::from_millis));
        set(&mut self.timeout, length("timeout_seconds", patch.timeout_seconds, 0.1, 600.0)?);
        set(&mut self.lease, length("lease_seconds", patch.lease_seconds, 1.0, 3_600.0)?);
        set(&mut self.concurrency, within("concurrency", patch.concurrency, 1, 1_000)?);
        set(&mut self.per_host, within("per_host", patch.per_host, 1, 1_000)?);
        if let Some(rate) = &patch.rate {
            self.rate = Some(rate.checked()?);
        }
        if let Some(target) = &patch.target {
            self.target = Some(target.clone());
        }
        if let Some(secrets) = &patch.secrets {
            let by_reference =
                |secret: &str| ["env:", "file:"].iter().any(|kind| secret.strip_prefix(kind).is_some_and(|rest| !rest.is_empty()));
            // Never repeat a secret that somebody wrote down by mistake.
            if secrets.len() > 8 || !secrets.iter().all(|secret| by_reference(secret)) {
                return Err(bad("secrets", "name up to 8 places where secrets are, as env:NAME or file:PATH"));
            }
            self.secrets.clone_from(secrets);
        }
        if let Some(allowed) = &patch.allow_targets {
            check_list("allow_targets", allowed, 0, 256, |range| !range.is_empty() && !range.contains(char::is_whitespace))?;
            self.allow_targets.clone_from(allowed);
        }
        if let Some(field) = &patch.error_field {
            self.error_field = Some(field.clone()).filter(|field| !field.is_empty());
        }
        Ok(())
    }

    fn patch_keeping(&mut self, patch: &SettingsPatch) -> Result<(), InvalidSettings> {
        if let Some(sources) = &patch.sources {
            let lists: Vec<String> = sources.iter().map(|source| source.list.clone()).collect();
            check_list("sources", &lists, 0, 16, |list| !list.is_empty() && list.len() <= 256)?;
            self.sources.clone_from(sources);
        }
        set(&mut self.max_open, within("max_open", patch.max_open, 1, 1_000_000_000)?);
        if let Some(days) = within("dlq_keep_days", patch.dlq_keep_days, 1, 3_650)? {
            self.dlq_keep_days = Some(days);
        }
        if let Some(layout) = patch.layout {
            self.layout = Some(layout);
        }
        if let Some(partitions) = within("partitions", patch.partitions, 1, 64)? {
            self.partitions = Some(partitions);
        }
        Ok(())
    }

    /// All of these settings as they would be written.
    pub fn to_patch(&self) -> SettingsPatch {
        let seconds = |length: Duration| Some(length.as_secs_f64());
        let millis = |length: Duration| u64::try_from(length.as_millis()).ok();
        SettingsPatch {
            debounce_seconds: seconds(self.debounce),
            max_wait_seconds: seconds(self.max_wait),
            max_messages: Some(self.max_messages),
            max_bytes: Some(self.max_bytes),
            flush_keywords: Some(self.flush_keywords.clone()),
            idempotency_seconds: seconds(self.idempotency),
            duplicates: Some(self.duplicates),
            key: Some(self.key.clone()),
            split_unknown: Some(self.split_unknown),
            serial: Some(self.serial),
            order: Some(self.order),
            merge: Some(self.merge.strategy),
            voice_template: Some(self.merge.voice_template.clone()),
            separator: Some(self.merge.separator.clone()),
            identity_from: Some(self.merge.identity_from),
            media_merge: Some(self.merge.media_merge),
            template: self.merge.template.clone(),
            reason_style: Some(self.reason_style),
            max_attempts: Some(self.max_attempts),
            backoff_base_ms: millis(self.backoff_base),
            backoff_cap_ms: millis(self.backoff_cap),
            timeout_seconds: seconds(self.timeout),
            lease_seconds: seconds(self.lease),
            concurrency: Some(self.concurrency),
            per_host: Some(self.per_host),
            rate: self.rate.as_ref().map(RatePatch::from),
            target: self.target.clone(),
            secrets: Some(self.secrets.clone()),
            allow_targets: Some(self.allow_targets.clone()),
            error_field: Some(self.error_field.clone().unwrap_or_default()), // empty: none, also where there is one by default
            sources: Some(self.sources.clone()),
            max_open: Some(self.max_open),
            dlq_keep_days: self.dlq_keep_days,
            layout: self.layout,
            partitions: self.partitions,
        }
    }
}

/// A text without its case and the blanks around it.
pub(in crate::batch) fn fold(text: &str) -> String {
    text.trim().to_lowercase()
}

fn set<T>(place: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *place = given;
    }
}

fn bad(field: &'static str, why: impl Into<String>) -> InvalidSettings {
    InvalidSettings::Bad { field, why: why.into() }
}

fn within<T: PartialOrd + ToString + Copy>(field: &'static str, given: Option<T>, min: T, max: T) -> Result<Option<T>, InvalidSettings> {
    match given {
        Some(given) if !(given >= min && given <= max) => {
            Err(InvalidSettings::OutOfRange { field, given: given.to_string(), min: min.to_string(), max: max.to_string() })
        }
        given => Ok(given),
    }
}

/// Whole milliseconds: finer is nothing that a store could tell.
fn length(field: &'static str, given: Option<f64>, min: f64, max: f64) -> Result<Option<Duration>, InvalidSettings> {
    Ok(within(field, given, min, max)?.map(from_seconds))
}

/// So many seconds, to the millisecond.
pub(in crate::batch) fn from_seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64((seconds * 1_000.0).round() / 1_000.0).unwrap_or_default()
}

fn check_list(
    field: &'static str,
    given: &[String],
    least: usize,
    most: usize,
    fits: impl Fn(&str) -> bool,
) -> Result<(), InvalidSettings> {
    if given.len() < least || given.len() > most {
        let (given, min, max) = (format!("a list of {}", given.len()), least.to_string(), most.to_string());
        return Err(InvalidSettings::OutOfRange { field, given, min, max });
    }
    match given.iter().find(|one| !fits(one)) {
        Some(wrong) => Err(bad(field, format!("'{}' cannot stand here", wrong.chars().take(100).collect::<String>()))),
        None => Ok(()),
    }
}
