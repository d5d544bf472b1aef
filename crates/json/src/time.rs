//! Times as events write them: ISO 8601, or a number since 1970 whose size determines its unit.

use crate::number::decimal;

/// A time of the calendar in nanoseconds since 1970, and whether its zone was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) nanoseconds: i128,
    pub(crate) has_zone: bool,
}

/// Reads `YYYY-MM-DD`, then nothing or `T` or a space, `HH:MM`, `:SS`, up to nine digits after `.`
/// or `,`, and `Z`, `±HH`, `±HHMM` or `±HH:MM`, up to 18 hours. Without a zone it is UTC.
pub(crate) fn timestamp(text: &str) -> Option<Time> {
    let (day, clock) = text.split_at_checked(10)?;
    let midnight = i128::from(days(day)?) * DAY * SECOND;
    let Some(clock) = clock.strip_prefix(['T', 't', ' ']) else {
        let has_zone = false;
        return clock.is_empty().then_some(Time {
            nanoseconds: midnight,
            has_zone,
        });
    };
    let zone_at = clock.find(['Z', 'z', '+', '-']).unwrap_or(clock.len());
    let (clock, zone) = clock.split_at(zone_at);
    let since_midnight = time_of_day(clock.strip_suffix(' ').unwrap_or(clock))?;
    let offset = if zone.is_empty() {
        0
    } else {
        zone_seconds(zone)?
    };
    let nanoseconds = midnight + since_midnight - i128::from(offset) * SECOND;
    (FIRST..END).contains(&nanoseconds).then_some(Time {
        nanoseconds,
        has_zone: !zone.is_empty(),
    })
}

/// Reads a number since 1970 as nanoseconds: below `1e11` it counts seconds (up to the year 5138),
/// below `1e14` milliseconds, below `1e17` microseconds, else nanoseconds.
pub(crate) fn epoch(number: &str) -> Option<i128> {
    let value = decimal(number, 38, 9)?;
    let nanoseconds = match (value / SECOND).unsigned_abs() {
        ..MILLISECONDS => value,
        MILLISECONDS..MICROSECONDS => value.div_euclid(1_000),
        MICROSECONDS..NANOSECONDS => value.div_euclid(1_000_000),
        _ => value.div_euclid(SECOND),
    };
    (FIRST..END).contains(&nanoseconds).then_some(nanoseconds)
}

/// The days of `YYYY-MM-DD` since 1970; the years are those of SQL, 1 to 9999.
pub(crate) fn days(text: &str) -> Option<i32> {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text.as_bytes() else {
        return None;
    };
    let year = number(&[y1, y2, y3, y4])?;
    let (month, day) = (number(&[m1, m2])?, number(&[d1, d2])?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1 || !(1..=length).contains(&day) {
        return None;
    }
    // Years that begin in March have their leap day at the end.
    let shifted = if month > 2 { year } else { year - 1 };
    let in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + in_year - TO_1970)
}

fn time_of_day(text: &str) -> Option<i128> {
    let (clock, fraction) = match text.split_once(['.', ',']) {
        Some((clock, fraction)) => (clock, fraction.as_bytes()),
        None => (text, [].as_slice()),
    };
    let (hours, minutes, seconds) = match *clock.as_bytes() {
        [h1, h2, b':', m1, m2] if !text.contains(['.', ',']) => ([h1, h2], [m1, m2], *b"00"),
        [h1, h2, b':', m1, m2, b':', s1, s2] => ([h1, h2], [m1, m2], [s1, s2]),
        _ => return None,
    };
    let (hours, minutes, seconds) = (number(&hours)?, number(&minutes)?, number(&seconds)?);
    if hours > 23 || minutes > 59 || seconds > 59 || fraction.len() > 9 {
        return None;
    }
    let places = 9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    let nanoseconds = i128::from(number(fraction)?) * 10_i128.pow(places);
    Some(i128::from((hours * 60 + minutes) * 60 + seconds) * SECOND + nanoseconds)
}

fn zone_seconds(text: &str) -> Option<i32> {
    let (hours, minutes) = match *text.as_bytes() {
        [b'Z' | b'z'] => return Some(0),
        [b'+' | b'-', h1, h2] => ([h1, h2], *b"00"),
        [b'+' | b'-', h1, h2, m1, m2] | [b'+' | b'-', h1, h2, b':', m1, m2] => ([h1, h2], [m1, m2]),
        _ => return None,
    };
    let (hours, minutes) = (number(&hours)?, number(&minutes)?);
    let seconds = (hours * 60 + minutes) * 60;
    if minutes > 59 || seconds > 18 * 3600 {
        return None;
    }
    Some(if text.starts_with('-') {
        -seconds
    } else {
        seconds
    })
}

