//! The columns of rows that become destinations and properties of messages: the types that can be, and their values.

use ackline::micromsg::{Message, Number, Property, is_field};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, DecimalType, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, MapArray, RecordBatch, new_empty_array};
use arrow_schema::{DataType, Schema, TimeUnit};
use bytes::Bytes;

/// The columns by their names, as the options give them.
#[derive(Default)]
pub(super) struct Named {
    /// The column of destinations; `None` if the URL has the destination.
    pub(super) destination: Option<String>,
    /// Columns, each with the name of its property; that of a map is empty.
    pub(super) properties: Vec<(String, String)>,
}

impl Named {
    /// Finds the columns in a schema; an error is a sentence.
    pub(super) fn found_in(&self, schema: &Schema) -> Result<Found<'_>, String> {
        let index = |column: &str| {
            let names: Vec<&str> = schema
                .fields()
                .iter()
                .map(|it| it.name().as_str())
                .collect();
            let at = names.iter().position(|name| *name == column);
            at.ok_or_else(|| format!("there is no column {column:?}, only {}", names.join(", ")))
        };
        let destination = self.destination.as_deref().map(|column| {
            let at = index(column).map_err(|why| format!("{why}: {NO_DESTINATION}"))?;
            let data_type = schema.field(at).data_type();
            match data_type {
                DataType::Utf8 | DataType::LargeUtf8 => Ok((at, column)),
                _ => Err(format!(
                    "column {column} is {data_type}, and a destination is a string"
                )),
            }
        });
        let destination = destination.transpose()?;
        let mut properties: Vec<(usize, &str, &str)> = Vec::new();
        for (column, property) in &self.properties {
            let at = index(column)?;
            let property = property_of(column, property, schema.field(at).data_type())?;
            let is_taken = properties.iter().any(|(_, _, other)| *other == property);
            if is_taken && !property.is_empty() {
                return Err(format!("two columns give the property {property:?}"));
            }
            properties.push((at, column, property));
        }
        let is_used = |at: &usize| {
            let used = properties.iter().map(|(at, _, _)| at);
            used.chain(destination.iter().map(|(at, _)| at))
                .any(|used| used == at)
        };
        let payload = (0..schema.fields().len())
            .filter(|at| !is_used(at))
            .collect();
        Ok(Found {
            destination,
            properties,
            payload,
        })
    }
}

/// The columns of batches of one schema.
pub(super) struct Found<'a> {
    destination: Option<(usize, &'a str)>,
    properties: Vec<(usize, &'a str, &'a str)>,
    /// The other columns, which are the payload.
    pub(super) payload: Vec<usize>,
}

impl Found<'_> {
    /// The messages of a batch's rows; `destination` is that of all, unless a column has it. An error names the row by its
    /// number in the batch, and has a sentence.
    pub(super) fn messages(
        &self,
        batch: &RecordBatch,
        payloads: Vec<Bytes>,
        destination: &str,
    ) -> Result<Vec<Message>, (usize, String)> {
        let destinations = self.destination.map(|(at, column)| {
            let read = reader(batch.column(at).as_ref());
            (batch.column(at), column, read)
        });
        let mut properties = Vec::with_capacity(self.properties.len());
        for (at, column, property) in &self.properties {
            let values = Values::of(batch.column(*at), property);
            properties.push((batch.column(*at), *column, values));
        }
        let message = |(row, payload)| {
            let mut message = Message::new(destination, payload);
            if let Some((array, column, Some(read))) = &destinations {
                message.destination = destination_of(array, row, read)
                    .map_err(|why| format!("column {column} {why}"))?;
            }
            message.properties.reserve(properties.len());
            for (array, column, values) in &properties {
                if array.is_valid(row) {
                    let put = values.put(row, &mut message.properties);
                    put.map_err(|why| format!("column {column} {why}"))?;
                }
            }
            check_length(&message)?;
            Ok(message)
        };
        let rows = payloads.into_iter().enumerate();
        rows.map(|(row, payload)| message((row, payload)).map_err(|why| (row, why)))
            .collect()
    }
}

/// About the bytes that a message has on the wire, and never fewer.
pub(super) fn wire_bytes(message: &Message) -> usize {
    let properties = message.properties.iter().map(|(name, value)| {
        let value = match value {
            // Each byte may be escaped.
            Property::Text(text) => text.len().saturating_mul(3),
            Property::Number(_) | Property::Date(_) => LONGEST_NUMBER,
        };
        name.len().saturating_add(value).saturating_add(3)
    });
    let properties = properties.fold(0, usize::saturating_add);
    properties.saturating_add(message.payload.len())
}

