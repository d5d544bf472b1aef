//! The types that options have: how each is read and shown.

use std::path::PathBuf;
use std::time::Duration;

use super::text::{shown_bytes, shown_time, size, time_in};
use super::{OptionError, OptionKind, OptionSpec, OptionValue};

/// A type of options.
pub trait OptionType: Sized {
    /// Whether it has a value for off.
    const OFF: bool = false;

    /// The value of an option that was given `value`.
    ///
    /// # Errors
    /// It does not fit.
    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError>;

    /// Itself, as a command line has it.
    fn shown(&self, kind: &OptionKind) -> String;

    /// Refuses a value outside the option's range.
    ///
    /// # Errors
    /// It is outside.
    fn check(&self, _spec: &OptionSpec) -> Result<(), OptionError> {
        Ok(())
    }
}

/// The error that names the values which the option takes.
pub fn wrong(spec: &OptionSpec, value: &OptionValue) -> OptionError {
    let expected = expected(spec, value);
    let is_number = matches!(
        spec.kind,
        OptionKind::Count { .. } | OptionKind::Bytes { .. } | OptionKind::Time { .. }
    );
    let off = if spec.off && is_number {
        ", or off"
    } else {
        ""
    };
    OptionError::new(spec.name, format!("is {value}; it is {expected}{off}"))
}

fn expected(spec: &OptionSpec, value: &OptionValue) -> String {
    let is_text = matches!(value, OptionValue::Text(_));
    match spec.kind {
        OptionKind::Bytes { least, most, .. } if most == u64::MAX && least > 1 => {
            format!("at least {least} bytes ({})", shown_bytes(least))
        }
        OptionKind::Bytes { most, .. } if is_text => {
            let below = match most {
                u64::MAX => String::new(),
                most => format!(", at most {}", shown_bytes(most)),
            };
            format!("a size such as 65536 or 256MiB{below}")
        }
        OptionKind::Count {
            least,
            most,
            zero_is_off,
        }
        | OptionKind::Bytes {
            least,
            most,
            zero_is_off,
        } => {
            let least = if zero_is_off { 0 } else { least };
            format!("a whole number from {least} to {most}")
        }
        OptionKind::Time { least } => {
            let form = if is_text {
                "a time such as 10s, 500ms, 15m or 7d"
            } else {
                "a number of seconds"
            };
            match least {
                Duration::ZERO => form.to_owned(),
                least => format!("{form}, at least {}", shown_time(least)),
            }
        }
        OptionKind::Flag => "true or false".to_owned(),
        OptionKind::Fraction => "a part above 0 and up to 1".to_owned(),
        OptionKind::Word(words) => quoted(words),
        OptionKind::Text { form } => form.to_owned(),
        OptionKind::Path => "a path that is not empty".to_owned(),
    }
}

