//! Log lines on standard error: one line of text for people, or one JSON object for machines.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: newlines and escape sequences in names cannot forge a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("there is no log format '{word}': use text or json")),
        }
    }
}

/// Begins to log. `filter` has the form of `RUST_LOG`: `info`, or `warn,towpath_server=debug`. The first call in a process counts;
/// later ones change nothing.
pub fn begin(format: LogFormat, filter: &str) -> Result<(), ParseError> {
    let filter = EnvFilter::builder().parse(filter)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // A line that cannot be written is dropped. Reporting that on the same closed pipe would panic, in the middle of a request.
    let lines = lines.log_internal_errors(false);
    let begun = match format {
        LogFormat::Text => {
            use std::io::IsTerminal;
            lines.with_ansi(std::io::stderr().is_terminal()).try_init()
        }
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    if let Err(already) = begun {
        tracing::debug!(%already, "logging had begun before");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_and_filters_that_make_no_sense_are_refused() {
        assert_eq!("json".parse(), Ok(LogFormat::Json));
        assert!("yaml".parse::<LogFormat>().is_err());
        assert!(begin(LogFormat::Text, "towpath=loud").is_err());
    }
}
