//! Columns that are filled value by value: the values that fit a type, and the handling of others.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, ListArray, MapArray, PrimitiveArray, StringArray,
    StructArray,
};
use arrow_buffer::{BooleanBufferBuilder, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, FieldRef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::escape::push_string;
use crate::number::special;
use crate::scope::Scope;
use crate::text::{body, unescape, unescaped};
use crate::value::{Value, elements, members};

/// Whether a value was stored in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// The whole value was stored.
    Whole,
    /// Members of objects within were not: their names are unknown.
    Unknown,
    /// The value, or a part of it, was not: there is a null.
    Misfit,
}

/// A column, or the elements of a list, or the keys or values of a map.
pub(crate) trait Column: Send {
    /// Appends a value that is not null.
    fn append(&mut self, value: Value<'_>) -> Fit;
    fn append_null(&mut self);
    /// Returns the appended values; nothing is left.
    fn finish(&mut self) -> Result<ArrayRef, ArrowError>;
}

/// Appends a value as it is.
pub(crate) fn put(column: &mut dyn Column, raw: &str) -> Fit {
    match Value::of(raw) {
        Value::Null => {
            column.append_null();
            Fit::Whole
        }
        value => column.append(value),
    }
}

/// Appends the value that a string writes, which may be a number or a truth value.
pub(crate) fn put_text(column: &mut dyn Column, raw: &str) -> Fit {
    let value = Value::of(raw);
    let text = value.text();
    column.append(text.as_deref().and_then(Value::of_text).unwrap_or(value))
}

/// Values of a fixed width.
pub(crate) struct Primitive<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
    data_type: DataType,
    parse: Parse<T::Native>,
}

/// Converts a value to a type, if it fits.
pub(crate) type Parse<N> = Box<dyn Fn(Value<'_>) -> Option<N> + Send>;

impl<T: ArrowPrimitiveType> Primitive<T> {
    pub(crate) fn new(data_type: &DataType, parse: Parse<T::Native>) -> Self {
        Self {
            values: Vec::new(),
            nulls: NullBufferBuilder::new(0),
            data_type: data_type.clone(),
            parse,
        }
    }

    /// Whole numbers, written without fraction and exponent.
    pub(crate) fn whole(data_type: &DataType) -> Self
    where
        T::Native: FromStr,
    {
        let parse = |value: Value<'_>| match value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        };
        Self::new(data_type, Box::new(parse))
    }
}

/// The nearest floating-point number, which must be finite, or one of Spark's names for those that
/// JSON lacks.
pub(crate) fn float(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Number(text) => text.parse().ok().filter(|number: &f64| number.is_finite()),
        _ => special(&value.text()?),
    }
}

/// The same with 32 bits, rounded once.
pub(crate) fn short_float(value: Value<'_>) -> Option<f32> {
    match value {
        Value::Number(text) => text.parse().ok().filter(|number: &f32| number.is_finite()),
        #[allow(
            clippy::cast_possible_truncation,
            reason = "infinities and NaN stay unchanged"
        )]
        _ => special(&value.text()?).map(|number| number as f32),
    }
}

impl<T: ArrowPrimitiveType> Column for Primitive<T> {
    fn append(&mut self, value: Value<'_>) -> Fit {
        if let Some(value) = (self.parse)(value) {
            self.values.push(value);
            self.nulls.append_non_null();
            return Fit::Whole;
        }
        self.append_null();
        Fit::Misfit
    }

    fn append_null(&mut self) {
        self.values.push(T::Native::default());
        self.nulls.append_null();
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = ScalarBuffer::from(take_full(&mut self.values));
        let array = PrimitiveArray::<T>::try_new(values, self.nulls.finish())?;
        Ok(Arc::new(array.with_data_type(self.data_type.clone())))
    }
}

pub(crate) struct Booleans {
    values: BooleanBufferBuilder,
    nulls: NullBufferBuilder,
}

impl Default for Booleans {
    fn default() -> Self {
        Self {
            values: BooleanBufferBuilder::new(0),
            nulls: NullBufferBuilder::new(0),
        }
    }
}

impl Column for Booleans {
    fn append(&mut self, value: Value<'_>) -> Fit {
        let Value::Bool(value) = value else {
            self.append_null();
            return Fit::Misfit;
        };
        self.values.append(value);
        self.nulls.append_non_null();
        Fit::Whole
    }

    fn append_null(&mut self) {
        self.values.append(false);
        self.nulls.append_null();
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let array = BooleanArray::new(self.values.finish(), self.nulls.finish());
        Ok(Arc::new(array))
    }
}

