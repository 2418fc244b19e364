//! Options of `towpath serve` that say how long and how much the store keeps.

use std::time::Duration;

use clap::Args;
use towpath::Retention;

use super::words;

/// What is kept for less time than this is warned of.
const SHORT: Duration = Duration::from_secs(3_600);

#[derive(Args, Debug)]
#[command(next_help_heading = "Retention")]
pub(crate) struct RetentionArgs {
    /// Drop dead letters that are older: a length (a number without a unit is seconds), or forever
    #[arg(long, value_name = "LENGTH", env = "TOWPATH_KEEP_DEAD_LETTERS", default_value = "90d", value_parser = parse_age)]
    keep_dead_letters: Bound<Duration>,
    /// Remove entries of audits (forced releases, dropped dead letters) that are older: a length (a number without a unit is seconds), or forever
    #[arg(long, value_name = "LENGTH", env = "TOWPATH_KEEP_AUDITS", default_value = "365d", value_parser = parse_age)]
    keep_audits: Bound<Duration>,
    /// Ended calls that the embedded store keeps, or all; beyond that those go whose retention ends first
    #[arg(long, value_name = "COUNT", env = "TOWPATH_KEEP_OUTCOMES", default_value = "5000000", value_parser = parse_count)]
    keep_outcomes: Bound<u64>,
    /// Size of the embedded store beyond which ended calls are removed early, such as 16GiB, or all
    #[arg(long, value_name = "SIZE", env = "TOWPATH_KEEP_BYTES", default_value = "16GiB", value_parser = parse_size)]
    keep_bytes: Bound<u64>,
}

/// A bound, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound<T>(Option<T>);

impl From<&RetentionArgs> for Retention {
    fn from(args: &RetentionArgs) -> Self {
        Self {
            dead_letters: args.keep_dead_letters.0,
            audits: args.keep_audits.0,
            outcomes: args.keep_outcomes.0,
            bytes: args.keep_bytes.0,
        }
    }
}

impl RetentionArgs {
    /// Lengths that are so short that a unit may have been forgotten, for the log.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let bounds = [
            ("dead letters", "--keep-dead-letters", "TOWPATH_KEEP_DEAD_LETTERS", self.keep_dead_letters),
            ("entries of audits", "--keep-audits", "TOWPATH_KEEP_AUDITS", self.keep_audits),
        ];
        let warning = |(things, option, variable, bound): (&str, &str, &str, Bound<Duration>)| {
            let kept = words::length(bound.0.filter(|kept| *kept < SHORT)?);
            Some(format!(
                "{things} are dropped after {kept}, as {option} or {variable} says: \
                 a number without a unit is seconds, write 90d for 90 days"
            ))
        };
        bounds.into_iter().filter_map(warning).collect()
    }
}

fn parse_age(text: &str) -> Result<Bound<Duration>, String> {
    if text == "forever" {
        return Ok(Bound(None));
    }
    match words::parse_length(text) {
        Ok(Duration::ZERO) => Err("0 would drop everything at once: write a length such as 90d, or forever".to_owned()),
        Ok(length) => Ok(Bound(Some(length))),
        Err(why) => Err(format!("{why}, or forever")),
    }
}

fn parse_count(text: &str) -> Result<Bound<u64>, String> {
    if text == "all" {
        return Ok(Bound(None));
    }
    let wrong = || format!("'{text}' is no number of calls: write a number above 0, such as 5000000, or all");
    text.parse().ok().filter(|count| *count > 0).map(|count| Bound(Some(count))).ok_or_else(wrong)
}

fn parse_size(text: &str) -> Result<Bound<u64>, String> {
    if text == "all" {
        return Ok(Bound(None));
    }
    let wrong = || format!("'{text}' is no size: write a number above 0 and a unit, such as 512MiB or 16GiB, or all");
    let units: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).ok_or_else(wrong)?;
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| *bytes > 0).map(|bytes| Bound(Some(bytes))).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        retention: RetentionArgs,
    }

    #[test]
    fn without_options_a_server_has_the_default_bounds() {
        assert_eq!(Retention::from(&Line::parse_from(["serve"]).retention), Retention::default());
    }

    #[test]
    fn everything_can_be_kept() {
        let line = ["serve", "--keep-dead-letters", "forever", "--keep-audits", "forever", "--keep-outcomes", "all", "--keep-bytes", "all"];
        assert_eq!(Retention::from(&Line::parse_from(line).retention), Retention::FOREVER);
    }

    #[test]
    fn bounds_that_make_no_sense_are_refused_with_an_example() {
        for text in ["", "0", "never", "-1d", "5x"] {
            assert!(parse_age(text).unwrap_err().contains("forever"), "{text}");
        }
        for text in ["", "0", "-1", "1.5", "many"] {
            assert!(parse_count(text).unwrap_err().contains("or all"), "{text}");
        }
        for text in ["", "0GiB", "16", "16GB", "-1GiB", "99999999999TiB"] {
            assert!(parse_size(text).unwrap_err().contains("16GiB"), "{text}");
        }
        assert_eq!(parse_size("512MiB"), Ok(Bound(Some(512 << 20))));
        assert_eq!(parse_age("12h"), Ok(Bound(Some(Duration::from_secs(43_200)))));
    }
}