/// Up to nine decimal digits.
fn number(digits: &[u8]) -> Option<i32> {
    digits.iter().try_fold(0_i32, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(i32::from(digit))
    })
}

const SECOND: i128 = 1_000_000_000;
/// The numbers from which on a time since 1970 counts these units.
const MILLISECONDS: u128 = 100_000_000_000;
const MICROSECONDS: u128 = 1_000 * MILLISECONDS;
const NANOSECONDS: u128 = 1_000 * MICROSECONDS;
const DAY: i128 = 86_400;
/// Days from 0000-03-01 to 1970-01-01.
const TO_1970: i32 = 719_468;
/// 0001-01-01 and 10000-01-01: the range of SQL's times.
const FIRST: i128 = -62_135_596_800 * SECOND;
const END: i128 = 253_402_300_800 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<i128> {
        timestamp(text).map(|time| time.nanoseconds / SECOND)
    }

    #[test]
    fn days_are_counted_from_1970() {
        let cases = [
            ("1970-01-01", Some(0)),
            ("1969-12-31", Some(-1)),
            ("2000-02-29", Some(11_016)),
            ("1900-02-29", None),
            ("2026-11-21", Some(20_778)),
            ("0001-01-01", Some(-719_162)),
            ("9999-12-31", Some(2_932_896)),
            ("0000-12-31", None),
            ("2026-13-01", None),
            ("2026-04-31", None),
            ("2026-1-1", None),
            ("2026-11-2x", None),
        ];
        for (text, expected) in cases {
            assert_eq!(days(text), expected, "{text}");
        }
    }

    #[test]
    fn times_with_and_without_zone_are_read() {
        let noon = 1_795_262_400 - 1_795_262_400 % 86_400 + 43_200;
        for text in [
            "2026-11-21T12:00:00Z",
            "2026-11-21t12:00:00z",
            "2026-11-21 12:00:00 Z",
            "2026-11-21T12:00",
            "2026-11-21T12:00:00",
            "2026-11-21T12:00:00.",
            "2026-11-21 12:00Z",
            "2026-11-21T13:30:00+01:30",
            "2026-11-21T13:30:00+0130",
            "2026-11-21T04:00:00-08",
            "2026-11-22T06:00:00+18:00",
            "2026-11-21T12:00:00,000+00:00",
        ] {
            assert_eq!(seconds(text), Some(noon), "{text}");
        }
        assert_eq!(seconds("2026-11-21"), Some(noon - 43_200));
    }

    #[test]
    fn fractions_have_up_to_nine_digits() {
        for (fraction, expected) in [
            ("", 0),
            ("1", 100_000_000),
            ("123456", 123_456_000),
            ("000000001", 1),
        ] {
            let time = timestamp(&format!("1970-01-01T00:00:00.{fraction}Z")).unwrap();
            assert_eq!(time.nanoseconds, expected);
        }
        assert_eq!(timestamp("1970-01-01T00:00:00.0000000001Z"), None);
        assert_eq!(timestamp("1970-01-01T00:00.5Z"), None);
    }

    #[test]
    fn a_text_that_is_no_time_is_none() {
        for text in [
            "",
            "now",
            "2026-11-21T",
            "2026-11-21T24:00:00Z",
            "2026-11-21T12:60:00Z",
            "2026-11-21T12:00:60Z",
            "2026-11-21T12:00:00+18:01",
            "2026-11-21T12:00:00+01:60",
            "2026-11-21T12:00:00Z ",
            "2026-11-21T12:00:00+1",
            "2026-11-21x12:00:00",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "2026-11-21T12:00:00ZZ",
            "2026-11-21T12:00:00Z0100",
            "20\u{e9}6-11-21",
            "2026-11-21T1\u{e9}:00:00",
        ] {
            assert_eq!(timestamp(text), None, "{text}");
        }
    }

    #[test]
    fn the_size_of_an_epoch_determines_its_unit() {
        for text in [
            "1795262400",
            "1795262400.0",
            "1795262400000",
            "1795262400000000",
            "1795262400000000000",
            "1.7952624e9",
            "1.7952624e12",
        ] {
            assert_eq!(epoch(text), Some(1_795_262_400 * SECOND), "{text}");
        }
        assert_eq!(epoch("-1.5"), Some(-1_500_000_000));
        assert_eq!(epoch("0"), Some(0));
        assert_eq!(
            epoch("1795262400.123456789"),
            Some(1_795_262_400_123_456_789)
        );
        assert_eq!(epoch("1e40"), None);
    }
}
