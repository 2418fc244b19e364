//! Dates as text, read back: `2027-01-15`, `2027-01-15T08:00`, `2027-01-15 08:00:00.123+03:00`.

/// Milliseconds since the Unix epoch.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let days = days(date)?;
    let in_day = time.map_or(Some(0), millis_of_day)?;
    days.checked_mul(86_400_000)?.checked_add(in_day)
}

fn days(date: &str) -> Option<i64> {
    let mut parts = date.split('-');
    let (year, month, day) = (digits(parts.next()?, 4)?, two(parts.next())?, two(parts.next())?);
    if parts.next().is_some() { None } else { days_of(year, month, day) }
}

/// Days since the Unix epoch; `None`: there is no such day.
pub(super) fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let longest = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if day < 1 || day > longest {
        return None;
    }
    // Years are counted from March, so that the leap day is a year's last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

/// A year alone, or a year and a month, is their first day.
fn two(part: Option<&str>) -> Option<i64> {
    part.map_or(Some(1), |part| digits(part, 2))
}

fn millis_of_day(text: &str) -> Option<i64> {
    let (time, offset) = match text.find(['Z', 'z', '+', '-']) {
        Some(at) => (text[..at].trim_end(), minutes_of_offset(&text[at..])?),
        None => (text, 0),
    };
    let mut parts = time.split(':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let (second, millis) = parts.next().map_or(Some((0, 0)), seconds)?;
    let in_range = hour < 24 && minute < 60 && second < 60 && parts.next().is_none();
    in_range.then_some(((hour * 60 + minute - offset) * 60 + second) * 1_000 + millis)
}

fn seconds(text: &str) -> Option<(i64, i64)> {
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let millis = fraction.bytes().chain("00".bytes()).take(3).fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Some((digits(whole, 2)?, millis))
}

pub(super) fn minutes_of_offset(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let rest = &text[1..];
    let (hours, minutes) = match rest.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if rest.len() == 4 && rest.is_ascii() => rest.split_at(2),
        None => (rest, "00"),
    };
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}

pub(super) fn digits(text: &str, count: usize) -> Option<i64> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::Timestamp;

    #[test]
    fn a_written_date_is_read_back() {
        for ms in [0, -1, 951_827_696_789, 1_704_067_199_999, 1_800_000_000_000, 253_402_300_799_999] {
            let written = Timestamp::from_millis(ms);
            assert_eq!(Timestamp::from_iso(&written.to_iso()), Some(written));
        }
    }

    #[test]
    fn dates_are_read_with_and_without_time_and_offset() {
        let read = |text| Timestamp::from_iso(text).map(Timestamp::as_millis);
        assert_eq!(read("1970-01-02"), Some(86_400_000));
        assert_eq!(read("1970"), Some(0));
        assert_eq!(read("1970-01-01T00:01"), Some(60_000));
        assert_eq!(read("1970-01-01 03:00:00.5+03:00"), Some(500));
        assert_eq!(read("1970-01-01T00:00:00.123456Z"), Some(123));
        assert_eq!(read("1970-01-01T00:00:01.5-0100"), Some(3_601_500));
    }

    #[test]
    fn what_is_no_date_is_not_read() {
        for text in
            ["", "x", "2024-13-01", "2023-02-29", "2024-01-01T24:00", "2024-01-01T1:00", "1733911200", "2024-01-01T00:00:00.", "я-01-01"]
        {
            assert_eq!(Timestamp::from_iso(text), None, "{text}");
        }
    }
}