/// The name of the property that a column of this type gives; empty for a map, whose keys are the names.
fn property_of<'a>(
    column: &'a str,
    given: &'a str,
    data_type: &DataType,
) -> Result<&'a str, String> {
    if is_map(data_type) {
        if given.is_empty() {
            return Ok(given);
        }
        return Err(format!(
            "column {column} is a map, whose keys are the names of its properties: write {column} alone"
        ));
    }
    let property = if given.is_empty() { column } else { given };
    if !is_field(property) {
        return Err(format!(
            "{property:?} cannot be the name of a property: names have lower-case letters, digits and hyphens. Write \
             property=column to give the column's property another name"
        ));
    }
    if reader(new_empty_array(data_type).as_ref()).is_some() {
        return Ok(property);
    }
    let advice = match data_type {
        DataType::Timestamp(_, None) => "it has no time zone: CAST it AS TIMESTAMP",
        _ => "CAST it AS STRING, or leave it in the payload",
    };
    Err(format!(
        "column {column} is {data_type}, which no property can hold: {advice}"
    ))
}

fn is_map(data_type: &DataType) -> bool {
    let is_text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8);
    let DataType::Map(entries, _) = data_type else {
        return false;
    };
    match entries.data_type() {
        DataType::Struct(parts) => parts.iter().all(|part| is_text(part.data_type())),
        _ => false,
    }
}

/// Reads the value of a row that is not null; an error is the end of a sentence about the column.
type Read<'a> = Box<dyn Fn(usize) -> Result<Property, String> + 'a>;

/// The properties that a column gives.
enum Values<'a> {
    One(&'a str, Read<'a>),
    Entries(&'a MapArray, Read<'a>, Read<'a>),
    /// The column has another type than the schema says.
    Nothing,
}

impl<'a> Values<'a> {
    fn of(array: &'a ArrayRef, property: &'a str) -> Self {
        if let Some(map) = array.as_map_opt() {
            let (keys, values) = (reader(map.keys().as_ref()), reader(map.values().as_ref()));
            let both = keys.zip(values);
            return both.map_or(Self::Nothing, |(keys, values)| {
                Self::Entries(map, keys, values)
            });
        }
        reader(array.as_ref()).map_or(Self::Nothing, |read| Self::One(property, read))
    }

    fn put(&self, row: usize, out: &mut Vec<(String, Property)>) -> Result<(), String> {
        match self {
            Self::One(property, read) => out.push(((*property).to_owned(), read(row)?)),
            Self::Entries(map, keys, values) => {
                let [from, to] = [row, row + 1].map(|at| map.value_offsets().get(at));
                let as_index =
                    |offset: Option<&i32>| offset.and_then(|it| usize::try_from(*it).ok());
                for at in as_index(from).unwrap_or(0)..as_index(to).unwrap_or(0) {
                    if map.values().is_valid(at) {
                        let name = named(text_of(keys(at)?), out)?;
                        out.push((name, values(at)?));
                    }
                }
            }
            Self::Nothing => {}
        }
        Ok(())
    }
}

/// A key of a map as the name of a property.
fn named(key: String, others: &[(String, Property)]) -> Result<String, String> {
    if !is_field(&key) {
        let key = shown(&key);
        return Err(format!(
            "has the key {key:?}, which cannot be the name of a property: names have lower-case letters, digits and hyphens"
        ));
    }
    if others.iter().any(|(name, _)| *name == key) {
        return Err(format!(
            "has the key {key:?}, and another column gives this property"
        ));
    }
    Ok(key)
}

/// The reader of a column's values; `None` for a type that no property can hold.
fn reader(array: &dyn Array) -> Option<Read<'_>> {
    Some(match array.data_type() {
        DataType::Int8 => whole::<Int8Type>(array),
        DataType::Int16 => whole::<Int16Type>(array),
        DataType::Int32 => whole::<Int32Type>(array),
        DataType::Int64 => whole::<Int64Type>(array),
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            // The fewest digits that read back as the same value.
            Box::new(move |row| fraction(&array.value(row).to_string()))
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            Box::new(move |row| fraction(&array.value(row).to_string()))
        }
        DataType::Decimal128(precision, scale) => {
            let (array, precision, scale) =
                (array.as_primitive::<Decimal128Type>(), *precision, *scale);
            Box::new(move |row| {
                let text = Decimal128Type::format_decimal(array.value(row), precision, scale);
                decimal(&text, scale)
            })
        }
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            Box::new(move |row| Ok(Property::Date(f64::from(array.value(row)) * DAY_SECONDS)))
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            let array = array.as_primitive::<TimestampMicrosecondType>();
            Box::new(move |row| seconds(array.value(row)))
        }
        DataType::Utf8 => {
            let array = array.as_string::<i32>().clone();
            text(arrow_array::BinaryArray::from(array))
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>().clone();
            text(arrow_array::LargeBinaryArray::from(array))
        }
        DataType::Boolean => {
            let array = array.as_boolean();
            Box::new(move |row| Ok(Property::Text(array.value(row).to_string())))
        }
        _ => return None,
    })
}

