//! The configuration file of a server: batchers, and the routes that old clients know.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use thiserror::Error;
use towpath::batches::{Batcher, BatcherName, SettingsPatch};

/// What a configuration file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigFile {
    /// Batchers, by name.
    pub batchers: Vec<Batcher>,
    /// The routes that old clients know.
    pub elo_routes: EloRoutes,
}

/// Whose messages `/ingest`, `/dlq` and `/health` are about.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EloRoutes {
    /// Which batcher.
    pub batcher: String,
    /// Clients on this machine need no key for them.
    pub open: bool,
}

impl Default for EloRoutes {
    fn default() -> Self {
        Self { batcher: BatcherName::INPUT_CONTOUR.to_owned(), open: false }
    }
}

/// A configuration file that cannot be used. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnreadableConfig {
    /// It cannot be read.
    #[error("the configuration file '{path}' cannot be read: {error}")]
    Io {
        /// Which.
        path: String,
        /// What the system says.
        error: String,
    },
    /// It is not what it must be.
    #[error("the configuration file '{path}' cannot be used: {error}")]
    Bad {
        /// Which.
        path: String,
        /// Where and why.
        error: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    batchers: BTreeMap<String, SettingsPatch>,
    #[serde(default)]
    elo_routes: EloRoutes,
}

impl ConfigFile {
    /// Reads a file of JSON: `{"batchers": {"orders": {"debounce_seconds": 5, ..}}, "elo_routes": {"batcher": .., "open": ..}}`.
    pub fn read(path: &Path) -> Result<Self, UnreadableConfig> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| UnreadableConfig::Io { path: shown.clone(), error: error.to_string() })?;
        Self::parse(&text).map_err(|error| UnreadableConfig::Bad { path: shown, error })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut json = serde_json::Deserializer::from_str(text);
        let wire: Wire =
            serde_path_to_error::deserialize(&mut json).map_err(|error| format!("at '{}': {}", error.path(), error.inner()))?;
        json.end().map_err(|error| error.to_string())?;
        let batcher = |(name, patch): (String, SettingsPatch)| {
            let known = BatcherName::new(&name).map_err(|refused| format!("batchers: {refused}"))?;
            Batcher::from_patch(known, patch).map_err(|invalid| format!("batchers.{name}: {invalid}"))
        };
        BatcherName::new(&wire.elo_routes.batcher).map_err(|refused| format!("elo_routes.batcher: {refused}"))?;
        Ok(Self { batchers: wire.batchers.into_iter().map(batcher).collect::<Result<_, _>>()?, elo_routes: wire.elo_routes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_batchers_and_what_is_wrong_in_it_is_named() {
        let read =
            ConfigFile::parse(r#"{"batchers": {"orders": {"key": ["id"], "target": {"pull": true}}}, "elo_routes": {"open": true}}"#)
                .unwrap();
        assert_eq!(
            (read.batchers[0].name().as_str(), read.elo_routes.batcher.as_str(), read.elo_routes.open),
            ("orders", "input_contour", true)
        );
        for (text, says) in [
            (r#"{"batcher": {}}"#, "unknown field `batcher`"),
            (r#"{"batchers": {"a:b": {}}}"#, "batchers:"),
            (r#"{"batchers": {"orders": {"debounce": 1}}}"#, "batchers.orders"),
            (r#"{"batchers": {"orders": {"max_messages": 0}}}"#, "batchers.orders: max_messages"),
            (r#"{"batchers": {"orders": {"rate": {"policy": "a:b"}}}}"#, "batchers.orders: rate.policy: rule name 'a:b'"),
            (r#"{"batchers": {"orders": {"rate": {"policy": "p", "scop": "s"}}}}"#, "batchers.orders.rate"),
            (r#"{"batchers": {" ": {"rate": {"policy": "p"}}}}"#, "batchers. : rate.scope"),
            ("{} {}", "trailing characters"),
            ("", "EOF"),
        ] {
            let error = ConfigFile::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
