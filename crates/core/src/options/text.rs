//! Sizes and times as people write them: one grammar for the command line, URLs and Spark.

use std::time::Duration;

/// Bytes of a size such as `4GiB`, `1.5 MiB`, `10MB` or `65536`; `None` for other text, or for more than fits.
pub fn size(text: &str) -> Option<u64> {
    let number = Number::of(text)?;
    let unit: u128 = match number.unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        "T" | "TIB" => 1 << 40,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    u64::try_from(number.times(unit)?).ok()
}

/// The time of a text such as `10s`, `500ms`, `15m` or `7d`; a number alone is in seconds. `None` for other text.
pub fn time_in(text: &str) -> Option<Duration> {
    let number = Number::of(text)?;
    let unit: u128 = match number.unit {
        "ms" => 1_000_000,
        "s" | "" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    let nanos = u64::try_from(number.times(unit)?).ok()?;
    Some(Duration::from_nanos(nanos))
}

/// A size with the largest unit that shows it whole.
pub fn shown_bytes(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fits = |(_, shift): &&(&str, u32)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    match UNITS.iter().find(fits) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// A time with the largest unit that shows it whole.
pub fn shown_time(time: Duration) -> String {
    const UNITS: [(&str, u128); 5] = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let millis = time.as_millis();
    let fits = |(_, unit): &&(&str, u128)| millis > 0 && millis.checked_rem(*unit) == Some(0);
    match UNITS.iter().find(fits) {
        Some((unit, each)) => format!("{}{unit}", millis.checked_div(*each).unwrap_or_default()),
        None => "0s".to_owned(),
    }
}

/// A number with a fraction, and the unit behind it.
struct Number<'a> {
    whole: u128,
    fraction: u128,
    /// The divisor of the fraction.
    scale: u128,
    unit: &'a str,
}

impl<'a> Number<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let end = |text: &str| {
            let is_digit = |byte: &u8| byte.is_ascii_digit();
            text.bytes().take_while(is_digit).count()
        };
        let (whole, rest) = text.split_at_checked(end(text))?;
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => rest
                .split_at_checked(end(rest))
                .filter(|(some, _)| !some.is_empty())?,
            None => ("", rest),
        };
        // Finer than a nanosecond of a day or a byte of a tebibyte, which the text may say and nobody can mean.
        let fraction = fraction.get(..fraction.len().min(MOST_DIGITS))?;
        let digits = u32::try_from(fraction.len()).ok()?;
        Some(Self {
            whole: whole.parse().ok()?,
            fraction: if fraction.is_empty() {
                0
            } else {
                fraction.parse().ok()?
            },
            scale: 10_u128.checked_pow(digits)?,
            unit: rest.trim_start(),
        })
    }

    /// So many units, rounded down.
    fn times(&self, unit: u128) -> Option<u128> {
        let part = self.fraction.checked_mul(unit)?.checked_div(self.scale)?;
        self.whole.checked_mul(unit)?.checked_add(part)
    }
}

const MOST_DIGITS: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_fractions() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65_536),
            ("1.5 MiB", 3 << 19),
            ("10MB", 10_000_000),
            ("1KB", 1_000),
            ("2gb", 2_000_000_000),
            ("1TB", 1_000_000_000_000),
            ("3KiB", 3 << 10),
            ("1TiB", 1 << 40),
            ("4gib", 4 << 30),
            (" 7k ", 7 << 10),
            ("0.1KiB", 102),
        ] {
            assert_eq!(size(text), Some(bytes), "{text:?}");
        }
        for text in [
            "",
            "x",
            "1.",
            ".5",
            "-1",
            "1 PiB",
            "1e3",
            "1MiBs",
            "99999999TiB",
            "²",
        ] {
            assert_eq!(size(text), None, "{text:?}");
        }
    }

    #[test]
    fn times_have_units_and_fractions() {
        for (text, millis) in [
            ("10s", 10_000),
            ("500ms", 500),
            ("15m", 900_000),
            ("15min", 900_000),
            ("2d", 172_800_000),
            ("2", 2_000),
            ("1.5h", 5_400_000),
        ] {
            assert_eq!(
                time_in(text),
                Some(Duration::from_millis(millis)),
                "{text:?}"
            );
        }
        for text in ["", "off", "5 S", "5x", "-1s", "99999999999d"] {
            assert_eq!(time_in(text), None, "{text:?}");
        }
    }

    #[test]
    fn values_are_shown_as_they_can_be_written() {
        for bytes in [0, 1, 1_000, 1 << 10, 3 << 20, 1 << 30, (1 << 30) + 1] {
            assert_eq!(size(&shown_bytes(bytes)), Some(bytes));
        }
        for millis in [0, 1, 1_000, 61_000, 3_600_000, 86_400_000] {
            let time = Duration::from_millis(millis);
            assert_eq!(time_in(&shown_time(time)), Some(time));
        }
        assert_eq!(
            (
                shown_bytes(16 << 20).as_str(),
                shown_time(Duration::from_secs(300)).as_str()
            ),
            ("16MiB", "5m")
        );
    }
}
