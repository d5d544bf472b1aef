//! Typed values of properties (REQ-MM-34, R-MM-10, R-MM-30): a letter for the type and the value as text. A value without
//! a type, or of another form than its type has, is text as a whole.

use std::cmp::Ordering;
use std::fmt::Write as _;

use ackline_core::UsageError;

use super::percent::{self, EscapedText};
use crate::refusal;

/// A number of a property.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A number without a decimal point.
    Whole(i64),
    /// A number with a decimal point; finite.
    Fraction(f64),
}

impl Number {
    /// Compares by value and exactly, also a whole number with a fraction. Nothing if one of them is not a number.
    pub fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => Some(one.cmp(&other)),
            (Self::Fraction(one), Self::Fraction(other)) => one.partial_cmp(&other),
            (Self::Whole(one), Self::Fraction(other)) => compare_mixed(one, other),
            (Self::Fraction(one), Self::Whole(other)) => {
                compare_mixed(other, one).map(Ordering::reverse)
            }
        }
    }

    /// Reads `-?[0-9]+` within i64, or `-?[0-9]+\.[0-9]+` (R-MM-V9).
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        if let Some(whole) = read_whole(text) {
            return Some(Self::Whole(whole));
        }
        let has_point = text.contains(&b'.');
        has_point.then(|| read_decimal(text).map(Self::Fraction))?
    }
}

/// A value of a property.
#[derive(Debug, Clone, PartialEq)]
pub enum Property {
    /// A number.
    Number(Number),
    /// Seconds since 1970-01-01 00:00 UTC; finite.
    Date(f64),
    /// A text.
    Text(String),
}

impl Property {
    /// Appends the value with the letter of its type (R-MM-10).
    ///
    /// # Errors
    /// `not_finite`.
    pub(crate) fn write(&self, out: &mut String) -> Result<(), UsageError> {
        match self {
            Self::Number(Number::Whole(number)) => {
                // Writing to a String does not fail.
                let _ = write!(out, "N{number}");
            }
            Self::Number(Number::Fraction(number)) => write_fraction(out, 'N', *number)?,
            Self::Date(seconds) => write_fraction(out, 'D', *seconds)?,
            Self::Text(text) => {
                out.push('T');
                percent::encode(out, text);
            }
        }
        Ok(())
    }
}

/// A value of a property, within the bytes of its message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PropertyRef<'a> {
    /// A number.
    Number(Number),
    /// Seconds since 1970-01-01 00:00 UTC; finite.
    Date(f64),
    /// A text.
    Text(EscapedText<'a>),
}

impl<'a> PropertyRef<'a> {
    /// Reads a value, or nothing if a text has bad escapes.
    pub(crate) fn read(raw: &'a [u8]) -> Option<Self> {
        EscapedText::read(raw).map(Self::from)
    }
}

impl<'a> From<EscapedText<'a>> for PropertyRef<'a> {
    /// Reads the type in front of a value.
    fn from(value: EscapedText<'a>) -> Self {
        if let Some(number) = read_number(value) {
            return Self::Number(number);
        }
        if let Some(seconds) = read_date(value) {
            return Self::Date(seconds);
        }
        Self::Text(value.strip_letter(b'T').unwrap_or(value))
    }
}

/// Reads a value as a number. Nothing if it has another type.
pub(crate) fn read_number(value: EscapedText<'_>) -> Option<Number> {
    value.raw().strip_prefix(b"N").and_then(Number::read)
}

/// Reads a value as a date, in seconds. Nothing if it has another type.
pub(crate) fn read_date(value: EscapedText<'_>) -> Option<f64> {
    value.raw().strip_prefix(b"D").and_then(read_decimal)
}

/// Reads a value as a text: the part behind its letter, or the whole value without a type. Nothing if it has another type.
pub(crate) fn read_text(value: EscapedText<'_>) -> Option<EscapedText<'_>> {
    if let Some(text) = value.strip_letter(b'T') {
        return Some(text);
    }
    let has_type = read_number(value).is_some() || read_date(value).is_some();
    (!has_type).then_some(value)
}

impl From<PropertyRef<'_>> for Property {
    fn from(value: PropertyRef<'_>) -> Self {
        match value {
            PropertyRef::Number(number) => Self::Number(number),
            PropertyRef::Date(seconds) => Self::Date(seconds),
            PropertyRef::Text(text) => Self::Text(text.to_string_lossy().into_owned()),
        }
    }
}

