//! Rules as people type them: `per_minute=gcra:100/60s,burst=20`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Algorithm, InvalidLimit, OnError, Rule};

const SHAPE: &str = "write NAME=ALGORITHM:LIMIT/WINDOW, as in 'per_minute=gcra:100/60s,burst=20'";

impl FromStr for Rule {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let unclear = |what: &str| InvalidLimit::bad(format!("'{text}' is no rule ({what}): {SHAPE}"));
        let mut parts = text.split(',');
        let (name, rate) = parts.next().and_then(|head| head.split_once('=')).ok_or_else(|| unclear("there is no '='"))?;
        let (algorithm, rate) = rate.split_once(':').unwrap_or((Algorithm::default().as_str(), rate));
        let algorithm = Algorithm::from_word(algorithm.trim()).ok_or_else(|| unclear(&format!("'{algorithm}' is no algorithm")))?;
        let (limit, window) = rate.split_once('/').ok_or_else(|| unclear("there is no '/'"))?;
        let limit = number("limit", limit, Self::LIMIT_MAX)?;
        let window = parse_length(window).ok_or_else(|| unclear(&format!("'{window}' is no length of time")))?;
        let mut rule = Self::new(name.trim(), algorithm, limit, window)?;
        for option in parts {
            let (word, value) = option.split_once('=').map_or((option.trim(), ""), |(word, value)| (word.trim(), value.trim()));
            rule = match word {
                "burst" => rule.burst(number("burst", value, Self::LIMIT_MAX)?)?,
                "key" => rule.key(value)?,
                "count_denied" => rule.count_denied()?,
                "shadow" => rule.shadow(),
                "on_error" => rule.on_error(OnError::from_word(value).ok_or_else(|| unclear("on_error is closed, open or local"))?),
                _ => return Err(unclear(&format!("there is no option '{word}'"))),
            };
        }
        Ok(rule)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = self.window();
        write!(f, "{}={}:{}/", self.name(), self.algorithm().as_str(), self.limit())?;
        if window.subsec_millis() == 0 {
            write!(f, "{}s", window.as_secs())?;
        } else {
            write!(f, "{}ms", window.as_millis())?;
        }
        if self.algorithm() == Algorithm::Gcra && self.capacity() != 1 {
            write!(f, ",burst={}", self.capacity())?;
        }
        if let Some(key) = self.counted_for() {
            write!(f, ",key={key}")?;
        }
        if self.counts_denied() {
            f.write_str(",count_denied")?;
        }
        if self.when_unreachable() != OnError::Closed {
            write!(f, ",on_error={}", self.when_unreachable().as_str())?;
        }
        if self.is_shadow() { f.write_str(",shadow") } else { Ok(()) }
    }
}

fn number(field: &'static str, text: &str, max: u64) -> Result<u64, InvalidLimit> {
    let given = text.trim();
    given.parse().map_err(|_| InvalidLimit::OutOfRange { field, given: format!("'{given}'"), min: 1, max })
}

/// A length of time: a whole number and `ms`, `s`, `m`, `h` or `d`. A number without a unit is seconds.
pub fn parse_length(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let count: u64 = count.parse().ok()?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    count.checked_mul(unit_ms).map(Duration::from_millis)
}
