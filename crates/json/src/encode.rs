//! Rows to JSON texts, straight from Arrow's columns: a row is an object whose members are the columns by
//! their names, as they are.
//!
//! | Arrow | JSON |
//! |---|---|
//! | booleans, whole numbers | as they are |
//! | floats | the shortest text that reads back as the same value; NaN and infinities are `null` |
//! | decimals | numbers with all their digits |
//! | strings, views and dictionaries of them | strings; bytes that are not UTF-8 become U+FFFD |
//! | binary | base64 with padding |
//! | dates | `2026-11-21` |
//! | timestamps with a zone | `2026-11-21T10:12:13.123456Z`, in UTC |
//! | timestamps without | the same without `Z` |
//! | times of day | `10:12:13.123456` |
//! | durations, months | ISO 8601: `PT93784.500000S`, `P14M` |
//! | structs, maps | objects; a map's key that is no string is the text of its value |
//! | lists | arrays |
//!
//! A null is left out, unless [`Nulls::Keep`] is set, except in arrays and as a map's value, where
//! it is `null`.

use std::collections::HashSet;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Fields, Schema};
use bytes::Bytes;
use serde_json::Value;
use thiserror::Error;

use crate::escape::push_string;
use object::Object;

mod column;
mod object;
mod scalar;

/// The encoding of a null member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nulls {
    /// It is left out, as Spark's `to_json` does.
    #[default]
    Omit,
    /// It is written as `null`.
    Keep,
}

/// The reason rows cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// JSON has no form for the type of a column, or of a part of one.
    #[error("column {column} is {data_type}, which has no form in JSON: convert it before")]
    Unsupported {
        /// The column, with the names of its parts after dots.
        column: String,
        /// Its Arrow type.
        data_type: String,
    },
    /// Two members of one object would have the same name.
    #[error("two columns are named {column}: a JSON object has each name once")]
    Duplicate {
        /// The column, with the names of its parts after dots.
        column: String,
    },
    /// A column has the same name as the stamp's member.
    #[error("a column is named {name}, as the member that tells where an event comes from")]
    StampTaken {
        /// The name.
        name: String,
    },
    /// A batch has another schema than the encoder.
    #[error("the batch has another schema than the encoder")]
    OtherSchema,
    /// A value to be sent as it is, is null or empty.
    #[error("{column} of row {row} is null or empty: an event has at least one byte")]
    Empty {
        /// The column.
        column: String,
        /// The row, from 0 in its batch.
        row: usize,
    },
}

/// A member with an event's origin: an object with fixed members and, last, the event's `ordinal`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    name: String,
    /// `"name":{"fixed":1,"ordinal":`
    text: Vec<u8>,
    next: u64,
}

impl Stamp {
    /// The member `name` with the `fixed` members of all events; ordinals count from 0.
    pub fn new(name: &str, fixed: &[(&str, Value)]) -> Self {
        let mut text = Vec::new();
        push_string(name.as_bytes(), &mut text);
        text.extend_from_slice(b":{");
        for (member, value) in fixed {
            push_string(member.as_bytes(), &mut text);
            text.push(b':');
            scalar::push(value, &mut text);
            text.push(b',');
        }
        text.extend_from_slice(br#""ordinal":"#);
        Self {
            name: name.to_owned(),
            text,
            next: 0,
        }
    }

    fn push(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text);
        scalar::push(&self.next, out);
        out.push(b'}');
        self.next = self.next.saturating_add(1);
    }
}

/// Writes the rows of batches of one schema.
#[derive(Debug, Clone)]
pub struct Encoder {
    fields: Fields,
    nulls: Nulls,
    stamp: Option<Stamp>,
    /// Bytes of the longest row so far, for the next buffer.
    row_bytes: usize,
}

impl Encoder {
    /// An encoder for batches of `schema`.
    ///
    /// # Errors
    /// [`EncodeError::Unsupported`], [`EncodeError::Duplicate`], [`EncodeError::StampTaken`].
    pub fn new(schema: &Schema, nulls: Nulls, stamp: Option<Stamp>) -> Result<Self, EncodeError> {
        check("", schema.fields())?;
        if let Some(stamp) = &stamp
            && schema.column_with_name(&stamp.name).is_some()
        {
            return Err(EncodeError::StampTaken {
                name: stamp.name.clone(),
            });
        }
        Ok(Self {
            fields: schema.fields().clone(),
            nulls,
            stamp,
            row_bytes: 0,
        })
    }

