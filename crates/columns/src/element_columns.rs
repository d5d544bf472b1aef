//! Payloads that are elements of a fixed size as typed columns: batches of events with the columns of a description.
//!
//! A column is decoded in one loop over the bytes of a batch: payloads of one length stand one behind the other.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use ackline_json::Mode;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{ArrowError, DataType};

use crate::element::{Field as Part, Kind};
use crate::element_schema::{Plan, Source};

/// Fills the columns of a schema from elements.
#[derive(Debug)]
pub(crate) struct Elements {
    plan: Plan,
    mode: Mode,
}

impl Elements {
    /// Fills the columns of a plan.
    pub(crate) fn new(plan: Plan, mode: Mode) -> Self {
        Self { plan, mode }
    }

    /// The columns and their sources.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The handling of malformed events.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// The events of a batch with the columns of the schema.
    ///
    /// # Errors
    /// The batch lacks a column; or an event is malformed and the mode is [`Mode::FailFast`].
    pub(crate) fn project(&self, batch: &RecordBatch) -> Result<RecordBatch, ElementError> {
        let payloads = column(batch, "payload")?;
        let payloads = payloads
            .as_binary_opt::<i32>()
            .ok_or_else(|| ElementError::Batch("the column payload is not binary".to_owned()))?;
        let rows = self.rows(payloads);
        if let Rows::Mixed(rows) = &rows
            && self.mode == Mode::FailFast
            && let Some(row) = rows.iter().position(Option::is_none)
        {
            return Err(self.malformed(batch, payloads, row));
        }
        let present = rows.present();
        let columns = self.plan.columns().map(|(field, source)| match source {
            Source::Event => column(batch, field.name()).cloned(),
            Source::Field(at) => self.field(*at, field.data_type(), &rows, present.as_ref()),
            Source::Corrupt => Ok(corrupt(payloads, &rows)),
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let made = RecordBatch::try_new_with_options(self.plan.schema(), columns, &options)?;
        match present {
            Some(present) if self.mode == Mode::DropMalformed => {
                let kept = BooleanArray::new(present.into_inner(), None);
                Ok(arrow_select::filter::filter_record_batch(&made, &kept)?)
            }
            _ => Ok(made),
        }
    }

    fn rows<'a>(&self, payloads: &'a BinaryArray) -> Rows<'a> {
        let size = self.plan.element().size();
        let is_packed =
            payloads.null_count() == 0 && payloads.offsets().lengths().all(|length| length == size);
        if is_packed {
            let first = payloads.value_offsets().first().copied().unwrap_or(0);
            let first = usize::try_from(first).unwrap_or(0);
            let end = first.saturating_add(payloads.len().saturating_mul(size));
            if let Some(bytes) = payloads.value_data().get(first..end)
                && self.strange(bytes).is_none()
            {
                return Rows::Packed { bytes, size };
            }
        }
        let rows = payloads.iter().map(|payload| {
            payload.filter(|payload| payload.len() == size && self.strange(payload).is_none())
        });
        Rows::Mixed(rows.collect())
    }

    /// The first field of truth values with a byte that is none, in elements one behind the other.
    fn strange(&self, elements: &[u8]) -> Option<&Part> {
        let truths = self.plan.element().fields().iter();
        let mut truths = truths.filter(|field| field.kind == Kind::Bool);
        truths.find(|field| {
            let bytes = elements
                .iter()
                .skip(field.at)
                .step_by(self.plan.element().size());
            bytes.fold(0, |all, byte| all | byte) > 1
        })
    }

    fn field(
        &self,
        at: usize,
        wanted: &DataType,
        rows: &Rows<'_>,
        present: Option<&NullBuffer>,
    ) -> Result<ArrayRef, ElementError> {
        let missing = || ElementError::Batch(format!("the element has no field {at}"));
        let field = self.plan.element().fields().get(at).ok_or_else(missing)?;
        Ok(decoded(field, wanted, rows, present))
    }