/// Compares a whole number with a fraction. Converting the whole number to a fraction would lose digits.
fn compare_mixed(whole: i64, fraction: f64) -> Option<Ordering> {
    if fraction.is_nan() {
        return None;
    }
    if fraction >= ABOVE_I64 {
        return Some(Ordering::Less);
    }
    if fraction < -ABOVE_I64 {
        return Some(Ordering::Greater);
    }
    // The part before the point is within i64 here, and `as` is exact.
    #[allow(clippy::as_conversions, clippy::cast_possible_truncation)]
    let before_point = fraction.trunc() as i64;
    let behind_point = 0.0_f64.partial_cmp(&fraction.fract());
    behind_point.map(|behind| whole.cmp(&before_point).then(behind))
}

/// Reads `-?[0-9]+` within i64.
fn read_whole(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-");
    let is_negative = digits.is_some();
    let digits = digits.unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    let mut negated = 0_i64;
    for byte in digits {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        // The negative numbers reach further than the positive ones.
        negated = negated.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if is_negative {
        Some(negated)
    } else {
        negated.checked_neg()
    }
}

/// Reads `-?[0-9]+(\.[0-9]+)?` as a finite number.
fn read_decimal(text: &[u8]) -> Option<f64> {
    let mut parts = text
        .strip_prefix(b"-")
        .unwrap_or(text)
        .splitn(2, |byte| *byte == b'.');
    let are_digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if !parts.all(are_digits) {
        return None;
    }
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

/// Appends a fraction: the fewest digits, with at least one behind the point, and no exponent (R-MM-V9). A large number
/// without a point would be read as text.
fn write_fraction(out: &mut String, letter: char, number: f64) -> Result<(), UsageError> {
    if !number.is_finite() {
        return Err(refusal::NOT_FINITE);
    }
    out.push(letter);
    let start = out.len();
    let _ = write!(out, "{number}");
    let has_point = out.get(start..).is_some_and(|digits| digits.contains('.'));
    if !has_point {
        out.push_str(".0");
    }
    Ok(())
}

/// 2^63, the first number above i64.
const ABOVE_I64: f64 = 9_223_372_036_854_775_808.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(raw: &str) -> Option<Property> {
        PropertyRef::read(raw.as_bytes()).map(Property::from)
    }

    fn whole(number: i64) -> Property {
        Property::Number(Number::Whole(number))
    }

    fn fraction(number: f64) -> Property {
        Property::Number(Number::Fraction(number))
    }

    fn text(text: &str) -> Property {
        Property::Text(text.to_owned())
    }

    #[test]
    fn numbers_within_i64_are_whole_and_those_with_a_point_are_fractions() {
        for (raw, value) in [
            ("N0", whole(0)),
            ("N-0", whole(0)),
            ("N007", whole(7)),
            ("N-9223372036854775808", whole(i64::MIN)),
            ("N9223372036854775807", whole(i64::MAX)),
            ("N1.5", fraction(1.5)),
            ("N-00.25", fraction(-0.25)),
            ("N1.0", fraction(1.0)),
            (
                "N9223372036854775808.0",
                fraction(9_223_372_036_854_775_808.0),
            ),
        ] {
            assert_eq!(read(raw), Some(value), "{raw}");
        }
    }

    #[test]
    fn dates_have_a_fraction_or_none() {
        for (raw, seconds) in [
            ("D1413198000.0", 1_413_198_000.0),
            ("D12", 12.0),
            ("D-0.5", -0.5),
        ] {
            assert_eq!(read(raw), Some(Property::Date(seconds)), "{raw}");
        }
    }

    #[test]
    fn any_other_form_is_text_as_a_whole() {
        for raw in [
            "N",
            "Nine",
            "N+5",
            "N1e3",
            "N.5",
            "Ninf",
            "N5.",
            "NaN",
            "N-",
            "N--1",
            "N1.2.3",
            "N 1",
            "N1 ",
            "N9223372036854775808",
            "N-9223372036854775809",
            "D",
            "Dog",
            "D1.",
            "D.1",
            "D1e3",
            "D1.2.3",
            "D+1",
            "jonas",
            "",
            "n1",
            "d1",
            "t1",
            "N1:2",
        ] {
            assert_eq!(read(raw), Some(text(raw)), "{raw}");
        }
        let huge = format!("N{}.0", "9".repeat(400));
        assert_eq!(read(&huge), Some(text(&huge)));
    }

    #[test]
    fn texts_are_decoded_behind_their_letter_and_bad_escapes_cannot_be_read() {
        assert_eq!(read("THello%20%22world%22"), Some(text("Hello \"world\"")));
        assert_eq!(read("T"), Some(text("")));
        assert_eq!(read("TN1"), Some(text("N1")));
        assert_eq!(read("a%20b"), Some(text("a b")));
        // The type is judged before escapes.
        assert_eq!(read("N%31"), Some(text("N1")));
        assert_eq!(read("%541"), Some(text("T1")));
        for raw in ["T%", "%4", "N1%", "D%zz", "T%FF", "Té"] {
            assert_eq!(read(raw), None, "{raw}");
        }
    }

    #[test]
    fn values_are_written_with_their_fewest_digits_and_without_exponent() {
        let written = |value: Property| {
            let mut out = String::new();
            value.write(&mut out).map(|()| out)
        };
        for (value, raw) in [
            (whole(-5), "N-5"),
            (whole(i64::MIN), "N-9223372036854775808"),
            (fraction(1.5), "N1.5"),
            (fraction(2.0), "N2.0"),
            (fraction(0.1), "N0.1"),
            (fraction(1e21), "N1000000000000000000000.0"),
            (fraction(1e-7), "N0.0000001"),
            (Property::Date(1_413_198_000.0), "D1413198000.0"),
            (Property::Date(-0.25), "D-0.25"),
            (text("N1 ~å"), "TN1%20~%C3%A5"),
            (text(""), "T"),
        ] {
            assert_eq!(written(value).as_deref(), Ok(raw));
        }
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(written(fraction(number)), Err(refusal::NOT_FINITE));
            assert_eq!(written(Property::Date(number)), Err(refusal::NOT_FINITE));
        }
    }

    #[test]
    fn a_whole_number_is_compared_with_a_fraction_exactly() {
        use Ordering::{Equal, Greater, Less};
        for (one, other, order) in [
            (20, 20.0, Equal),
            (20, 19.5, Greater),
            (20, 20.5, Less),
            (-1, -1.5, Greater),
            (-2, -1.5, Less),
            (0, -0.0, Equal),
            (0, -0.5, Greater),
            (0, 1e-300, Less),
            // The next fractions below and above 2^53 + 1.
            (9_007_199_254_740_993, 9_007_199_254_740_992.0, Greater),
            (9_007_199_254_740_993, 9_007_199_254_740_994.0, Less),
            (i64::MAX, 9_223_372_036_854_775_808.0, Less),
            (i64::MAX, 9_223_372_036_854_774_784.0, Greater),
            (i64::MIN, -9_223_372_036_854_775_808.0, Equal),
            (i64::MIN, -9_223_372_036_854_777_856.0, Greater),
            (i64::MAX, 1e300, Less),
            (i64::MIN, -1e300, Greater),
        ] {
            let (one, other) = (Number::Whole(one), Number::Fraction(other));
            assert_eq!(one.compare(other), Some(order), "{one:?} {other:?}");
            assert_eq!(
                other.compare(one),
                Some(order.reverse()),
                "{one:?} {other:?}"
            );
        }
        let not_a_number = Number::Fraction(f64::NAN);
        assert_eq!(Number::Whole(0).compare(not_a_number), None);
        assert_eq!(not_a_number.compare(Number::Whole(0)), None);
    }

    fn finite() -> impl Strategy<Value = f64> {
        let any_bits = any::<u64>().prop_map(f64::from_bits);
        any_bits.prop_filter("finite", |number| number.is_finite())
    }

    proptest! {
        #[test]
        fn a_written_value_is_read_again(value in prop_oneof![
            any::<i64>().prop_map(|number| Property::Number(Number::Whole(number))),
            finite().prop_map(|number| Property::Number(Number::Fraction(number))),
            finite().prop_map(Property::Date),
            any::<String>().prop_map(Property::Text),
        ]) {
            let mut raw = String::new();
            value.write(&mut raw).unwrap();
            prop_assert!(raw.is_ascii());
            prop_assert_eq!(PropertyRef::read(raw.as_bytes()).map(Property::from), Some(value));
        }

        #[test]
        fn mixed_comparison_is_that_of_scaled_integers(whole in -50_i32..50, quarters in -200_i32..200) {
            let one = Number::Whole(i64::from(whole));
            let other = Number::Fraction(f64::from(quarters) / 4.0);
            prop_assert_eq!(one.compare(other), Some(whole.saturating_mul(4).cmp(&quarters)));
        }

        #[test]
        #[allow(clippy::as_conversions, clippy::cast_possible_truncation, clippy::cast_precision_loss)] // wanted
        fn mixed_comparison_of_large_numbers_is_that_of_128_bits(whole in any::<i64>(), near in -4096_i64..4096) {
            let fraction = whole.saturating_add(near) as f64;
            let order = i128::from(whole).cmp(&(fraction as i128));
            prop_assert_eq!(Number::Whole(whole).compare(Number::Fraction(fraction)), Some(order));
        }

        #[test]
        fn whole_numbers_are_those_of_the_standard_library(raw in "-?[0-9]{0,20}") {
            prop_assert_eq!(read_whole(raw.as_bytes()), raw.parse().ok());
        }
    }
}
