//! Filters of subscriptions (REQ-MM-36): conditions on the properties of messages, which all must hold.
//!
//! This module decides which filters can be read and which messages match. A filter has conditions with semicolons between
//! them; a condition is a name, an operator and a value with its type in front (R-MM-28): `city<Tfal;age>=N18`. A missing
//! property, or one of another type, fails a condition; for `!=` and `~` it holds. Matching does not allocate, and its work
//! is at most the number of conditions times the length of the properties.

use std::cmp::Ordering;

use ackline_core::UsageError;

use crate::text::{EscapedText, Number, Properties, Property, PropertyRef, is_name};
use crate::text::{Wrong, check_ascii, entries, read_date, read_name, read_number, read_text};
use crate::{Kind, refusal};

mod needle;
#[cfg(test)]
mod tests;

use needle::Needle;

/// The conditions of a subscription; one at least.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    conditions: Vec<Condition>,
}

impl Filter {
    /// A filter of these conditions.
    ///
    /// # Errors
    /// `invalid_filter`: there is no condition.
    pub fn new(conditions: Vec<Condition>) -> Result<Self, UsageError> {
        if conditions.is_empty() {
            return Err(refusal::INVALID_FILTER);
        }
        Ok(Self { conditions })
    }

    /// Reads a filter; names of properties may be those of other implementations (R-MM-11).
    ///
    /// # Errors
    /// `NotAscii`, `InvalidFilter`, `InvalidPercentEncoding`.
    pub fn read(text: &[u8]) -> Result<Self, Kind> {
        let invalid = |text, reason| Kind::InvalidFilter { text, reason };
        let read = read_conditions(text);
        let conditions = read.map_err(|wrong| wrong.into_kind("the filter", text, invalid))?;
        Ok(Self { conditions })
    }

    /// The filter as text, without a semicolon behind the last condition.
    pub fn write(&self) -> String {
        let mut out = String::new();
        for (at, condition) in self.conditions.iter().enumerate() {
            if at > 0 {
                out.push(';');
            }
            out.push_str(&condition.name);
            out.push_str(condition.operator.symbol());
            // A condition's numbers are finite, and nothing else is refused.
            let _ = condition.value.write(&mut out);
        }
        out
    }

    /// The conditions, in their order.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Whether all conditions hold for a message with these properties.
    pub fn matches(&self, properties: &Properties<'_>) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.all(|condition| condition.holds(properties))
    }

    /// Bytes of memory behind this filter.
    pub fn held_bytes(&self) -> usize {
        let slots = self
            .conditions
            .capacity()
            .saturating_mul(size_of::<Condition>());
        let behind = self.conditions.iter().map(Condition::held_bytes);
        behind.fold(slots, usize::saturating_add)
    }
}

/// A condition on one property.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    name: String,
    operator: Operator,
    value: Property,
    /// For `Contains` and `DoesNotContain`: the search for the text.
    needle: Needle,
}

impl Condition {
    /// A condition on the property of this name, which may be one of other implementations (R-MM-11).
    ///
    /// # Errors
    /// `invalid_name`: no filter can have the name. `not_finite`.
    /// `invalid_filter`: the operator is not one for this type of value.
    pub fn new(name: String, operator: Operator, value: Property) -> Result<Self, UsageError> {
        if !is_name(&name) || name.bytes().any(|byte| OPERATOR_BYTES.contains(&byte)) {
            return Err(refusal::INVALID_PROPERTY_NAME);
        }
        if let Property::Number(Number::Fraction(number)) | Property::Date(number) = value
            && !number.is_finite()
        {
            return Err(refusal::NOT_FINITE);
        }
        if !operator.is_for(&value) {
            return Err(refusal::INVALID_FILTER);
        }
        Ok(Self::checked(name, operator, value))
    }

    fn checked(name: String, operator: Operator, value: Property) -> Self {
        let needle = match &value {
            Property::Text(text) if operator.is_for_text_alone() => Needle::new(text.as_bytes()),
            _ => Needle::default(),
        };
        Self {
            name,
            operator,
            value,
            needle,
        }
    }

    /// The name of the property.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The operator.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The value that the property is compared with.
    pub fn value(&self) -> &Property {
        &self.value
    }

    fn holds(&self, properties: &Properties<'_>) -> bool {
        let found = properties.find(self.name.as_bytes());
        let holds = found.and_then(|value| match &self.value {
            Property::Number(own) => {
                let came = read_number(value)?;
                Some(self.operator.accepts(came.compare(*own)))
            }
            Property::Date(own) => {
                let came = read_date(value)?;
                Some(self.operator.accepts(came.partial_cmp(own)))
            }
            Property::Text(own) => Some(self.holds_for(read_text(value)?, own)),
        });
        holds.unwrap_or(self.operator.is_negative())
    }

