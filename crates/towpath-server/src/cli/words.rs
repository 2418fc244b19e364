//! Lengths of time and instants, as people write them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The longest length that anyone can mean; beyond it instants of this machine's clock would overflow.
const LONGEST: Duration = Duration::from_secs(3_650 * 24 * 60 * 60);

/// Reads a length of time such as `500ms`, `30s`, `5m`, `1h30m` or `2d`. A number without a unit is seconds: `600`, `0.5`.
pub(crate) fn parse_length(text: &str) -> Result<Duration, String> {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    match text.parse::<f64>() {
        Ok(seconds) if is_number => Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|length| *length <= LONGEST)
            .ok_or_else(|| format!("'{text}' seconds are longer than ten years")),
        _ => parse_with_units(text),
    }
}

fn parse_with_units(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no length of time: write seconds, or a number and a unit, such as 500ms, 30s, 5m, 2h or 1d");
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit_ms: u64 = match &rest[..letters] {
            "ms" => 1,
            "s" | "sec" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        total = number.checked_mul(unit_ms).and_then(|ms| total.checked_add(Duration::from_millis(ms))).ok_or_else(wrong)?;
    }
    if total > LONGEST { Err(format!("'{text}' is longer than ten years")) } else { Ok(total) }
}

/// Where to listen. `localhost` is this machine's own address.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("'{text}' is no address to listen on: write an IP address or localhost, and a port, such as 127.0.0.1:8690");
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()).ok_or_else(wrong)?;
    Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
}

/// Milliseconds for the wire.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// A length for people: `850 ms`, `2 s`, `2 min 5 s`, `3 h`, `4 d 1 h`.
pub(crate) fn length(length: Duration) -> String {
    let seconds = length.as_secs();
    let two = |big: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{big} {unit}"),
        _ => format!("{big} {unit} {small} {small_unit}"),
    };
    match seconds {
        0 => format!("{} ms", length.as_millis()),
        1..=9 if length.subsec_millis() >= 100 => format!("{seconds}.{} s", length.subsec_millis() / 100),
        1..=59 => format!("{seconds} s"),
        60..=3_599 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..=86_399 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// The length between two instants in milliseconds.
pub(crate) fn between(from_ms: i64, to_ms: i64) -> String {
    length(Duration::from_millis(u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or(0)))
}

/// How long ago an instant was, by this machine's clock.
pub(crate) fn ago(at_ms: i64) -> String {
    format!("{} ago", between(at_ms, super::time::unix_ms()))
}

/// An instant in UTC: `2026-03-01 12:34:56.789Z`.
pub(crate) fn instant(at_ms: i64) -> String {
    let (days, in_day) = (at_ms.div_euclid(86_400_000), at_ms.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (hour, minute, second, ms) = (in_day / 3_600_000, in_day / 60_000 % 60, in_day / 1_000 % 60, in_day % 1_000);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The date so many days after 1970-01-01. Years are counted from March, so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// `1 call`, `2 calls`.
pub(crate) fn plural(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_with_their_unit_and_without_one_as_seconds() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1h30m", 5_400_000), ("2d", 172_800_000), ("0", 0)] {
            assert_eq!(parse_length(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for (text, ms) in [("600", 600_000), ("5", 5_000), ("0.5", 500), ("10m", 600_000)] {
            assert_eq!(parse_length(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "5x", "-1s", "1.5s", "99999999999999999999s", "30s5", "9999999d"] {
            assert!(parse_length(text).is_err(), "{text}");
        }
        for text in ["-5", "1e300", "NaN", "inf", ".", "1.2.3", "99999999999999999999", "x"] {
            assert!(parse_length(text).is_err(), "{text}");
        }
    }

    #[test]
    fn localhost_is_an_address_to_listen_on() {
        for (text, address) in [("localhost:9000", "127.0.0.1:9000"), ("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:80", "[::1]:80")] {
            assert_eq!(parse_listen(text).map(|address| address.to_string()), Ok(address.to_owned()), "{text}");
        }
        for text in ["", "localhost", "localhost:x", "example.com:80", "9000", ":9000"] {
            assert!(parse_listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_are_shown_with_at_most_two_units() {
        let cases = [(850, "850 ms"), (2_000, "2 s"), (2_540, "2.5 s"), (59_999, "59 s"), (125_000, "2 min 5 s"), (10_800_000, "3 h")];
        for (ms, text) in cases {
            assert_eq!(length(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn instants_are_shown_in_utc_also_around_leap_days() {
        assert_eq!(instant(0), "1970-01-01 00:00:00.000Z");
        assert_eq!(instant(951_782_400_000), "2000-02-29 00:00:00.000Z");
        assert_eq!(instant(1_772_368_496_789), "2026-03-01 12:34:56.789Z");
        assert_eq!(instant(-1), "1969-12-31 23:59:59.999Z");
    }
}