fn whole<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &dyn Array) -> Read<'_> {
    let array = array.as_primitive::<T>();
    Box::new(move |row| {
        let number = array.value(row).into();
        Ok(Property::Number(Number::Whole(number)))
    })
}

/// The texts of strings, which are read as bytes: the producer of the array may not have checked that they are UTF-8.
fn text<'a, O: arrow_array::OffsetSizeTrait>(
    array: arrow_array::GenericBinaryArray<O>,
) -> Read<'a> {
    Box::new(move |row| {
        let text = String::from_utf8_lossy(array.value(row));
        Ok(Property::Text(text.into_owned()))
    })
}

/// A number with a fraction, from its fewest digits.
fn fraction(text: &str) -> Result<Property, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    let number = number.ok_or_else(|| format!("is {text}, and a property's number is finite"))?;
    Ok(Property::Number(Number::Fraction(number)))
}

/// A decimal: whole numbers if it has no digits behind the point.
fn decimal(text: &str, scale: i8) -> Result<Property, String> {
    if scale <= 0 {
        let number = text.parse();
        let number =
            number.map_err(|_| format!("is {text}: a property's whole number has 64 bits"))?;
        return Ok(Property::Number(Number::Whole(number)));
    }
    let number = exact(text).ok_or_else(|| {
        format!(
            "is {text}: a property would lose digits of this decimal. CAST the column AS DOUBLE or AS STRING"
        )
    })?;
    Ok(Property::Number(Number::Fraction(number)))
}

fn seconds(micros: i64) -> Result<Property, String> {
    let text = Decimal128Type::format_decimal(micros.into(), MOST_DIGITS, MICROS);
    let seconds = exact(&text).ok_or_else(|| {
        format!(
            "is {text} s since 1970: a property would lose digits of this time. Use date_trunc, or CAST the column AS STRING"
        )
    })?;
    Ok(Property::Date(seconds))
}

/// The number of a decimal's text, if the fewest digits of the number are those of the text.
fn exact(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    let digits = |text: &str| {
        let trimmed = if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.')
        } else {
            text
        };
        trimmed.to_owned()
    };
    (digits(&number.to_string()) == digits(text)).then_some(number)
}

fn destination_of(array: &ArrayRef, row: usize, read: &Read<'_>) -> Result<String, String> {
    if array.is_null(row) {
        return Err("is null, and every row needs a destination".to_owned());
    }
    let destination = text_of(read(row)?);
    check_destination(&destination)
        .map_err(|why| format!("is {:?}: {why}", shown(&destination)))?;
    Ok(destination)
}

/// Refuses a destination that no frame can have, and an empty one.
pub(super) fn check_destination(destination: &str) -> Result<(), &'static str> {
    let is_destination = (1..=255).contains(&destination.len()) && destination.is_ascii();
    if is_destination {
        return Ok(());
    }
    Err("a destination has 1 to 255 characters of ASCII")
}

fn check_length(message: &Message) -> Result<(), String> {
    let most = wire_bytes(message).saturating_sub(message.payload.len());
    if most <= MOST_PROPERTIES {
        return Ok(());
    }
    let raw = message
        .raw_properties()
        .map_err(|error| error.to_string())?;
    if raw.len() <= MOST_PROPERTIES {
        return Ok(());
    }
    let len = raw.len();
    Err(format!(
        "its properties have {len} bytes, and a message's have {MOST_PROPERTIES} at the most"
    ))
}

fn text_of(value: Property) -> String {
    match value {
        Property::Text(text) => text,
        Property::Number(_) | Property::Date(_) => String::new(),
    }
}

/// The beginning of a value, for an error.
fn shown(value: &str) -> String {
    value.chars().take(MOST_SHOWN).collect()
}

const NO_DESTINATION: &str = "a destination stands in the URL, micromsg://host:port/DESTINATION, or in a column that \
                              micromsg.destination names";
const DAY_SECONDS: f64 = 86_400.0;
/// Digits behind the point of seconds that are counted in microseconds.
const MICROS: i8 = 6;
/// The most digits of a decimal.
const MOST_DIGITS: u8 = 38;
/// The most bytes of a message's properties on the wire.
const MOST_PROPERTIES: usize = 65_535;
/// Bytes of the longest number: the largest fraction has 309 digits, the smallest one 326 places.
const LONGEST_NUMBER: usize = 345;
/// Characters of a value that an error shows.
const MOST_SHOWN: usize = 100;
