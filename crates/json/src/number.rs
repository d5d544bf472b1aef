//! Numbers of JSON as decimals of a fixed scale: exact, however long they are written.

/// A number as JSON writes it, times `10^scale`, as a whole number of at most `precision` digits.
///
/// Digits beyond the scale are rounded half away from zero, as Spark does. `None` if it has more digits.
pub(crate) fn decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, power(exponent)),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || {
        whole
            .bytes()
            .chain(fraction.bytes())
            .skip_while(|digit| *digit == b'0')
    };
    let count = i64::try_from(digits().count()).ok()?;
    if count == 0 {
        return Some(0);
    }
    let shift = exponent
        .saturating_add(i64::from(scale))
        .saturating_sub_unsigned(fraction.len() as u64);
    let wanted = count.saturating_add(shift);
    if wanted > i64::from(precision) {
        return None;
    }
    let mut value = 0_i128;
    let padded = digits().chain(std::iter::repeat(b'0'));
    for digit in padded.clone().take(usize::try_from(wanted).unwrap_or(0)) {
        value = value * 10 + i128::from(digit.wrapping_sub(b'0'));
    }
    let next = usize::try_from(wanted)
        .ok()
        .and_then(|at| padded.clone().nth(at));
    if next.is_some_and(|digit| digit >= b'5') {
        value += 1;
    }
    let fits = value < 10_i128.checked_pow(u32::from(precision))?;
    fits.then_some(if negative { -value } else { value })
}

/// An exponent; one beyond all others if it does not fit.
fn power(text: &str) -> i64 {
    let beyond = if text.starts_with('-') { -FAR } else { FAR };
    text.parse()
        .map_or(beyond, |power: i64| power.clamp(-FAR, FAR))
}

/// The value of Spark's names for floating-point values that JSON has no number for; `None` for
/// other texts.
pub(crate) fn special(text: &str) -> Option<f64> {
    Some(match text {
        "NaN" => f64::NAN,
        "Infinity" | "+Infinity" | "INF" | "+INF" => f64::INFINITY,
        "-Infinity" | "-INF" => f64::NEG_INFINITY,
        _ => return None,
    })
}

/// More digits than an event has bytes.
const FAR: i64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_and_rounded_half_up() {
        let cases = [
            ("0", 5, 2, Some(0)),
            ("-0.000e5", 5, 2, Some(0)),
            ("1", 5, 2, Some(100)),
            ("-12.345", 5, 2, Some(-1235)),
            ("12.344999999999999999999999", 5, 2, Some(1234)),
            ("999.994", 5, 2, Some(99_999)),
            ("999.995", 5, 2, None),
            ("1000", 5, 2, None),
            ("1e2", 5, 2, Some(10_000)),
            ("12345e-4", 5, 2, Some(123)),
            ("5e-3", 5, 2, Some(1)),
            ("4e-3", 5, 2, Some(0)),
            ("5e-4", 5, 2, Some(0)),
            ("0.00000000000000000001e20", 5, 2, Some(100)),
            ("1e999999999999999999999", 38, 0, None),
            ("1e-999999999999999999999", 38, 0, Some(0)),
            ("0e999999999999999999999", 38, 0, Some(0)),
            (
                "99999999999999999999999999999999999999",
                38,
                0,
                Some(10_i128.pow(38) - 1),
            ),
            ("99999999999999999999999999999999999999.5", 38, 0, None),
            ("1234", 5, -2, Some(12)),
        ];
        for (text, precision, scale, expected) in cases {
            assert_eq!(decimal(text, precision, scale), expected, "{text}");
        }
    }
}