/// The words in quotes, the last behind an "or".
fn quoted(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The number of a count or size within its range; `None` is off.
fn number(spec: &OptionSpec, value: &OptionValue) -> Result<Option<u64>, OptionError> {
    let (OptionKind::Count {
        least,
        most,
        zero_is_off,
    }
    | OptionKind::Bytes {
        least,
        most,
        zero_is_off,
    }) = spec.kind
    else {
        return Err(wrong(spec, value));
    };
    let is_size = matches!(spec.kind, OptionKind::Bytes { .. });
    let number = match value {
        OptionValue::Off => return Ok(None),
        OptionValue::Text(text) if text == "off" => return Ok(None),
        OptionValue::Whole(number) => Some(*number),
        OptionValue::Text(text) if is_size => size(text),
        OptionValue::Text(text) => text.parse().ok(),
        _ => None,
    };
    match number {
        Some(0) if zero_is_off => Ok(None),
        Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
        _ => Err(wrong(spec, value)),
    }
}

/// The time of an option; `None` is off.
fn duration(spec: &OptionSpec, value: &OptionValue) -> Result<Option<Duration>, OptionError> {
    let OptionKind::Time { least } = spec.kind else {
        return Err(wrong(spec, value));
    };
    let time = match value {
        OptionValue::Off => return Ok(None),
        OptionValue::Text(text) if text == "off" => return Ok(None),
        OptionValue::Text(text) => time_in(text),
        OptionValue::Whole(seconds) => Some(Duration::from_secs(*seconds)),
        OptionValue::Real(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
        _ => None,
    };
    let time = time.filter(|time| (least..=LONGEST).contains(time));
    time.map(Some).ok_or_else(|| wrong(spec, value))
}

/// The longest time that fits 64 bits of nanoseconds: 584 years.
const LONGEST: Duration = Duration::from_nanos(u64::MAX);

fn shown_number(number: u64, kind: &OptionKind) -> String {
    match kind {
        OptionKind::Bytes { .. } => shown_bytes(number),
        _ => number.to_string(),
    }
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl OptionType for $type {
            fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
                let number = number(spec, value)?.and_then(|number| Self::try_from(number).ok());
                number.ok_or_else(|| wrong(spec, value))
            }

            fn shown(&self, kind: &OptionKind) -> String {
                shown_number(u64::try_from(*self).unwrap_or(u64::MAX), kind)
            }

            fn check(&self, spec: &OptionSpec) -> Result<(), OptionError> {
                let value = OptionValue::Whole(u64::try_from(*self).unwrap_or(u64::MAX));
                Self::read(spec, &value).map(drop)
            }
        }

        impl OptionType for Option<$type> {
            const OFF: bool = true;

            fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
                let fits = |number| <$type>::try_from(number).map_err(|_| wrong(spec, value));
                number(spec, value)?.map(fits).transpose()
            }

            fn shown(&self, kind: &OptionKind) -> String {
                self.map_or_else(|| "off".to_owned(), |number| number.shown(kind))
            }

            fn check(&self, spec: &OptionSpec) -> Result<(), OptionError> {
                self.map_or(Ok(()), |number| number.check(spec))
            }
        }
    )+};
}

numbers!(u8, u32, u64, usize);

impl OptionType for Duration {
    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        duration(spec, value)?.ok_or_else(|| wrong(spec, value))
    }

    fn shown(&self, _: &OptionKind) -> String {
        shown_time(*self)
    }

    fn check(&self, spec: &OptionSpec) -> Result<(), OptionError> {
        match spec.kind {
            OptionKind::Time { least } if *self < least => {
                Err(wrong(spec, &OptionValue::Other(format!("{self:?}"))))
            }
            _ => Ok(()),
        }
    }
}

impl OptionType for Option<Duration> {
    const OFF: bool = true;

    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        duration(spec, value)
    }

    fn shown(&self, _: &OptionKind) -> String {
        self.map_or_else(|| "off".to_owned(), shown_time)
    }

    fn check(&self, spec: &OptionSpec) -> Result<(), OptionError> {
        self.map_or(Ok(()), |time| time.check(spec))
    }
}

impl OptionType for bool {
    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        match value {
            OptionValue::Flag(flag) => Ok(*flag),
            OptionValue::Text(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            OptionValue::Text(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err(wrong(spec, value)),
        }
    }

    fn shown(&self, _: &OptionKind) -> String {
        self.to_string()
    }
}

impl OptionType for f64 {
    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        let part = match value {
            OptionValue::Real(part) => Some(*part),
            OptionValue::Whole(1) => Some(1.0),
            OptionValue::Text(text) => text.parse().ok(),
            _ => None,
        };
        let part = part.filter(|part| *part > 0.0 && *part <= 1.0);
        part.ok_or_else(|| wrong(spec, value))
    }

    fn shown(&self, _: &OptionKind) -> String {
        self.to_string()
    }
}

impl OptionType for Option<PathBuf> {
    const OFF: bool = true;

    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        let text = Option::<String>::read(spec, value)?;
        Ok(text.map(PathBuf::from))
    }

    fn shown(&self, _: &OptionKind) -> String {
        let shown = self.as_ref().map(|path| path.display().to_string());
        shown.unwrap_or_default()
    }
}

impl OptionType for Option<String> {
    const OFF: bool = true;

    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        match value {
            OptionValue::Off => Ok(None),
            OptionValue::Text(text) if !text.is_empty() => Ok(Some(text.clone())),
            OptionValue::Text(_) => Err(OptionError::new(spec.name, "is empty")),
            _ => Err(wrong(spec, value)),
        }
    }

    fn shown(&self, _: &OptionKind) -> String {
        self.clone().unwrap_or_default()
    }
}