/// Byte strings of any length, one after the other.
pub(crate) struct Bytes {
    data: Vec<u8>,
    offsets: Offsets,
    nulls: NullBufferBuilder,
    kind: BytesKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BytesKind {
    /// A string's text; of any other value its JSON text.
    Text,
    /// The bytes that a string encodes in base64 (RFC 4648 §4, padded).
    Binary,
}

impl Bytes {
    pub(crate) fn new(kind: BytesKind) -> Self {
        Self {
            data: Vec::new(),
            offsets: Offsets::default(),
            nulls: NullBufferBuilder::new(0),
            kind,
        }
    }

    /// Appends the output of `write`, if it returns that it is complete.
    pub(crate) fn append_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> bool {
        let before = self.data.len();
        let is_whole = write(&mut self.data).is_some();
        if is_whole {
            self.nulls.append_non_null();
        } else {
            self.data.truncate(before);
            self.nulls.append_null();
        }
        self.offsets.push(self.data.len());
        is_whole
    }

    pub(crate) fn append_bytes(&mut self, value: &[u8]) {
        self.append_with(|bytes| {
            bytes.extend_from_slice(value);
            Some(())
        });
    }
}

impl Column for Bytes {
    fn append(&mut self, value: Value<'_>) -> Fit {
        let kind = self.kind;
        let is_whole = self.append_with(|bytes| {
            let raw = match (value, kind) {
                (Value::String(body), BytesKind::Text) => return unescape(body, bytes),
                (Value::String(body), BytesKind::Binary) => {
                    return STANDARD.decode_vec(unescaped(body)?.as_bytes(), bytes).ok();
                }
                (_, BytesKind::Binary) | (Value::Null, _) => return None,
                (Value::Bool(true), _) => "true",
                (Value::Bool(false), _) => "false",
                (Value::Number(raw) | Value::Object(raw) | Value::Array(raw), _) => raw,
            };
            bytes.extend_from_slice(raw.as_bytes());
            Some(())
        });
        if is_whole { Fit::Whole } else { Fit::Misfit }
    }

    fn append_null(&mut self) {
        self.append_with(|_| None);
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let bytes = take_full(&mut self.data).into();
        let (offsets, nulls) = (self.offsets.finish()?, self.nulls.finish());
        Ok(match self.kind {
            BytesKind::Text => Arc::new(StringArray::try_new(offsets, bytes, nulls)?),
            BytesKind::Binary => Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?),
        })
    }
}

/// Lists; a value that does not fit an element is a null in the list.
pub(crate) struct Lists {
    element: FieldRef,
    column: Box<dyn Column>,
    count: usize,
    offsets: Offsets,
    nulls: NullBufferBuilder,
}

impl Lists {
    pub(crate) fn new(element: &FieldRef, column: Box<dyn Column>) -> Self {
        Self {
            element: element.clone(),
            column,
            count: 0,
            offsets: Offsets::default(),
            nulls: NullBufferBuilder::new(0),
        }
    }
}

impl Column for Lists {
    fn append(&mut self, value: Value<'_>) -> Fit {
        let Value::Array(array) = value else {
            self.append_null();
            return Fit::Misfit;
        };
        let mut fit = Fit::Whole;
        let (column, count) = (&mut *self.column, &mut self.count);
        let read = elements(array, &mut |element| {
            fit = fit.max(put(column, element));
            *count += 1;
        });
        self.offsets.push(self.count);
        self.nulls.append_non_null();
        if read.is_err() { Fit::Misfit } else { fit }
    }

    fn append_null(&mut self) {
        self.offsets.push(self.count);
        self.nulls.append_null();
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.count = 0;
        Ok(Arc::new(ListArray::try_new(
            self.element.clone(),
            self.offsets.finish()?,
            self.column.finish()?,
            self.nulls.finish(),
        )?))
    }
}

/// Maps with texts as keys; of a repeated key the last value is kept.
pub(crate) struct Maps {
    entries: FieldRef,
    is_sorted: bool,
    keys: Bytes,
    values: Box<dyn Column>,
    count: usize,
    offsets: Offsets,
    nulls: NullBufferBuilder,
}

impl Maps {
    pub(crate) fn new(entries: &FieldRef, is_sorted: bool, values: Box<dyn Column>) -> Self {
        Self {
            entries: entries.clone(),
            is_sorted,
            keys: Bytes::new(BytesKind::Text),
            values,
            count: 0,
            offsets: Offsets::default(),
            nulls: NullBufferBuilder::new(0),
        }
    }