    /// The rows of `batch`, each as a JSON object; all are slices of one buffer, which lives as long as
    /// the last of them.
    ///
    /// # Errors
    /// [`EncodeError::OtherSchema`]: names or types of the columns differ.
    pub fn encode(&mut self, batch: &RecordBatch) -> Result<Vec<Bytes>, EncodeError> {
        if !is_same(&self.fields, batch.schema_ref().fields()) {
            return Err(EncodeError::OtherSchema);
        }
        let rows = batch.num_rows();
        let object = Object::of_columns(&self.fields, batch.columns(), self.nulls)?;
        let mut out = Vec::with_capacity(self.row_bytes.saturating_mul(rows));
        let mut ends = Vec::with_capacity(rows);
        for row in 0..rows {
            object.open(row, &mut out);
            if let Some(stamp) = &mut self.stamp {
                stamp.push(&mut out);
                out.push(b',');
            }
            Object::close(&mut out);
            ends.push(out.len());
        }
        if let Some(mean) = out.len().checked_div(rows) {
            self.row_bytes = mean + mean / 8;
        }
        Ok(slices(out, &ends))
    }
}

/// The values of the one column of `batch`, sent as they are: strings or binary, none null or empty.
///
/// # Errors
/// [`EncodeError::Unsupported`]: the column is neither; [`EncodeError::Empty`];
/// [`EncodeError::OtherSchema`]: the batch has more than one column, or none.
pub fn texts(batch: &RecordBatch) -> Result<Vec<Bytes>, EncodeError> {
    let [column] = batch.columns() else {
        return Err(EncodeError::OtherSchema);
    };
    let field = batch.schema_ref().field(0);
    let values =
        column::bytes(column.as_ref(), as_they_are).ok_or_else(|| EncodeError::Unsupported {
            column: field.name().clone(),
            data_type: field.data_type().to_string(),
        })?;
    let mut out = Vec::new();
    let mut ends = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let before = out.len();
        if !column.is_null(row) {
            values(row, &mut out);
        }
        if out.len() == before {
            let column = field.name().clone();
            return Err(EncodeError::Empty { column, row });
        }
        ends.push(out.len());
    }
    Ok(slices(out, &ends))
}

fn as_they_are(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(value);
}

fn slices(out: Vec<u8>, ends: &[usize]) -> Vec<Bytes> {
    let mut rest = Bytes::from(out);
    let mut start = 0;
    ends.iter()
        .map(|end| {
            let piece = rest.split_to(end - start);
            start = *end;
            piece
        })
        .collect()
}

/// Whether names and types are the same; nullability does not matter.
fn is_same(ours: &Fields, theirs: &Fields) -> bool {
    ours.len() == theirs.len()
        && ours.iter().zip(theirs).all(|(our, their)| {
            our.name() == their.name() && our.data_type().equals_datatype(their.data_type())
        })
}

/// Refuses types that cannot be written, by their path.
fn check(path: &str, fields: &Fields) -> Result<(), EncodeError> {
    let mut names = HashSet::new();
    for field in fields {
        let column = match path {
            "" => field.name().clone(),
            path => format!("{path}.{}", field.name()),
        };
        if !names.insert(field.name()) {
            return Err(EncodeError::Duplicate { column });
        }
        if field.metadata().contains_key(VARIANT) {
            return Err(unsupported(path, "variant"));
        }
        check_type(&column, field.data_type())?;
    }
    Ok(())
}

fn check_type(column: &str, data_type: &DataType) -> Result<(), EncodeError> {
    match data_type {
        DataType::Struct(fields) => check(column, fields),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            check_type(&format!("{column}.element"), item.data_type())
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(both) if both.len() == 2 => {
                if both[0].data_type().is_nested() {
                    return Err(unsupported(
                        &format!("{column}.key"),
                        &both[0].data_type().to_string(),
                    ));
                }
                check_type(&format!("{column}.key"), both[0].data_type())?;
                check_type(&format!("{column}.value"), both[1].data_type())
            }
            other => Err(unsupported(column, &other.to_string())),
        },
        DataType::Dictionary(_, values) => check_type(column, values),
        scalar if column::is_scalar(scalar) => Ok(()),
        other => Err(unsupported(column, &other.to_string())),
    }
}

fn unsupported(column: &str, data_type: &str) -> EncodeError {
    EncodeError::Unsupported {
        column: column.to_owned(),
        data_type: data_type.to_owned(),
    }
}

/// Spark's metadata key on the part of a struct that represents a VARIANT, which is binary inside.
const VARIANT: &str = "variant";
