//! Options: each stands once, in one table, with its type, default, range and one sentence of help.
//!
//! [`options!`](crate::options!) makes of a table the struct that the program reads, and [`Options`], by which
//! Python's keyword arguments, the command line, the query of a URL, Spark's options and the pages of the
//! documentation set and show the same options.

mod kind;
mod text;
mod values;

use std::fmt;

pub use kind::{OptionKind, bytes, count, flag, fraction, path, text, time, word};
pub use text::{shown_bytes, shown_time, size, time_in};
pub use values::{OptionType, OptionWord, wrong};

/// A value as a surface was given it.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// Python's `None`, or `off`.
    Off,
    /// A whole number.
    Whole(u64),
    /// A number with a fraction, or below zero.
    Real(f64),
    /// True or false.
    Flag(bool),
    /// A text: of a command line, a URL, an option of Spark, or a path.
    Text(String),
    /// A value of any other type, by its text: no option takes it.
    Other(String),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Real(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Text(text) if text.is_empty() => f.write_str("empty"),
            // Without quotes, and nothing in it reaches a terminal raw.
            Self::Text(text) => write!(f, "{}", text.escape_debug()),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// An option whose value does not fit. Its option is data: every surface names it in its own way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.written(str::to_owned))]
pub struct OptionError {
    /// The option's name, as in the table.
    pub option: String,
    /// The sentence behind that name, such as `is 0; it is a whole number from 1 to 9`.
    pub text: String,
    /// Another option that the sentence ends with, as in `…; it is at least credit_floor`.
    pub other: Option<&'static str>,
    /// The URL whose query has the option, without that query: the sentence begins with it.
    pub url: Option<String>,
}

impl OptionError {
    /// An error of one option: `text` is the sentence behind its name.
    pub fn new(option: &str, text: impl Into<String>) -> Self {
        Self {
            option: option.to_owned(),
            text: text.into(),
            other: None,
            url: None,
        }
    }

    /// The same under the name by which the option was given, such as `NAME_ms`.
    #[must_use]
    pub fn given_as(mut self, name: &str) -> Self {
        name.clone_into(&mut self.option);
        self
    }

    /// The same with another option at the sentence's end.
    #[must_use]
    pub fn than(mut self, other: &'static str) -> Self {
        self.other = Some(other);
        self
    }

    /// The same for an option in the query of a URL; `url` is the URL without its query.
    #[must_use]
    pub fn in_url(mut self, url: &str) -> Self {
        self.url = Some(url.to_owned());
        self
    }

    /// The sentence, with each option named as the surface writes it. Options in the query of a URL have the same names
    /// on every surface.
    pub fn written(&self, name: impl Fn(&str) -> String) -> String {
        let Self { option, text, .. } = self;
        if let Some(url) = &self.url {
            let behind = self
                .other
                .map_or_else(String::new, |other| format!(" {other}"));
            return format!("{url:?}: {option} {text}{behind}");
        }
        let behind = self.other.map(|other| format!(" {}", name(other)));
        let behind = behind.unwrap_or_default();
        format!("{} {text}{behind}", name(option))
    }
}

/// The places where an option may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uses(u8);

impl Uses {
    /// Nowhere.
    pub const NONE: Self = Self(0);
    /// Python's and Rust's `connect`.
    pub const CONNECT: Self = Self(1);
    /// Python's and Rust's `listen`.
    pub const LISTEN: Self = Self(2);
    /// A receiver: `ackline receive`, `ackline.Receiver`, and the receiver that Spark starts.
    pub const RECEIVE: Self = Self(4);
    /// The query of a URL that a receiver listens on or connects to.
    pub const URL: Self = Self(8);
    /// A machine without a socket.
    pub const MACHINE: Self = Self(16);
    /// A reader of frames without a machine, such as `ackline decode`.
    pub const DECODE: Self = Self(32);

    /// Both.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `other` is among them.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// One option of a table.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Its name: on a command line with dashes, everywhere else as it is here.
    pub name: &'static str,
    /// The name under which a machine without a socket takes a time, in whole milliseconds.
    pub name_in_ms: &'static str,
    /// The values that it takes.
    pub kind: OptionKind,
    /// Whether it can be switched off.
    pub off: bool,
    /// The places where it may be set.
    pub uses: Uses,
    help: &'static str,
}

impl OptionSpec {
    /// Made by [`options!`](crate::options!).
    #[doc(hidden)]
    pub const fn new(
        [name, name_in_ms]: [&'static str; 2],
        kind: OptionKind,
        off: bool,
        uses: Uses,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            name_in_ms,
            kind,
            off,
            uses,
            help,
        }
    }

    /// One or a few sentences of help. A link to an item of Rust, such as ``[`Link::told`](super::Link::told)``, is the name
    /// as Python has it: `` `Link.told` ``.
    pub fn help(&self) -> String {
        let words: Vec<_> = self.help.split_whitespace().collect();
        let words = words.join(" ");
        let mut parts = words.split("[`");
        let mut help = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            match part.split_once("`](") {
                Some((name, rest)) => {
                    let behind = rest.split_once(')').map_or("", |(_, behind)| behind);
                    let name = name.replace("::", ".");
                    help.extend(["`", &name, "`", behind]);
                }
                None => help.extend(["[`", part]),
            }
        }
        help
    }
}

