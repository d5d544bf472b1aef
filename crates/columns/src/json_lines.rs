//! Event rows as JSON lines: the columns that were read, with a payload as text if it is UTF-8.

use ackline_spool::rfc3339;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use serde_json::{Map, Value};

/// Alphabet of RFC 4648 §4.
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// One line for each row, without its newline. Columns that are null are left out.
pub(crate) fn lines(batch: &RecordBatch) -> Vec<String> {
    (0..batch.num_rows()).map(|row| line(batch, row)).collect()
}

fn line(batch: &RecordBatch, row: usize) -> String {
    let mut object = Map::new();
    let schema = batch.schema();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if column.is_null(row) {
            continue;
        }
        match field.name().as_str() {
            "payload" => {
                let bytes = column.as_binary::<i32>().value(row);
                text_or_base64(&mut object, "payload", bytes);
            }
            "parts" => {
                let parts = column.as_list::<i32>().value(row);
                put_parts(&mut object, &parts);
            }
            name => {
                object.insert(name.to_owned(), value(column, row));
            }
        }
    }
    Value::Object(object).to_string()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn value(column: &dyn Array, row: usize) -> Value {
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
        DataType::Binary => hex(column.as_binary::<i32>().value(row)).into(),
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Timestamp(..) => {
            rfc3339(column.as_primitive::<TimestampMicrosecondType>().value(row)).into()
        }
        DataType::Map(..) => {
            let entries = column.as_map().value(row);
            let (keys, values) = (entries.column(0), entries.column(1));
            let (keys, values) = (keys.as_string::<i32>(), values.as_string::<i32>());
            let pairs = keys.iter().zip(values.iter());
            pairs
                .filter_map(|(key, value)| Some((key?.to_owned(), Value::from(value))))
                .collect()
        }
        _ => Value::Null,
    }
}

/// A payload that is not UTF-8 has another name, so that a reader cannot mistake it.
fn text_or_base64(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), base64(bytes).into()),
    };
}

/// All parts as text, or all of them as base64.
fn put_parts(object: &mut Map<String, Value>, parts: &dyn Array) {
    let parts: Vec<&[u8]> = parts.as_binary::<i32>().iter().flatten().collect();
    let texts: Result<Vec<&str>, _> = parts.iter().map(|part| std::str::from_utf8(part)).collect();
    if let Ok(texts) = texts {
        object.insert("parts".to_owned(), texts.into());
        return;
    }
    let coded: Vec<String> = parts.iter().map(|part| base64(part)).collect();
    object.insert("parts_base64".to_owned(), coded.into());
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            if digit > chunk.len() {
                text.push('=');
            } else {
                text.push(char::from(BASE64[(bits >> (18 - 6 * digit) & 63) as usize]));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_to_whole_quads() {
        let coded = ["", "f", "fo", "foo", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(coded, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYmFy"]);
    }
}
