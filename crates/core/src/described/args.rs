//! Arguments and options that were checked against their shapes, and the errors of those that were not.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::{Members, UsageError, Value};

/// A call that was not done; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misuse {
    /// The machine refuses it now.
    Refused(UsageError),
    /// A name or a value is not understood.
    NotUnderstood {
        /// The argument or option, or what kind of name is unknown.
        code: String,
        /// The mistake, and the names or values that would be right.
        message: String,
    },
}

impl Misuse {
    /// Something that is not understood.
    pub fn of(code: &str, message: String) -> Self {
        Self::NotUnderstood {
            code: code.to_owned(),
            message,
        }
    }

    /// A verb that a role describes and its machine does not have.
    pub fn no_verb(verb: &str) -> Self {
        Self::of("unknown_verb", format!("the machine has no verb {verb:?}"))
    }

    /// A name that `of` does not have.
    pub(super) fn unknown<'a>(
        kind: &str,
        name: &str,
        of: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Self {
        let message = format!("there is no {kind} {name:?} of {of}: {}", listed(known));
        Self::of(&format!("unknown_{kind}"), message)
    }

    /// A stable name: the refusal's, the argument's, or `unknown_verb` and the like.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(error) => error.code,
            Self::NotUnderstood { code, .. } => code,
        }
    }

    /// The sentence.
    pub fn message(&self) -> &str {
        match self {
            Self::Refused(error) => error.message,
            Self::NotUnderstood { message, .. } => message,
        }
    }

    /// The same, where the message begins with the verb that was called.
    #[must_use]
    pub(super) fn within(self, verb: &str) -> Self {
        match self {
            Self::NotUnderstood { code, message } => Self::NotUnderstood {
                code,
                message: format!("{verb}: {message}"),
            },
            refused @ Self::Refused(_) => refused,
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.message())
    }
}

impl std::error::Error for Misuse {}

impl From<UsageError> for Misuse {
    fn from(error: UsageError) -> Self {
        Self::Refused(error)
    }
}

/// Names in a sentence.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return "it has none".to_owned();
    }
    format!("it has {}", names.join(", "))
}

/// Values by name that have the shapes of their fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args(pub(super) Members);

impl Args {
    /// The members of a map; none for anything else.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Map(members) => Self(members.clone()),
            _ => Self::default(),
        }
    }

    /// The value, if it was given.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.0.iter().find(|(own, _)| *own == name);
        found.map(|(_, value)| value)
    }

    /// A number; `None` if it was not given, or is off.
    ///
    /// # Errors
    /// It does not fit.
    pub fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, Misuse> {
        let Some(Value::Number(number)) = self.get(name) else {
            return Ok(None);
        };
        let fitting = T::try_from(*number).map(Some);
        fitting.map_err(|_| Misuse::of(name, format!("{name} is {number}; that is too large")))
    }

    /// A number that its schema requires.
    ///
    /// # Errors
    /// It is not there or does not fit.
    pub fn required<T: TryFrom<u64>>(&self, name: &str) -> Result<T, Misuse> {
        let number = self.number(name)?;
        number.ok_or_else(|| Misuse::of(name, format!("{name} is missing")))
    }

    /// Sets `slot` if the number was given.
    ///
    /// # Errors
    /// It does not fit.
    pub fn set<T: TryFrom<u64>>(&self, name: &str, slot: &mut T) -> Result<(), Misuse> {
        if let Some(number) = self.number(name)? {
            *slot = number;
        }
        Ok(())
    }

    /// Sets `slot` if the flag was given.
    pub fn set_flag(&self, name: &str, slot: &mut bool) {
        if let Some(Value::Flag(flag)) = self.get(name) {
            *slot = *flag;
        }
    }

    /// Milliseconds; `None` if they were not given, or are off.
    pub fn millis(&self, name: &str) -> Option<Duration> {
        match self.get(name) {
            Some(Value::Number(millis)) => Some(Duration::from_millis(*millis)),
            _ => None,
        }
    }

    /// Bytes; none if they were not given.
    pub fn bytes(&self, name: &str) -> Bytes {
        self.get(name).map(Value::to_bytes).unwrap_or_default()
    }

    /// A text or a word; empty if it was not given.
    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Value::Text(text)) => text,
            Some(Value::Name(word)) => word,
            _ => "",
        }
    }

    /// The values of a list; none if it was not given.
    pub fn items(&self, name: &str) -> &[Value] {
        self.get(name).map(Value::items).unwrap_or_default()
    }
}