    fn malformed(&self, batch: &RecordBatch, payloads: &BinaryArray, row: usize) -> ElementError {
        let position = column(batch, "position")
            .ok()
            .and_then(|column| column.as_primitive_opt::<Int64Type>())
            .and_then(|positions| positions.values().get(row).copied())
            .map_or(0, i64::unsigned_abs);
        let size = self.plan.element().size();
        let reason = if payloads.is_null(row) {
            Malformed::Pairs
        } else if payloads.value(row).len() != size {
            Malformed::Size {
                bytes: payloads.value(row).len(),
                size,
            }
        } else {
            let field = self.strange(payloads.value(row));
            Malformed::Bool {
                field: field.map_or_else(String::new, |field| field.name.clone()),
            }
        };
        ElementError::Malformed {
            position,
            reason,
            element: self.plan.element().shown().to_owned(),
        }
    }
}

/// The elements of a batch.
enum Rows<'a> {
    /// Every payload is an element, and they stand one behind the other.
    Packed { bytes: &'a [u8], size: usize },
    /// The element of each event; `None` for malformed events.
    Mixed(Vec<Option<&'a [u8]>>),
}

impl<'a> Rows<'a> {
    /// Which events are elements; `None` if all are.
    fn present(&self) -> Option<NullBuffer> {
        match self {
            Self::Packed { .. } => None,
            Self::Mixed(rows) => Some(rows.iter().map(Option::is_some).collect::<Vec<_>>().into()),
        }
    }

    /// The value of each element, by `read`; the default for malformed events.
    fn each<T: Default>(&self, read: impl Fn(&'a [u8]) -> T) -> Vec<T> {
        match self {
            Self::Packed { bytes, size } => bytes.chunks_exact(*size).map(read).collect(),
            Self::Mixed(rows) => {
                let rows = rows.iter();
                rows.map(|row| row.map_or_else(T::default, &read)).collect()
            }
        }
    }

    /// The number at an offset of each element.
    fn numbers<const W: usize, T: Default>(
        &self,
        at: usize,
        read: impl Fn([u8; W]) -> T,
    ) -> Vec<T> {
        if let Self::Packed { bytes, size } = self
            && *size == W
        {
            let (elements, _) = bytes.as_chunks::<W>();
            return elements.iter().map(|element| read(*element)).collect();
        }
        self.each(|element| {
            let bytes = element.get(at..).and_then(<[u8]>::first_chunk::<W>);
            read(bytes.copied().unwrap_or([0; W]))
        })
    }
}

/// The column of a field; `wanted` is the type of its numbers, or a wider one.
fn decoded(
    field: &Part,
    wanted: &DataType,
    rows: &Rows<'_>,
    present: Option<&NullBuffer>,
) -> ArrayRef {
    macro_rules! numbers {
        ($number:ty, $array:ty) => {
            numbers!($number, $array, |number| number)
        };
        ($number:ty, $array:ty, $wide:expr) => {{
            let values = if field.is_big_endian {
                rows.numbers(field.at, |bytes| $wide(<$number>::from_be_bytes(bytes)))
            } else {
                rows.numbers(field.at, |bytes| $wide(<$number>::from_le_bytes(bytes)))
            };
            let column = PrimitiveArray::<$array>::new(values.into(), present.cloned());
            Arc::new(column.with_data_type(wanted.clone()))
        }};
    }
    match (field.kind, wanted) {
        (Kind::Bool, _) => Arc::new(BooleanArray::new(truths(rows, field.at), present.cloned())),
        (Kind::Bytes(count), _) => Arc::new(raw(rows, field.at, count)),
        (Kind::I8, _) => numbers!(i8, Int8Type),
        (Kind::I16, _) => numbers!(i16, Int16Type),
        (Kind::I32, _) => numbers!(i32, Int32Type),
        (Kind::I64, _) => numbers!(i64, Int64Type),
        (Kind::U8, DataType::Int16) => numbers!(u8, Int16Type, i16::from),
        (Kind::U16, DataType::Int32) => numbers!(u16, Int32Type, i32::from),
        (Kind::U32, DataType::Int64) => numbers!(u32, Int64Type, i64::from),
        (Kind::U64, DataType::Decimal128(..)) => numbers!(u64, Decimal128Type, i128::from),
        (Kind::U8, _) => numbers!(u8, UInt8Type),
        (Kind::U16, _) => numbers!(u16, UInt16Type),
        (Kind::U32, _) => numbers!(u32, UInt32Type),
        (Kind::U64, _) => numbers!(u64, UInt64Type),
        (Kind::F32, _) => numbers!(f32, Float32Type),
        (Kind::F64, _) => numbers!(f64, Float64Type),
    }
}

fn truths(rows: &Rows<'_>, at: usize) -> BooleanBuffer {
    rows.each(|element| element.get(at) == Some(&1)).into()
}

fn raw(rows: &Rows<'_>, at: usize, count: usize) -> BinaryArray {
    let place = at..at.saturating_add(count);
    let values = rows.each(|element| element.get(place.clone()));
    values.into_iter().collect()
}

/// The payloads of malformed events; an event of pairs has none, and is empty there.
fn corrupt(payloads: &BinaryArray, rows: &Rows<'_>) -> ArrayRef {
    let Rows::Mixed(rows) = rows else {
        return Arc::new(BinaryArray::new_null(payloads.len()));
    };
    let both = payloads.iter().zip(rows);
    let corrupt = both.map(|(payload, row)| match row {
        Some(_) => None,
        None => Some(payload.unwrap_or_default()),
    });
    Arc::new(corrupt.collect::<BinaryArray>())
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, ElementError> {
    let missing = || ElementError::Batch(format!("the column {name} was not read"));
    batch.column_by_name(name).ok_or_else(missing)
}

/// The fault of an event that is no element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Malformed {
    /// The payload has another length.
    Size {
        /// Bytes of the payload.
        bytes: usize,
        /// Bytes of an element.
        size: usize,
    },
    /// A truth value is neither 0 nor 1.
    Bool {
        /// The field's name.
        field: String,
    },
    /// The event has keys and values in place of a payload.
    Pairs,
}

impl Malformed {
    fn code(&self) -> &'static str {
        match self {
            Self::Size { .. } => "element.size",
            Self::Bool { .. } => "element.bool",
            Self::Pairs => "element.pairs",
        }
    }
}

impl Display for Malformed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { bytes, size } => {
                let unit = if *bytes == 1 { "byte" } else { "bytes" };
                write!(
                    f,
                    "the payload has {bytes} {unit}, and an element has {size}"
                )
            }
            Self::Bool { field } => write!(
                f,
                "the field {field} is a bool and its byte is neither 0 nor 1"
            ),
            Self::Pairs => f.write_str("the event has keys and values, and no payload"),
        }
    }
}

/// The reason a batch could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementError {
    /// An event is malformed and the mode is [`Mode::FailFast`].
    Malformed {
        /// The event's position.
        position: u64,
        /// The event's fault.
        reason: Malformed,
        /// The description; cut off after 100 characters.
        element: String,
    },
    /// The columns do not make a batch.
    Batch(String),
}

impl ElementError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed { reason, .. } => reason.code(),
            Self::Batch(_) => "element.batch",
        }
    }
}

impl Display for ElementError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed {
                position,
                reason,
                element,
            } => write!(
                f,
                "position {position}: {reason} (element {element:?}); the mode is FAILFAST"
            ),
            Self::Batch(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ElementError {}

impl From<ArrowError> for ElementError {
    fn from(error: ArrowError) -> Self {
        Self::Batch(error.to_string())
    }
}
