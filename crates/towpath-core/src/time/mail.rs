//! Dates as mails and HTTP write them (RFC 2822), read back: `Wed, 11 Dec 2024 10:00:00 GMT`, `11 Dec 2024 10:00 +0300`.

use super::iso::{days_of, digits, minutes_of_offset};

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
/// The zones that the RFC names, and their hours.
const ZONES: [(&str, i64); 11] = [
    ("gmt", 0),
    ("ut", 0),
    ("utc", 0),
    ("est", -5),
    ("edt", -4),
    ("cst", -6),
    ("cdt", -5),
    ("mst", -7),
    ("mdt", -6),
    ("pst", -8),
    ("pdt", -7),
];

/// Milliseconds since the Unix epoch. A date without a zone counts as UTC.
pub(super) fn parse(text: &str) -> Option<i64> {
    // The name of the day says nothing that the date does not.
    let date = text.split_once(',').map_or(text, |(_day, date)| date);
    let words: Vec<&str> = date.split_ascii_whitespace().collect();
    let [day, month, year, time, zone @ ..] = words.as_slice() else { return None };
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))?;
    let day = digits(day, day.len().clamp(1, 2))?;
    let days = days_of(digits(year, 4)?, i64::try_from(month).ok()? + 1, day)?;
    let offset = match zone {
        [] => 0,
        [zone] => offset(zone)?,
        [_, ..] => return None,
    };
    Some((days * 1_440 - offset) * 60_000 + millis(time)?)
}

fn millis(time: &str) -> Option<i64> {
    let parts: Vec<&str> = time.split(':').collect();
    let (hour, minute, second) = match parts[..] {
        [hour, minute] => (hour, minute, "00"),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let (hour, minute, second) = (digits(hour, 2)?, digits(minute, 2)?, digits(second, 2)?);
    (hour < 24 && minute < 60 && second < 60).then_some(((hour * 60 + minute) * 60 + second) * 1_000)
}

/// In minutes.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") || zone.starts_with(['+', '-']) {
        return minutes_of_offset(zone);
    }
    ZONES.iter().find(|(name, _)| name.eq_ignore_ascii_case(zone)).map(|(_, hours)| hours * 60)
}

#[cfg(test)]
mod tests {
    use super::super::Timestamp;

    #[test]
    fn a_mails_date_is_the_instant_of_the_same_iso_date() {
        let same = [
            ("Wed, 11 Dec 2024 10:00:00 GMT", "2024-12-11T10:00:00Z"),
            ("Wed, 11 Dec 2024 10:00:00 +0300", "2024-12-11T07:00:00Z"),
            ("1 Jan 1970 00:01 UT", "1970-01-01T00:01:00Z"),
            ("thu,  29 FEB 2024 23:59:59 est", "2024-03-01T04:59:59Z"),
            ("11 Dec 2024 10:00:00", "2024-12-11T10:00:00Z"),
        ];
        for (mail, iso) in same {
            assert_eq!(Timestamp::from_date(mail), Timestamp::from_iso(iso), "{mail}");
            assert_eq!(Timestamp::from_date(iso), Timestamp::from_iso(iso), "{iso}");
        }
    }

    #[test]
    fn what_is_no_date_is_not_read() {
        let texts =
            ["", ",", "Wed, 31 Nov 2024 10:00:00 GMT", "Wed, 11 Dec 2024", "Wed, 11 Dec 24 10:00:00 GMT", "11 Dec 2024 25:00:00 GMT"];
        for text in texts.into_iter().chain([
            "11 Dec 2024 10:00:00 XYZ",
            "11 Dec 2024 10:00:00 +",
            "11 Dec 2024 10:00 GMT x",
            "я Dec 2024 10:00 GMT",
        ]) {
            assert_eq!(Timestamp::from_date(text), None, "{text}");
        }
    }
}
