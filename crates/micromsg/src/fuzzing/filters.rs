//! Filters by their rules, one after another, on owned values (R-MM-28, R-MM-29): the model for the real ones.

use std::cmp::Ordering;

use crate::Filter;
use crate::text::{Number, Property};

/// A condition as plain data.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    pub(crate) name: String,
    /// The operator, as it is written.
    pub(crate) operator: &'static str,
    pub(crate) value: Property,
}

impl Condition {
    /// Whether the operator is one for the type of the value.
    pub(super) fn is_sound(&self) -> bool {
        match self.operator {
            "<=" | ">=" => !matches!(self.value, Property::Text(_)),
            "~" | "&" => matches!(self.value, Property::Text(_)),
            _ => true,
        }
    }

    /// Whether it holds for the first property of its name. Only negative operators accept a missing property, or one of
    /// another type.
    fn holds(&self, properties: &[(String, Property)]) -> bool {
        let mut properties = properties.iter();
        let found = properties.find(|(name, _)| *name == self.name);
        let holds = found.and_then(|(_, came)| self.holds_for(came));
        holds.unwrap_or(["!=", "~"].contains(&self.operator))
    }

    fn holds_for(&self, came: &Property) -> Option<bool> {
        match (came, &self.value) {
            (Property::Number(came), Property::Number(own)) => {
                Some(self.accepts(compare(*came, *own)))
            }
            (Property::Date(came), Property::Date(own)) => {
                Some(self.accepts(came.partial_cmp(own)?))
            }
            (Property::Text(came), Property::Text(own)) => Some(match self.operator {
                "=" => came == own,
                "!=" => came != own,
                "<" => came.starts_with(own),
                ">" => came.ends_with(own),
                "&" => came.contains(own),
                "~" => !came.contains(own),
                other => unreachable!("{other} is not for texts"),
            }),
            _ => None,
        }
    }

    fn accepts(&self, order: Ordering) -> bool {
        match self.operator {
            "=" => order == Ordering::Equal,
            "!=" => order != Ordering::Equal,
            "<" => order == Ordering::Less,
            "<=" => order != Ordering::Greater,
            ">" => order == Ordering::Greater,
            ">=" => order != Ordering::Less,
            other => unreachable!("{other} is for texts alone"),
        }
    }
}

/// The conditions of a filter.
pub(crate) fn conditions(filter: &Filter) -> Vec<Condition> {
    let conditions = filter.conditions().iter().map(|one| Condition {
        name: one.name().to_owned(),
        operator: one.operator().symbol(),
        value: one.value().clone(),
    });
    conditions.collect()
}

/// Whether all conditions hold.
pub(crate) fn matches(conditions: &[Condition], properties: &[(String, Property)]) -> bool {
    conditions.iter().all(|one| one.holds(properties))
}

/// Compares two numbers, of which fractions have at most two binary digits behind the point.
#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation
)] // within 128 bits
fn compare(came: Number, own: Number) -> Ordering {
    let scaled = |number| match number {
        Number::Whole(number) => i128::from(number) * 4,
        Number::Fraction(number) => (number * 4.0) as i128,
    };
    scaled(came).cmp(&scaled(own))
}
