//! From an Arrow schema to the columns to fill: which types are supported, and which are refused.

use std::collections::HashSet;

use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::{DataType, FieldRef, Fields, TimeUnit};

use crate::column::{
    Booleans, Bytes, BytesKind, Column, Lists, Maps, Parse, Primitive, Structs, float, short_float,
};
use crate::number::decimal;
use crate::scope::{Scope, Shape};
use crate::text::is_number;
use crate::time::{days, epoch, timestamp};
use crate::value::Value;
use crate::variant::{Variants, is_variant};

/// The reason a schema cannot be filled from JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// No JSON value corresponds to the type.
    #[error("column {column} has the type {data_type}, which is not read from JSON")]
    Type {
        /// The column, with the fields on the way to it.
        column: String,
        /// Its type, as Arrow names it.
        data_type: String,
    },
    /// Keys of a map are names of members.
    #[error(
        "column {column} has the type {data_type}: keys of a map are names of members, STRING (Utf8)"
    )]
    Key {
        /// The column, with the fields on the way to it.
        column: String,
        /// Its type, as Arrow names it.
        data_type: String,
    },
    /// An event may always lack a member.
    #[error("column {column} may not be null, and an event may lack it: make it nullable")]
    NotNull {
        /// The column, with the fields on the way to it.
        column: String,
    },
    /// Two columns have one name.
    #[error("two columns are named {column}: take one of them out")]
    SameName {
        /// The name.
        column: String,
    },
    /// The column of rescued members, or that of texts that are no object, must be text.
    #[error("column {column} takes {what} and is a STRING (Utf8), not {data_type}")]
    Text {
        /// The column.
        column: String,
        /// The contents of the column.
        what: &'static str,
        /// Its type, as Arrow names it.
        data_type: String,
    },
    /// The column of rescued members, or that of texts that are no object, has the name of another
    /// one.
    #[error(
        "column {column} is one that every event has: give the column that takes {what} another name"
    )]
    Reserved {
        /// The column.
        column: String,
        /// The intended contents of the column.
        what: &'static str,
    },
    /// Two columns would be filled by one member.
    #[error("two columns are filled by the member {member}: take one of them out")]
    Twice {
        /// The member's name, by the names on the way to it.
        member: String,
    },
    /// A struct has no fields.
    #[error("column {column} is a struct without fields")]
    Empty {
        /// The column, with the fields on the way to it.
        column: String,
    },
    /// The schema nests too deep.
    #[error("column {column} nests deeper than {MAX_SCHEMA_DEPTH} types")]
    Deep {
        /// The column, with the fields on the way to it.
        column: String,
    },
}

/// The most nested types of a schema; an event may nest deeper.
pub(crate) const MAX_SCHEMA_DEPTH: usize = 32;

/// The columns of a struct, or of an event.
pub(crate) fn scope(
    fields: &Fields,
    case_sensitive: bool,
    above: &str,
    depth: usize,
) -> Result<Scope, SchemaError> {
    let mut plan = Plan {
        scope: Scope::new(fields.clone(), case_sensitive),
        case_sensitive,
    };
    let shapes = plan.shapes(fields, 0, above, depth)?;
    plan.scope.shape(shapes);
    Ok(plan.scope)
}

struct Plan {
    scope: Scope,
    case_sensitive: bool,
}

impl Plan {
    fn shapes(
        &mut self,
        fields: &Fields,
        node: usize,
        above: &str,
        depth: usize,
    ) -> Result<Vec<Shape>, SchemaError> {
        if fields.is_empty() && !above.is_empty() {
            let column = above.to_owned();
            return Err(SchemaError::Empty { column });
        }
        let mut known = HashSet::new();
        let mut shapes = Vec::with_capacity(fields.len());
        for field in fields {
            let name = below(above, field.name());
            if !field.is_nullable() {
                return Err(SchemaError::NotNull { column: name });
            }
            let at = self.scope.add_node(node, field.name());
            let is_struct =
                matches!(field.data_type(), DataType::Struct(_)) && !is_variant(field.data_type());
            if !known.insert(at) || self.scope.is_taken(at, is_struct) {
                return Err(SchemaError::Twice { member: name });
            }
            shapes.push(
                if let DataType::Struct(fields) = field.data_type()
                    && is_struct
                {
                    let place = self.scope.add_struct(at);
                    let shapes = self.shapes(fields, at, &name, deeper(depth, &name)?)?;
                    Shape::Struct(place, fields.clone(), shapes)
                } else {
                    let column = self.column(field, &name, depth)?;
                    self.scope.add_leaf(at, column)
                },
            );
        }
        Ok(shapes)
    }

    fn column(
        &self,
        field: &FieldRef,
        name: &str,
        depth: usize,
    ) -> Result<Box<dyn Column>, SchemaError> {
        match field.data_type() {
            DataType::List(element) => {
                let column = self.within(element, &below(name, "element"), depth)?;
                Ok(Box::new(Lists::new(element, column)))
            }
            DataType::Map(entries, is_sorted) => {
                let (key, value) = key_and_value(entries).ok_or_else(|| unknown(field, name))?;
                if *key.data_type() != DataType::Utf8 {
                    return Err(SchemaError::Key {
                        column: below(name, "key"),
                        data_type: key.data_type().to_string(),
                    });
                }
                let values = self.within(value, &below(name, "value"), depth)?;
                Ok(Box::new(Maps::new(entries, *is_sorted, values)))
            }
            DataType::Struct(fields) if is_variant(field.data_type()) => {
                Ok(Box::new(Variants::new(fields)))
            }
            data_type => scalar(data_type).ok_or_else(|| unknown(field, name)),
        }
    }

