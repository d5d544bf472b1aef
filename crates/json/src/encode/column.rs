//! Writers of a column's values: the type is matched once per batch.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type,
    Decimal64Type, Decimal128Type, Decimal256Type, DecimalType, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalYearMonthType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, GenericBinaryArray, GenericListArray, MapArray,
    OffsetSizeTrait, downcast_integer,
};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::object::Object;
use super::scalar::{
    Unit, push, push_date, push_decimal, push_duration, push_months, push_time_of_day,
    push_timestamp,
};
use super::{EncodeError, Nulls, unsupported};
use crate::escape::push_string;

/// Appends the value of a row that is not null.
pub(super) type Write = Box<dyn Fn(usize, &mut Vec<u8>)>;

/// Whether a type without parts can be written.
pub(super) fn is_scalar(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::Time32(unit) => matches!(unit, TimeUnit::Second | TimeUnit::Millisecond),
        T::Time64(unit) => matches!(unit, TimeUnit::Microsecond | TimeUnit::Nanosecond),
        T::Interval(unit) => *unit == IntervalUnit::YearMonth,
        T::Utf8
        | T::LargeUtf8
        | T::Utf8View
        | T::Binary
        | T::LargeBinary
        | T::BinaryView
        | T::FixedSizeBinary(_)
        | T::Null
        | T::Boolean => true,
        other => other.is_primitive(),
    }
}

/// The writer of `array`'s values; their type was checked before.
pub(super) fn writer(array: &ArrayRef, nulls: Nulls) -> Result<Write, EncodeError> {
    if let Some(write) = nested(array, nulls)? {
        return Ok(write);
    }
    text(array.as_ref())
        .or_else(|| number(array.as_ref()))
        .or_else(|| time(array.as_ref()))
        .ok_or_else(|| unsupported("", &array.data_type().to_string()))
}

/// A writer that passes the bytes of strings or binary to `put`; `None` for other types.
pub(super) fn bytes(array: &dyn Array, put: impl Put) -> Option<Write> {
    // Strings are read as bytes: the producer of the array may not have checked that they are
    // UTF-8.
    Some(match array.data_type() {
        DataType::Utf8 => offsets::<i32>(array.as_string::<i32>().clone().into(), put),
        DataType::LargeUtf8 => offsets::<i64>(array.as_string::<i64>().clone().into(), put),
        DataType::Binary => offsets(array.as_binary::<i32>().clone(), put),
        DataType::LargeBinary => offsets(array.as_binary::<i64>().clone(), put),
        DataType::Utf8View => views(array.as_string_view().clone().to_binary_view(), put),
        DataType::BinaryView => views(array.as_binary_view().clone(), put),
        DataType::FixedSizeBinary(_) => {
            let array = array.as_fixed_size_binary().clone();
            Box::new(move |row, out| put(array.value(row), out))
        }
        _ => return None,
    })
}

/// Encodes a value's bytes.
pub(super) trait Put: Fn(&[u8], &mut Vec<u8>) + 'static {}

impl<F: Fn(&[u8], &mut Vec<u8>) + 'static> Put for F {}

fn offsets<O: OffsetSizeTrait>(array: GenericBinaryArray<O>, put: impl Put) -> Write {
    Box::new(move |row, out| put(array.value(row), out))
}

fn views(array: BinaryViewArray, put: impl Put) -> Write {
    Box::new(move |row, out| put(array.value(row), out))
}

fn text(array: &dyn Array) -> Option<Write> {
    match array.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => bytes(array, push_string),
        _ => bytes(array, push_base64),
    }
}

fn push_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]);
    debug_assert!(written.is_ok(), "four for three");
    out.push(b'"');
}