    fn append_entries(&mut self, entries: &[(std::borrow::Cow<'_, str>, &str)]) -> Fit {
        let last: HashMap<&str, usize> = entries
            .iter()
            .enumerate()
            .map(|(at, (key, _))| (&**key, at))
            .collect();
        let mut fit = Fit::Whole;
        for (at, (key, value)) in entries.iter().enumerate() {
            if last.get(&**key) == Some(&at) {
                self.keys.append_bytes(key.as_bytes());
                fit = fit.max(put(&mut *self.values, value));
                self.count += 1;
            }
        }
        fit
    }
}

impl Column for Maps {
    fn append(&mut self, value: Value<'_>) -> Fit {
        let Value::Object(object) = value else {
            self.append_null();
            return Fit::Misfit;
        };
        let (mut entries, mut fit) = (Vec::new(), Fit::Whole);
        let read = members(object, &mut |name, value| match unescaped(body(name)) {
            Some(name) => entries.push((name, value)),
            None => fit = Fit::Misfit,
        });
        fit = fit.max(self.append_entries(&entries));
        self.offsets.push(self.count);
        self.nulls.append_non_null();
        if read.is_err() { Fit::Misfit } else { fit }
    }

    fn append_null(&mut self) {
        self.offsets.push(self.count);
        self.nulls.append_null();
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.count = 0;
        let DataType::Struct(fields) = self.entries.data_type() else {
            return Err(ArrowError::SchemaError("a map without entries".to_owned()));
        };
        let columns = vec![self.keys.finish()?, self.values.finish()?];
        Ok(Arc::new(MapArray::try_new(
            self.entries.clone(),
            self.offsets.finish()?,
            StructArray::try_new(fields.clone(), columns, None)?,
            self.nulls.finish(),
            self.is_sorted,
        )?))
    }
}

/// Structs within lists and maps.
pub(crate) struct Structs {
    pub(crate) scope: Scope,
    pub(crate) nulls: NullBufferBuilder,
}

impl Column for Structs {
    fn append(&mut self, value: Value<'_>) -> Fit {
        let Value::Object(object) = value else {
            self.append_null();
            return Fit::Misfit;
        };
        if self.scope.read(object).is_err() {
            self.append_null();
            return Fit::Misfit;
        }
        self.nulls.append_non_null();
        self.scope.append(object)
    }

    fn append_null(&mut self) {
        self.nulls.append_null();
        self.scope.append_null();
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.nulls.finish();
        let columns = self.scope.finish()?;
        let array = StructArray::try_new(self.scope.fields(), columns, nulls)?;
        Ok(Arc::new(array))
    }
}

/// The ends of a column's values; a column cannot have more than 2 GiB.
#[derive(Debug)]
pub(crate) struct Offsets {
    ends: Vec<i32>,
    is_full: bool,
}

impl Default for Offsets {
    fn default() -> Self {
        Self {
            ends: vec![0],
            is_full: false,
        }
    }
}

impl Offsets {
    fn push(&mut self, end: usize) {
        self.ends.push(i32::try_from(end).unwrap_or_else(|_| {
            self.is_full = true;
            i32::MAX
        }));
    }

    fn finish(&mut self) -> Result<OffsetBuffer<i32>, ArrowError> {
        let is_full = std::mem::take(&mut self.is_full);
        let ends = take_full(&mut self.ends);
        self.ends.push(0);
        if is_full {
            let message = "a column of one batch has more than 2 GiB: read fewer events at once";
            return Err(ArrowError::InvalidArgumentError(message.to_owned()));
        }
        Ok(OffsetBuffer::new(ScalarBuffer::from(ends)))
    }
}

/// Takes the collected values; the next batch will be about as large.
fn take_full<T>(values: &mut Vec<T>) -> Vec<T> {
    let next = Vec::with_capacity(values.len().min(MOST_AHEAD / size_of::<T>().max(1)));
    std::mem::replace(values, next)
}

/// Bytes that are allocated for a batch before it has any.
const MOST_AHEAD: usize = 1 << 20;

/// Appends a payload as text, or nothing; invalid UTF-8 is replaced.
pub(crate) fn append_lossy(column: &mut Bytes, payload: &[u8]) {
    column.append_bytes(String::from_utf8_lossy(payload).as_bytes());
}

/// Appends `{"name":"payload as text"}`.
pub(crate) fn append_named(column: &mut Bytes, name: &str, payload: &[u8]) {
    column.append_with(|bytes| {
        bytes.push(b'{');
        push_string(name.as_bytes(), bytes);
        bytes.push(b':');
        push_string(payload, bytes);
        bytes.push(b'}');
        Some(())
    });
}