    /// A column within a list or a map.
    fn within(
        &self,
        field: &FieldRef,
        name: &str,
        depth: usize,
    ) -> Result<Box<dyn Column>, SchemaError> {
        let depth = deeper(depth, name)?;
        if !field.is_nullable() {
            let column = name.to_owned();
            return Err(SchemaError::NotNull { column });
        }
        let fields = match field.data_type() {
            DataType::Struct(fields) if !is_variant(field.data_type()) => fields,
            _ => return self.column(field, name, depth),
        };
        Ok(Box::new(Structs {
            scope: scope(fields, self.case_sensitive, name, depth)?,
            nulls: NullBufferBuilder::new(0),
        }))
    }
}

fn key_and_value(entries: &FieldRef) -> Option<(&FieldRef, &FieldRef)> {
    match entries.data_type() {
        DataType::Struct(fields) => match &**fields {
            [key, value] => Some((key, value)),
            _ => None,
        },
        _ => None,
    }
}

fn scalar(data_type: &DataType) -> Option<Box<dyn Column>> {
    Some(match data_type {
        DataType::Boolean => Box::new(Booleans::default()),
        DataType::Int8 => Box::new(Primitive::<Int8Type>::whole(data_type)),
        DataType::Int16 => Box::new(Primitive::<Int16Type>::whole(data_type)),
        DataType::Int32 => Box::new(Primitive::<Int32Type>::whole(data_type)),
        DataType::Int64 => Box::new(Primitive::<Int64Type>::whole(data_type)),
        DataType::UInt8 => Box::new(Primitive::<UInt8Type>::whole(data_type)),
        DataType::UInt16 => Box::new(Primitive::<UInt16Type>::whole(data_type)),
        DataType::UInt32 => Box::new(Primitive::<UInt32Type>::whole(data_type)),
        DataType::UInt64 => Box::new(Primitive::<UInt64Type>::whole(data_type)),
        DataType::Float32 => Box::new(Primitive::<Float32Type>::new(
            data_type,
            Box::new(short_float),
        )),
        DataType::Float64 => Box::new(Primitive::<Float64Type>::new(data_type, Box::new(float))),
        DataType::Decimal128(precision, scale) => {
            let parse = decimals(*precision, *scale);
            Box::new(Primitive::<Decimal128Type>::new(data_type, parse))
        }
        DataType::Utf8 => Box::new(Bytes::new(BytesKind::Text)),
        DataType::Binary => Box::new(Bytes::new(BytesKind::Binary)),
        DataType::Date32 => {
            let parse = |value: Value<'_>| days(&value.text()?);
            Box::new(Primitive::<Date32Type>::new(data_type, Box::new(parse)))
        }
        DataType::Timestamp(unit, zone) => times(data_type, *unit, zone.is_some()),
        _ => return None,
    })
}

fn decimals(precision: u8, scale: i8) -> Parse<i128> {
    Box::new(move |value| {
        if let Value::Number(text) = value {
            return decimal(text, precision, scale);
        }
        let text = value.text()?;
        is_number(&text).then(|| decimal(&text, precision, scale))?
    })
}

fn times(data_type: &DataType, unit: TimeUnit, has_zone: bool) -> Box<dyn Column> {
    let divisor = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    let parse = move |value: Value<'_>| {
        let nanoseconds = if let Value::Number(text) = value {
            epoch(text)?
        } else {
            let time = timestamp(&value.text()?)?;
            // A column without a zone holds local times, not moments.
            (has_zone || !time.has_zone).then_some(time.nanoseconds)?
        };
        i64::try_from(nanoseconds.div_euclid(divisor)).ok()
    };
    match unit {
        TimeUnit::Second => Box::new(Primitive::<TimestampSecondType>::new(
            data_type,
            Box::new(parse),
        )),
        TimeUnit::Millisecond => Box::new(Primitive::<TimestampMillisecondType>::new(
            data_type,
            Box::new(parse),
        )),
        TimeUnit::Microsecond => Box::new(Primitive::<TimestampMicrosecondType>::new(
            data_type,
            Box::new(parse),
        )),
        TimeUnit::Nanosecond => Box::new(Primitive::<TimestampNanosecondType>::new(
            data_type,
            Box::new(parse),
        )),
    }
}

fn below(above: &str, name: &str) -> String {
    if above.is_empty() {
        name.to_owned()
    } else {
        format!("{above}.{name}")
    }
}

fn deeper(depth: usize, column: &str) -> Result<usize, SchemaError> {
    if depth >= MAX_SCHEMA_DEPTH {
        let column = column.to_owned();
        return Err(SchemaError::Deep { column });
    }
    Ok(depth + 1)
}

fn unknown(field: &FieldRef, name: &str) -> SchemaError {
    SchemaError::Type {
        column: name.to_owned(),
        data_type: field.data_type().to_string(),
    }
}