fn number(array: &dyn Array) -> Option<Write> {
    Some(match array.data_type() {
        DataType::Null => Box::new(|_, out| out.extend_from_slice(b"null")),
        DataType::Boolean => {
            let array = array.as_boolean().clone();
            Box::new(move |row, out| push(&array.value(row), out))
        }
        DataType::Int8 => plain::<Int8Type>(array),
        DataType::Int16 => plain::<Int16Type>(array),
        DataType::Int32 => plain::<Int32Type>(array),
        DataType::Int64 => plain::<Int64Type>(array),
        DataType::UInt8 => plain::<UInt8Type>(array),
        DataType::UInt16 => plain::<UInt16Type>(array),
        DataType::UInt32 => plain::<UInt32Type>(array),
        DataType::UInt64 => plain::<UInt64Type>(array),
        DataType::Float16 => each::<Float16Type>(array, |value, out| push(&value.to_f32(), out)),
        DataType::Float32 => plain::<Float32Type>(array),
        DataType::Float64 => plain::<Float64Type>(array),
        DataType::Decimal32(_, scale) => decimal::<Decimal32Type>(array, *scale),
        DataType::Decimal64(_, scale) => decimal::<Decimal64Type>(array, *scale),
        DataType::Decimal128(_, scale) => decimal::<Decimal128Type>(array, *scale),
        DataType::Decimal256(_, scale) => decimal::<Decimal256Type>(array, *scale),
        _ => return None,
    })
}

fn time(array: &dyn Array) -> Option<Write> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    Some(match array.data_type() {
        DataType::Date32 => each::<Date32Type>(array, |days, out| push_date(days.into(), out)),
        DataType::Date64 => each::<Date64Type>(array, |time, out| {
            push_date(time.div_euclid(86_400_000), out);
        }),
        DataType::Timestamp(unit, zone) => {
            let (in_unit, is_utc) = (Unit::of(*unit), zone.is_some());
            let write = move |time, out: &mut Vec<u8>| push_timestamp(time, in_unit, is_utc, out);
            match unit {
                Second => each::<TimestampSecondType>(array, write),
                Millisecond => each::<TimestampMillisecondType>(array, write),
                Microsecond => each::<TimestampMicrosecondType>(array, write),
                Nanosecond => each::<TimestampNanosecondType>(array, write),
            }
        }
        DataType::Time32(unit) | DataType::Time64(unit) => {
            let in_unit = Unit::of(*unit);
            let long = move |time, out: &mut Vec<u8>| push_time_of_day(time, in_unit, out);
            let short = move |time: i32, out: &mut Vec<u8>| long(time.into(), out);
            match unit {
                Second => each::<Time32SecondType>(array, short),
                Millisecond => each::<Time32MillisecondType>(array, short),
                Microsecond => each::<Time64MicrosecondType>(array, long),
                Nanosecond => each::<Time64NanosecondType>(array, long),
            }
        }
        DataType::Duration(unit) => {
            let in_unit = Unit::of(*unit);
            let write = move |time, out: &mut Vec<u8>| push_duration(time, in_unit, out);
            match unit {
                Second => each::<DurationSecondType>(array, write),
                Millisecond => each::<DurationMillisecondType>(array, write),
                Microsecond => each::<DurationMicrosecondType>(array, write),
                Nanosecond => each::<DurationNanosecondType>(array, write),
            }
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            each::<IntervalYearMonthType>(array, push_months)
        }
        _ => return None,
    })
}

fn nested(array: &ArrayRef, nulls: Nulls) -> Result<Option<Write>, EncodeError> {
    Ok(Some(match array.data_type() {
        DataType::Struct(fields) => {
            let object = Object::of_columns(fields, array.as_struct().columns(), nulls)?;
            Box::new(move |row, out| {
                object.open(row, out);
                Object::close(out);
            })
        }
        DataType::List(_) => list(array.as_list::<i32>(), nulls)?,
        DataType::LargeList(_) => list(array.as_list::<i64>(), nulls)?,
        DataType::FixedSizeList(_, _) => {
            let lists = array.as_fixed_size_list();
            let item = item(lists.values(), nulls)?;
            let len = usize::try_from(lists.value_length()).unwrap_or_default();
            Box::new(move |row, out| push_list(row * len..(row + 1) * len, &item, out))
        }
        DataType::Map(_, _) => map(array.as_map(), nulls)?,
        DataType::Dictionary(_, _) => dictionary(array, nulls)?,
        _ => return Ok(None),
    }))
}

