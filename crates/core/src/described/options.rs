//! The options of a machine or a decoder: rows of the protocol's tables, and options that stand in none.

use super::args::{Args, Misuse};
use super::shape::{Field, Shape, Source, read};
use crate::Value;
use crate::options::{OptionKind, OptionRow, OptionSpec, OptionValue, Options, Uses};

/// The options of a machine or a decoder.
#[derive(Debug, Clone, Copy)]
pub struct OptionSet {
    /// The rows of the protocol's tables, of which those for `uses` are options here.
    pub table: fn() -> Vec<OptionRow>,
    /// The use of this set: a machine or a decoder.
    pub uses: Uses,
    /// Options that stand in no table.
    pub others: &'static [Field],
    /// Limits that have another name in the vectors: that name, and the option's.
    pub limits: &'static [(&'static str, &'static str)],
}

impl OptionSet {
    /// Every option. Times are in whole milliseconds, as the clock of a machine is, and their names end with `_ms`.
    pub fn fields(&self) -> Vec<Field> {
        let rows = (self.table)().into_iter().map(|row| row.spec);
        let of_table = rows.filter(|spec| spec.uses.has(self.uses));
        let of_table = of_table.map(|spec| {
            let limit = self.limits.iter().find(|(_, option)| *option == spec.name);
            Field {
                limit: limit.map(|(in_vectors, _)| *in_vectors),
                ..field(&spec)
            }
        });
        of_table.chain(self.others.iter().copied()).collect()
    }

    /// Reads options.
    pub(super) fn read<S: Source>(&self, given: Vec<(String, S)>) -> Result<Args, Misuse> {
        read(&self.fields(), given, |key, names| {
            Misuse::of(
                "unknown_option",
                format!("there is no option {key:?}: {names}"),
            )
        })
    }
}

/// One option of a table.
fn field(spec: &OptionSpec) -> Field {
    let (name, shape) = match spec.kind {
        OptionKind::Count { zero_is_off, .. } | OptionKind::Bytes { zero_is_off, .. } => {
            (spec.name, number(spec, zero_is_off))
        }
        OptionKind::Time { .. } => (spec.name_in_ms, number(spec, false)),
        OptionKind::Flag => (spec.name, Shape::Flag),
        OptionKind::Word(words) => (spec.name, Shape::Word(words)),
        OptionKind::Fraction | OptionKind::Text { .. } | OptionKind::Path => {
            (spec.name, Shape::Text)
        }
    };
    if spec.off {
        Field::switch(name, shape)
    } else {
        Field::option(name, shape)
    }
}

/// The range of a number, in which 0 may be off.
fn number(spec: &OptionSpec, zero_is_off: bool) -> Shape {
    let (least, most) = spec.kind.range().unwrap_or((0, u64::MAX));
    Shape::number(if zero_is_off { 0 } else { least }, most)
}

impl Args {
    /// Sets the options of a table that are among these.
    ///
    /// # Errors
    /// A value is outside the option's range.
    pub fn set_table(&self, uses: Uses, table: &mut dyn Options) -> Result<(), Misuse> {
        for row in table.rows() {
            let spec = row.spec;
            let is_time = matches!(spec.kind, OptionKind::Time { .. });
            let given_as = if is_time { spec.name_in_ms } else { spec.name };
            let Some(value) = self.get(given_as) else {
                continue;
            };
            let value = match value {
                Value::Number(millis) if is_time => OptionValue::Text(format!("{millis}ms")),
                Value::Number(number) => OptionValue::Whole(*number),
                Value::Flag(flag) => OptionValue::Flag(*flag),
                Value::Name(word) => OptionValue::Text((*word).to_owned()),
                Value::Text(text) => OptionValue::Text(text.clone()),
                _ => OptionValue::Off,
            };
            let is_set = table.set(uses, spec.name, &value);
            is_set.map_err(|error| Misuse::of(given_as, error.given_as(given_as).to_string()))?;
        }
        Ok(())
    }
}
