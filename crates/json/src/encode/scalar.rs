//! Single values as JSON: numbers, decimals, dates and times.

use serde::Serialize;

/// Appends a number or value in serde's form: NaN and infinities are `null`.
pub(super) fn push<T: Serialize>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value)
        .expect("a vector takes all, and the value is no map of our own");
}

/// Appends an unscaled decimal, which is `unscaled / 10^scale`.
pub(super) fn push_decimal(unscaled: &str, scale: i8, out: &mut Vec<u8>) {
    let digits = unscaled.strip_prefix('-').unwrap_or(unscaled);
    if digits.len() < unscaled.len() {
        out.push(b'-');
    }
    let Ok(places) = usize::try_from(scale) else {
        out.extend_from_slice(digits.as_bytes());
        if digits != "0" {
            out.resize(out.len() + usize::from(scale.unsigned_abs()), b'0');
        }
        return;
    };
    let whole = digits.len().saturating_sub(places);
    let (before, behind) = digits.split_at(whole);
    out.extend_from_slice(if before.is_empty() {
        b"0"
    } else {
        before.as_bytes()
    });
    if places > 0 {
        out.push(b'.');
        out.resize(out.len() + places.saturating_sub(digits.len()), b'0');
        out.extend_from_slice(behind.as_bytes());
    }
}

/// Appends `YYYY-MM-DD` in quotes. Years beyond 0 to 9999 have a sign, as ISO 8601 requires.
pub(super) fn push_date(days: i64, out: &mut Vec<u8>) {
    out.push(b'"');
    push_day(days, out);
    out.push(b'"');
}

/// Appends `YYYY-MM-DDTHH:MM:SS.ffffff` in quotes, with `Z` if the time is in UTC.
pub(super) fn push_timestamp(time: i64, unit: Unit, is_utc: bool, out: &mut Vec<u8>) {
    let day = unit.per_second * 86_400;
    out.push(b'"');
    push_day(time.div_euclid(day), out);
    out.push(b'T');
    push_clock(time.rem_euclid(day), unit, out);
    if is_utc {
        out.push(b'Z');
    }
    out.push(b'"');
}

/// Appends `HH:MM:SS.ffffff` in quotes.
pub(super) fn push_time_of_day(time: i64, unit: Unit, out: &mut Vec<u8>) {
    out.push(b'"');
    push_clock(time, unit, out);
    out.push(b'"');
}

/// Appends `PTs.ffffffS` in quotes, the sign in front of the number.
pub(super) fn push_duration(time: i64, unit: Unit, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"PT");
    if time < 0 {
        out.push(b'-');
    }
    let time = time.unsigned_abs();
    let per_second = unit.per_second.unsigned_abs();
    push(&(time / per_second), out);
    push_fraction(time % per_second, unit, out);
    out.extend_from_slice(b"S\"");
}

/// Appends `PnM` in quotes.
pub(super) fn push_months(months: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"P");
    push(&months, out);
    out.extend_from_slice(b"M\"");
}

/// The unit of a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unit {
    per_second: i64,
}

impl Unit {
    pub(super) const fn of(unit: arrow_schema::TimeUnit) -> Self {
        use arrow_schema::TimeUnit;
        let per_second = match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        Self { per_second }
    }
}

/// Days since 1970-01-01 as a date of the Gregorian calendar, which is extended to all times.
///
/// Years begin in March here, so that the leap day is their last.
fn push_day(days: i64, out: &mut Vec<u8>) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, passed) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    push_year(era * 400 + year + passed, out);
    out.push(b'-');
    push_two(month, out);
    out.push(b'-');
    push_two(day_of_month, out);
}

fn push_year(year: i64, out: &mut Vec<u8>) {
    if !(0..=9999).contains(&year) {
        out.push(if year < 0 { b'-' } else { b'+' });
    }
    let year = year.abs();
    if year > 9999 {
        push(&(year / 10_000), out);
    }
    push_two(year / 100 % 100, out);
    push_two(year % 100, out);
}

fn push_clock(time: i64, unit: Unit, out: &mut Vec<u8>) {
    let seconds = time / unit.per_second;
    push_two(seconds / 3_600, out);
    out.push(b':');
    push_two(seconds / 60 % 60, out);
    out.push(b':');
    push_two(seconds % 60, out);
    push_fraction((time % unit.per_second).unsigned_abs(), unit, out);
}

/// Six digits; nine if six would lose precision.
fn push_fraction(fraction: u64, unit: Unit, out: &mut Vec<u8>) {
    let nanoseconds = fraction * (1_000_000_000 / unit.per_second.unsigned_abs());
    let (mut value, digits) = match nanoseconds % 1_000 {
        0 => (nanoseconds / 1_000, 6),
        _ => (nanoseconds, 9),
    };
    out.push(b'.');
    let start = out.len();
    out.resize(start + digits, b'0');
    for place in out[start..].iter_mut().rev() {
        *place = digit(value % 10);
        value /= 10;
    }
}

fn push_two(value: i64, out: &mut Vec<u8>) {
    let value = value.unsigned_abs();
    out.extend_from_slice(&[digit(value / 10 % 10), digit(value % 10)]);
}

fn digit(value: u64) -> u8 {
    b'0' + u8::try_from(value).unwrap_or_default()
}
