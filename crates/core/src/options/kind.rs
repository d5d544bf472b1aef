//! The kinds of options, and the ranges of their values.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The values that an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// A whole number from `least` to `most`. `zero_is_off`: 0 switches it off.
    Count {
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
        /// Whether 0 means off.
        zero_is_off: bool,
    },
    /// A number of bytes in the same way, also with a unit.
    Bytes {
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
        /// Whether 0 means off.
        zero_is_off: bool,
    },
    /// A time: a number of seconds, or a text with a unit; `least` at least.
    Time {
        /// The shortest.
        least: Duration,
    },
    /// True or false.
    Flag,
    /// A part above 0 and up to 1.
    Fraction,
    /// One of some words.
    Word(&'static [&'static str]),
    /// A text, which `form` describes, such as `networks with commas`.
    Text {
        /// The form of the text.
        form: &'static str,
    },
    /// The path of a file or directory.
    Path,
}

/// The longest time, in milliseconds.
const MOST_MILLISECONDS: u64 = u64::MAX / 1_000_000;

/// A whole number within `range`.
pub const fn count(range: RangeInclusive<u64>) -> OptionKind {
    OptionKind::Count {
        least: *range.start(),
        most: *range.end(),
        zero_is_off: false,
    }
}

/// A number of bytes within `range`.
pub const fn bytes(range: RangeInclusive<u64>) -> OptionKind {
    OptionKind::Bytes {
        least: *range.start(),
        most: *range.end(),
        zero_is_off: false,
    }
}

/// A time of a millisecond or more.
pub const fn time() -> OptionKind {
    OptionKind::Time {
        least: Duration::from_millis(1),
    }
}

/// One of the words of `T`.
pub const fn word<T: super::OptionWord>() -> OptionKind {
    OptionKind::Word(T::WORDS)
}

/// A part above 0 and up to 1.
pub const fn fraction() -> OptionKind {
    OptionKind::Fraction
}

/// True or false.
pub const fn flag() -> OptionKind {
    OptionKind::Flag
}

/// A path.
pub const fn path() -> OptionKind {
    OptionKind::Path
}

/// A text of this form.
pub const fn text(form: &'static str) -> OptionKind {
    OptionKind::Text { form }
}

impl OptionKind {
    /// Its name: `count`, `bytes`, `time`, `flag`, `fraction`, `word`, `text` or `path`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Count { .. } => "count",
            Self::Bytes { .. } => "bytes",
            Self::Time { .. } => "time",
            Self::Flag => "flag",
            Self::Fraction => "fraction",
            Self::Word(_) => "word",
            Self::Text { .. } => "text",
            Self::Path => "path",
        }
    }

    /// The smallest and the largest number of a count, of a size, or of the milliseconds of a time.
    pub fn range(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Count { least, most, .. } | Self::Bytes { least, most, .. } => {
                Some((least, most))
            }
            Self::Time { least } => {
                let least = u64::try_from(least.as_millis()).unwrap_or(MOST_MILLISECONDS);
                Some((least, MOST_MILLISECONDS))
            }
            _ => None,
        }
    }

    /// The same kind, where 0 switches the option off.
    #[must_use]
    pub const fn or_zero(self) -> Self {
        match self {
            Self::Count { least, most, .. } => Self::Count {
                least,
                most,
                zero_is_off: true,
            },
            Self::Bytes { least, most, .. } => Self::Bytes {
                least,
                most,
                zero_is_off: true,
            },
            Self::Time { .. } => Self::Time {
                least: Duration::ZERO,
            },
            other => other,
        }
    }
}