    fn holds_for(&self, came: EscapedText<'_>, own: &str) -> bool {
        match self.operator {
            Operator::Equal => came.is(own),
            Operator::NotEqual => !came.is(own),
            Operator::Less => came.starts_with(own),
            Operator::Greater => came.ends_with(own),
            Operator::Contains => self.needle.is_in(own, came),
            Operator::DoesNotContain => !self.needle.is_in(own, came),
            // No condition has them together with a text.
            Operator::LessOrEqual | Operator::GreaterOrEqual => false,
        }
    }

    fn held_bytes(&self) -> usize {
        let text = match &self.value {
            Property::Text(text) => text.capacity(),
            Property::Number(_) | Property::Date(_) => 0,
        };
        let texts = self.name.capacity().saturating_add(text);
        texts.saturating_add(self.needle.held_bytes())
    }
}

/// The relation between a property and a condition's value (REQ-MM-35, R-MM-29). Texts are compared by case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Equal,
    /// `!=`; holds also for a missing property or one of another type.
    NotEqual,
    /// `<`; for a text: it begins with the value.
    Less,
    /// `<=`; not for texts.
    LessOrEqual,
    /// `>`; for a text: it ends with the value.
    Greater,
    /// `>=`; not for texts.
    GreaterOrEqual,
    /// `&`; for texts alone.
    Contains,
    /// `~`; for texts alone. Holds also for a missing property or one of another type.
    DoesNotContain,
}

impl Operator {
    /// The operator in a filter's text.
    pub const fn symbol(&self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Contains => "&",
            Self::DoesNotContain => "~",
        }
    }

    /// The operator that is written so.
    pub fn read(symbol: &str) -> Option<Self> {
        let (operator, rest) = Self::split(symbol.as_bytes())?;
        rest.is_empty().then_some(operator)
    }

    /// Splits an operator from the front of a text.
    fn split(text: &[u8]) -> Option<(Self, &[u8])> {
        Some(match text {
            [b'=', rest @ ..] => (Self::Equal, rest),
            [b'!', b'=', rest @ ..] => (Self::NotEqual, rest),
            [b'<', b'=', rest @ ..] => (Self::LessOrEqual, rest),
            [b'<', rest @ ..] => (Self::Less, rest),
            [b'>', b'=', rest @ ..] => (Self::GreaterOrEqual, rest),
            [b'>', rest @ ..] => (Self::Greater, rest),
            [b'&', rest @ ..] => (Self::Contains, rest),
            [b'~', rest @ ..] => (Self::DoesNotContain, rest),
            _ => return None,
        })
    }

    /// Whether the operator is one for a value of this type.
    const fn is_for(self, value: &Property) -> bool {
        match value {
            Property::Text(_) => !matches!(self, Self::LessOrEqual | Self::GreaterOrEqual),
            Property::Number(_) | Property::Date(_) => !self.is_for_text_alone(),
        }
    }

    const fn is_for_text_alone(self) -> bool {
        matches!(self, Self::Contains | Self::DoesNotContain)
    }

    /// Whether a missing property, or one of another type, satisfies the operator.
    const fn is_negative(self) -> bool {
        matches!(self, Self::NotEqual | Self::DoesNotContain)
    }

    /// Whether a number or a date in this order to a condition's value satisfies the operator.
    fn accepts(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Equal => order.is_some_and(Ordering::is_eq),
            Self::NotEqual => !order.is_some_and(Ordering::is_eq),
            Self::Less => order.is_some_and(Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::Greater => order.is_some_and(Ordering::is_gt),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
            // No condition has them together with a number or a date.
            Self::Contains | Self::DoesNotContain => false,
        }
    }
}

fn read_conditions(text: &[u8]) -> Result<Vec<Condition>, Wrong> {
    check_ascii(text)?;
    if text.is_empty() {
        return Err(Wrong::Structure("it has no condition"));
    }
    entries(text).map(read_condition).collect()
}

fn read_condition(entry: &[u8]) -> Result<Condition, Wrong> {
    let at = entry.iter().position(|byte| OPERATOR_BYTES.contains(byte));
    let split = at.and_then(|at| entry.split_at_checked(at));
    let split = split.and_then(|(name, rest)| Some((name, Operator::split(rest)?)));
    let (name, (operator, raw)) = split.ok_or(Wrong::Structure("a condition has no operator"))?;
    let name = read_name(name)?.to_owned();
    let value = PropertyRef::read(raw);
    // A value without a type, or in another form than that of its type, is read as text.
    let is_text = matches!(value, None | Some(PropertyRef::Text(_)));
    if is_text && !raw.starts_with(b"T") {
        return Err(Wrong::Structure(
            "a value has no type in front, or not the form of its type",
        ));
    }
    let value = Property::from(value.ok_or(Wrong::Escape)?);
    if !operator.is_for(&value) {
        return Err(Wrong::Structure(
            "an operator is not one for the type of its value",
        ));
    }
    Ok(Condition::checked(name, operator, value))
}

/// The bytes that operators begin with.
const OPERATOR_BYTES: &[u8] = b"=<>!~&";