fn list<O: OffsetSizeTrait>(
    lists: &GenericListArray<O>,
    nulls: Nulls,
) -> Result<Write, EncodeError> {
    let item = item(lists.values(), nulls)?;
    let offsets = lists.offsets().clone();
    Ok(Box::new(move |row, out| {
        push_list(
            offsets[row].as_usize()..offsets[row + 1].as_usize(),
            &item,
            out,
        );
    }))
}

/// The writer of an element, or of a map's value: its nulls are written.
fn item(values: &ArrayRef, nulls: Nulls) -> Result<Write, EncodeError> {
    let write = writer(values, nulls)?;
    Ok(match values.logical_nulls() {
        None => write,
        Some(nulls) => Box::new(move |row, out| {
            if nulls.is_null(row) {
                out.extend_from_slice(b"null");
            } else {
                write(row, out);
            }
        }),
    })
}

fn push_list(rows: std::ops::Range<usize>, item: &Write, out: &mut Vec<u8>) {
    out.push(b'[');
    for row in rows {
        item(row, out);
        out.push(b',');
    }
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b']');
}

fn map(maps: &MapArray, nulls: Nulls) -> Result<Write, EncodeError> {
    let key = writer(maps.keys(), nulls)?;
    let value = item(maps.values(), nulls)?;
    let offsets = maps.offsets().clone();
    Ok(Box::new(move |row, out| {
        out.push(b'{');
        for entry in offsets[row].as_usize()..offsets[row + 1].as_usize() {
            push_key(entry, &key, out);
            out.push(b':');
            value(entry, out);
            out.push(b',');
        }
        Object::close(out);
    }))
}

/// A name must be a string: other keys get quotes.
fn push_key(entry: usize, key: &Write, out: &mut Vec<u8>) {
    let start = out.len();
    key(entry, out);
    if out.get(start) != Some(&b'"') {
        out.insert(start, b'"');
        out.push(b'"');
    }
}

fn dictionary(array: &ArrayRef, nulls: Nulls) -> Result<Write, EncodeError> {
    fn by_key<K: ArrowDictionaryKeyType>(
        array: &ArrayRef,
        nulls: Nulls,
    ) -> Result<Write, EncodeError> {
        let dictionary = array.as_dictionary::<K>();
        let value = writer(dictionary.values(), nulls)?;
        let keys = dictionary.keys().clone();
        Ok(Box::new(move |row, out| {
            value(keys.value(row).as_usize(), out);
        }))
    }
    let DataType::Dictionary(keys, _) = array.data_type() else {
        return Err(unsupported("", &array.data_type().to_string()));
    };
    macro_rules! dispatch {
        ($key:ty) => {
            by_key::<$key>(array, nulls)
        };
    }
    downcast_integer! {
        keys.as_ref() => (dispatch),
        other => Err(unsupported("", &other.to_string())),
    }
}

/// Numbers as serde writes them.
fn plain<T: ArrowPrimitiveType>(array: &dyn Array) -> Write
where
    T::Native: Serialize,
{
    each::<T>(array, |value, out| push(&value, out))
}

fn each<T: ArrowPrimitiveType>(
    array: &dyn Array,
    write: impl Fn(T::Native, &mut Vec<u8>) + 'static,
) -> Write {
    let array = array.as_primitive::<T>().clone();
    Box::new(move |row, out| write(array.value(row), out))
}

fn decimal<T: DecimalType>(array: &dyn Array, scale: i8) -> Write
where
    T::Native: ToString,
{
    each::<T>(array, move |value, out| {
        push_decimal(&value.to_string(), scale, out);
    })
}
