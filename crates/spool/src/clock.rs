//! Times of the wall clock, and their text.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970, by the wall clock.
pub fn now_us() -> i64 {
    us_since_1970(SystemTime::now())
}

/// Microseconds since 1970 of a time; 0 before that.
pub(crate) fn us_since_1970(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Microseconds since 1970 as RFC 3339 in UTC: `2026-11-21T12:00:00.000000Z`.
pub fn rfc3339(us: i64) -> String {
    let (days, rest) = (us.div_euclid(86_400_000_000), us.rem_euclid(86_400_000_000));
    // Howard Hinnant's civil_from_days: years begin in March, eras are 400 years.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Microseconds since 1970 of a time as [`rfc3339`] writes it.
pub(crate) fn us_of(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| {
        let digits = text.get(range)?;
        let all = digits.bytes().all(|byte| byte.is_ascii_digit());
        all.then(|| digits.parse::<i64>().ok()).flatten()
    };
    let marks: String = text
        .chars()
        .filter(|letter| !letter.is_ascii_digit())
        .collect();
    if text.len() != 27 || marks != "--T::.Z" {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    // Howard Hinnant's days_from_civil, the way back.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    let us = seconds * 1_000_000 + number(20..26)?;
    // A 31st of February does not become a day of March.
    (rfc3339(us) == text).then_some(us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_in_utc() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(rfc3339(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(
            rfc3339(4_107_542_399_999_999),
            "2100-02-28T23:59:59.999999Z"
        );
        assert_eq!(
            rfc3339(1_795_272_000_500_000),
            "2026-11-21T14:40:00.500000Z"
        );
    }

    #[test]
    fn times_are_read_as_they_were_written() {
        for us in [
            0,
            -1,
            951_782_400_000_001,
            4_107_542_399_999_999,
            1_795_272_000_500_000,
        ] {
            assert_eq!(us_of(&rfc3339(us)), Some(us));
        }
        for text in [
            "",
            "2026-11-21",
            "2026-02-31T00:00:00.000000Z",
            "2026-1é-21T14:40:00.50000Z",
        ] {
            assert_eq!(us_of(text), None, "{text}");
        }
    }
}
