//! A rule as JSON, in the shared configuration and on the wire. Numbers may be written as decimal text, as workflows often have them.

use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use towpath_core::limit::{Algorithm, InvalidLimit, OnError, Rule};

/// A rule that was not checked yet.
///
/// ```
/// use towpath::limits::RuleSpec;
///
/// let spec: RuleSpec = serde_json::from_str(r#"{"name": "per_minute", "limit": "100", "window_ms": 60000, "burst": 20}"#).unwrap();
/// assert_eq!(spec.rule().unwrap().to_string(), "per_minute=gcra:100/60s,burst=20");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// What it is called among the others.
    pub name: String,
    /// How it counts: `gcra` unless something else is said.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// How many.
    #[serde(deserialize_with = "whole_number")]
    pub limit: u64,
    /// In how many milliseconds.
    #[serde(deserialize_with = "whole_number")]
    pub window_ms: u64,
    /// How many at once, of a `gcra`.
    #[serde(default, deserialize_with = "optional_number", skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Whom it counts apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether denied calls count, of a `fixed_window`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub count_denied: bool,
    /// What to answer when the store is out of reach.
    #[serde(default)]
    pub on_error: OnError,
    /// Whether it only watches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
}

impl RuleSpec {
    /// Checks it.
    pub fn rule(&self) -> Result<Rule, InvalidLimit> {
        let mut rule = Rule::new(&self.name, self.algorithm, self.limit, Duration::from_millis(self.window_ms))?;
        if let Some(burst) = self.burst {
            rule = rule.burst(burst)?;
        }
        if let Some(key) = &self.key {
            rule = rule.key(key)?;
        }
        if self.count_denied {
            rule = rule.count_denied()?;
        }
        rule = rule.on_error(self.on_error);
        Ok(if self.shadow { rule.shadow() } else { rule })
    }
}

impl From<&Rule> for RuleSpec {
    fn from(rule: &Rule) -> Self {
        let is_gcra = rule.algorithm() == Algorithm::Gcra;
        Self {
            name: rule.name().as_str().to_owned(),
            algorithm: rule.algorithm(),
            limit: rule.limit(),
            window_ms: u64::try_from(rule.window().as_millis()).unwrap_or(u64::MAX),
            burst: is_gcra.then(|| rule.capacity()),
            key: rule.counted_for().map(|key| key.as_str().to_owned()),
            count_denied: rule.counts_denied(),
            on_error: rule.when_unreachable(),
            shadow: rule.is_shadow(),
        }
    }
}

/// A whole number, or decimal text of one.
struct WholeNumber;

impl Visitor<'_> for WholeNumber {
    type Value = u64;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a whole number of at least 0")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
        // 60.0 is what some languages write for 60.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole, not negative and small enough")]
        if number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number) {
            return Ok(number as u64);
        }
        Err(E::invalid_value(de::Unexpected::Float(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        text.trim().parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

fn whole_number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(WholeNumber)
}

fn optional_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Number(#[serde(deserialize_with = "whole_number")] u64);
    Ok(Option::<Number>::deserialize(from)?.map(|number| number.0))
}