/// One option with the value that it has in a struct.
#[derive(Debug, Clone)]
pub struct OptionRow {
    /// The option.
    pub spec: OptionSpec,
    /// Its value as a command line has it, such as `64MiB`, `10s` or `off`; empty where nothing is set.
    pub value: String,
}

/// A struct made of a table of options.
pub trait Options {
    /// Every option of the table and of the tables within it, with its present value.
    fn rows(&self) -> Vec<OptionRow>;

    /// Sets the option `name` if `uses` has one of that name. Answers whether it has.
    ///
    /// # Errors
    /// The value does not fit.
    fn set(&mut self, uses: Uses, name: &str, value: &OptionValue) -> Result<bool, OptionError>;

    /// Refuses values outside their ranges, which a program may have set directly.
    ///
    /// # Errors
    /// The first of them.
    fn check_ranges(&self) -> Result<(), OptionError>;
}

/// The option `name` of a table, if there is one that `uses` has.
pub fn spec_of(options: &dyn Options, uses: Uses, name: &str) -> Option<OptionSpec> {
    let rows = options.rows();
    let row = rows
        .iter()
        .find(|row| row.spec.name == name && row.spec.uses.has(uses))?;
    Some(row.spec)
}

/// Makes a struct, its `Default` and its [`Options`] of one table.
///
/// ```
/// use std::time::Duration;
/// use ackline_core::options::{count, time};
///
/// ackline_core::options! {
///     /// How a link behaves.
///     #[derive(Debug)]
///     pub struct LinkOptions {
///         options {
///             /// Messages that may wait.
///             send_window: u32 = 65_536, count(1..=0x7fff_ffff), CONNECT | LISTEN;
///             /// Silence after which a ping goes out.
///             ping_after: Option<Duration> = Some(Duration::from_secs(11)), time(), CONNECT;
///         }
///         fields {
///             /// Seeds the waits, for tests.
///             seed: Option<u64> = None;
///         }
///     }
/// }
/// # fn main() {
/// use ackline_core::options::{Options as _, OptionValue, Uses};
/// let mut options = LinkOptions::default();
/// options.set(Uses::CONNECT, "ping_after", &OptionValue::Text("off".into())).unwrap();
/// assert_eq!(options.ping_after, None);
/// # }
/// ```
///
/// `options` are set by name, `groups` are structs made of other tables, whose options count as this one's, and
/// `fields` are set by the program alone.
#[macro_export]
macro_rules! options {
    (
        $(#[$meta:meta])*
        $seen:vis struct $name:ident {
            $(options {
                $($(#[doc = $help:literal])+ $field:ident: $type:ty = $default:expr, $kind:expr, $($use:ident)|+;)*
            })?
            $(groups {
                $($(#[doc = $group_help:literal])+ $group:ident: $group_type:ty = $group_default:expr;)*
            })?
            $(fields {
                $($(#[doc = $plain_help:literal])+ $plain:ident: $plain_type:ty = $plain_default:expr;)*
            })?
        }
    ) => {
        $(#[$meta])*
        $seen struct $name {
            $($($(#[doc = $help])+ pub $field: $type,)*)?
            $($($(#[doc = $group_help])+ pub $group: $group_type,)*)?
            $($($(#[doc = $plain_help])+ pub $plain: $plain_type,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($($field: $default,)*)?
                    $($($group: $group_default,)*)?
                    $($($plain: $plain_default,)*)?
                }
            }
        }

        impl $name {
            $($(
                #[allow(non_upper_case_globals, missing_docs)]
                #[doc(hidden)]
                pub const $field: $crate::options::OptionSpec = $crate::options::OptionSpec::new(
                    [stringify!($field), concat!(stringify!($field), "_ms")],
                    $kind,
                    <$type as $crate::options::OptionType>::OFF,
                    $crate::options::Uses::NONE$(.or($crate::options::Uses::$use))+,
                    concat!($($help),+),
                );
            )*)?
        }

        impl $crate::options::Options for $name {
            fn rows(&self) -> Vec<$crate::options::OptionRow> {
                #[allow(unused_mut)]
                let mut rows: Vec<$crate::options::OptionRow> = vec![$($($crate::options::OptionRow {
                    spec: Self::$field,
                    value: $crate::options::OptionType::shown(&self.$field, &Self::$field.kind),
                },)*)?];
                $($(rows.extend($crate::options::Options::rows(&self.$group));)*)?
                rows
            }

            fn set(
                &mut self,
                uses: $crate::options::Uses,
                name: &str,
                value: &$crate::options::OptionValue,
            ) -> Result<bool, $crate::options::OptionError> {
                match name {
                    $($(stringify!($field) if Self::$field.uses.has(uses) => {
                        self.$field = $crate::options::OptionType::read(&Self::$field, value)?;
                        Ok(true)
                    })*)?
                    // Several groups may have an option of one name: it is set in all of them.
                    _ => Ok(false $($(| $crate::options::Options::set(&mut self.$group, uses, name, value)?)*)?),
                }
            }

            fn check_ranges(&self) -> Result<(), $crate::options::OptionError> {
                $($($crate::options::OptionType::check(&self.$field, &Self::$field)?;)*)?
                $($($crate::options::Options::check_ranges(&self.$group)?;)*)?
                Ok(())
            }
        }
    };
}