/// An enum whose values are words.
pub trait OptionWord: Copy + 'static {
    /// The words, in the order of [`VALUES`](Self::VALUES).
    const WORDS: &'static [&'static str];
    /// The values.
    const VALUES: &'static [Self];

    /// Whether both are the same value.
    fn is(self, other: Self) -> bool;

    /// The value of a word.
    fn of(word: &str) -> Option<Self> {
        let mut all = Self::WORDS.iter().zip(Self::VALUES);
        all.find(|(one, _)| **one == word).map(|(_, value)| *value)
    }
}

impl<T: OptionWord> OptionType for T {
    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        let OptionValue::Text(text) = value else {
            return Err(wrong(spec, value));
        };
        T::of(text).ok_or_else(|| wrong(spec, value))
    }

    fn shown(&self, _: &OptionKind) -> String {
        let mut words = T::WORDS.iter().zip(T::VALUES);
        let found = words.find(|(_, value)| value.is(*self));
        found
            .map(|(word, _)| (*word).to_owned())
            .unwrap_or_default()
    }
}

impl<T: OptionWord> OptionType for Option<T> {
    const OFF: bool = true;

    fn read(spec: &OptionSpec, value: &OptionValue) -> Result<Self, OptionError> {
        match value {
            OptionValue::Off => Ok(None),
            value => T::read(spec, value).map(Some),
        }
    }

    fn shown(&self, kind: &OptionKind) -> String {
        self.as_ref()
            .map(|word| word.shown(kind))
            .unwrap_or_default()
    }
}

/// Makes an enum an [`OptionWord`](crate::options::OptionWord): one word for each of its values.
#[macro_export]
macro_rules! option_words {
    ($name:ident { $($value:ident = $word:literal),+ $(,)? }) => {
        impl $crate::options::OptionWord for $name {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const VALUES: &'static [Self] = &[$(Self::$value),+];

            fn is(self, other: Self) -> bool {
                self == other
            }
        }
    };
}

#[cfg(test)]
mod tests {
    // The table's macro makes items for other crates.
    #![allow(unreachable_pub)]

    use std::time::Duration;

    use super::super::{OptionValue, Options as _, Uses, bytes, count, time};

    crate::options! {
        /// Options with ranges.
        struct Ranged {
            options {
                /// A count.
                count: u32 = 5, count(3..=9), LISTEN;
                /// A count that 0 switches off.
                rate: Option<u64> = Some(5), count(3..=9).or_zero(), LISTEN;
                /// A size.
                size: u64 = 4_096, bytes(1_024..=8_192), LISTEN;
                /// A time.
                wait: Duration = Duration::from_secs(1), time(), LISTEN;
                /// A time that may be 0.
                delay: Duration = Duration::from_secs(1), time().or_zero(), LISTEN;
            }
        }
    }

    fn set(name: &str, value: &OptionValue) -> Result<Ranged, String> {
        let mut options = Ranged::default();
        let is_set = options.set(Uses::LISTEN, name, value);
        assert!(is_set.map_err(|error| error.to_string())?);
        Ok(options)
    }

    #[test]
    fn the_ends_of_a_range_are_taken_and_what_is_beyond_is_refused() {
        let whole = |name, number| set(name, &OptionValue::Whole(number));
        for (name, inside, outside) in [
            ("count", [3, 9], [2, 10]),
            ("rate", [3, 9], [2, 10]),
            ("size", [1_024, 8_192], [1_023, 8_193]),
        ] {
            for number in inside {
                assert!(whole(name, number).is_ok(), "{name} {number}");
            }
            for number in outside {
                let error = whole(name, number).err().unwrap();
                assert!(
                    error.starts_with(&format!("{name} is {number}; ")),
                    "{error}"
                );
            }
        }
        let text = |name, text: &str| set(name, &OptionValue::Text(text.to_owned()));
        assert_eq!(text("wait", "1ms").unwrap().wait, Duration::from_millis(1));
        assert!(text("wait", "0.9ms").is_err() && text("wait", "0").is_err());
        assert_eq!(text("delay", "0").unwrap().delay, Duration::ZERO);
    }

    #[test]
    fn zero_and_off_switch_off_what_can_be_switched_off() {
        for value in [
            OptionValue::Whole(0),
            OptionValue::Off,
            OptionValue::Text("off".to_owned()),
        ] {
            assert_eq!(set("rate", &value).unwrap().rate, None, "{value}");
            assert!(set("count", &value).is_err());
        }
    }
}
