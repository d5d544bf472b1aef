//! Event rows as JSON lines: the columns that were read, a payload as text where it is UTF-8.

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

fn value(column: &dyn Array, row: usize) -> Value {
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
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

/// A payload that is not UTF-8 goes by another name, so that a reader cannot mistake it.
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

/// RFC 3339 in UTC with microseconds, from microseconds since 1970.
pub(crate) fn rfc3339(micros: i64) -> String {
    let (seconds, fraction) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Counts years from
/// March, so that the leap day is a year's last, in eras of 400 years.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_over_leap_years_and_before_1970() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(rfc3339(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(
            rfc3339(4_107_542_399_999_999),
            "2100-02-28T23:59:59.999999Z"
        );
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn base64_pads_to_whole_quads() {
        let coded = ["", "f", "fo", "foo", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(coded, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYmFy"]);
    }
}
