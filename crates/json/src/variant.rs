//! Values of any shape as Parquet's VARIANT, which Spark reads: a value and the names in it.
//!
//! Numbers keep their value: whole ones of up to 64 bits, decimals of up to 38 digits, else the
//! nearest double. Of members of the same name the last is kept.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{ArrayRef, StructArray};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::{ArrowError, DataType, Fields};
use parquet_variant::{
    ObjectFieldBuilder, Variant, VariantBuilder, VariantBuilderExt, VariantDecimal4,
    VariantDecimal8, VariantDecimal16,
};

use crate::column::{Bytes, BytesKind, Column, Fit};
use crate::number::decimal;
use crate::text::unescaped;
use crate::value::Value;

/// Whether a type is VARIANT as Spark carries it in Arrow: a struct of `value` and `metadata`, marked.
pub fn is_variant(data_type: &DataType) -> bool {
    let DataType::Struct(fields) = data_type else {
        return false;
    };
    let binary = |name: &str| {
        let field = fields.iter().find(|field| field.name() == name);
        field.filter(|field| *field.data_type() == DataType::Binary && !field.is_nullable())
    };
    let is_marked = binary("metadata").is_some_and(|field| {
        field
            .metadata()
            .get("variant")
            .is_some_and(|mark| mark == "true")
    });
    is_marked && binary("value").is_some() && fields.len() == 2
}

/// A column of VARIANTs.
pub(crate) struct Variants {
    fields: Fields,
    values: Bytes,
    names: Bytes,
    nulls: NullBufferBuilder,
}

impl Variants {
    pub(crate) fn new(fields: &Fields) -> Self {
        Self {
            fields: fields.clone(),
            values: Bytes::new(BytesKind::Binary),
            names: Bytes::new(BytesKind::Binary),
            nulls: NullBufferBuilder::new(0),
        }
    }
}

impl Column for Variants {
    fn append(&mut self, value: Value<'_>) -> Fit {
        let mut builder = VariantBuilder::new();
        if write(value, &mut builder).is_err() {
            self.append_null();
            return Fit::Misfit;
        }
        let (names, value) = builder.finish();
        self.names.append_bytes(&names);
        self.values.append_bytes(&value);
        self.nulls.append_non_null();
        Fit::Whole
    }

    fn append_null(&mut self) {
        self.names.append_bytes(&[]);
        self.values.append_bytes(&[]);
        self.nulls.append_null();
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let (values, names) = (self.values.finish()?, self.names.finish()?);
        let columns = self.fields.iter().map(|field| match field.name().as_str() {
            "value" => values.clone(),
            _ => names.clone(),
        });
        let columns = columns.collect();
        let array = StructArray::try_new(self.fields.clone(), columns, self.nulls.finish())?;
        Ok(Arc::new(array))
    }
}

/// Appends a value; text within it is valid JSON.
fn write(value: Value<'_>, out: &mut impl VariantBuilderExt) -> Result<(), ArrowError> {
    match value {
        Value::Object(text) | Value::Array(text) => return Walk { rest: text }.value(out),
        Value::Null => out.append_value(Variant::Null),
        Value::Bool(value) => out.append_value(value),
        Value::Number(text) => out.append_value(number(text)),
        Value::String(body) => out.append_value(&*says(body)),
    }
    Ok(())
}

/// A string's contents, or its escaped form if that is no text.
fn says(body: &str) -> Cow<'_, str> {
    unescaped(body).unwrap_or(Cow::Borrowed(body))
}

/// The smallest type that holds a number.
fn number(text: &str) -> Variant<'_, '_> {
    if let Ok(whole) = text.parse::<i64>() {
        return i8::try_from(whole)
            .map(Variant::from)
            .or_else(|_| i16::try_from(whole).map(Variant::from))
            .or_else(|_| i32::try_from(whole).map(Variant::from))
            .unwrap_or_else(|_| Variant::from(whole));
    }
    exact(text).unwrap_or_else(|| match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Variant::from(number),
        _ => Variant::from(text),
    })
}

/// A number without exponent as a decimal, if it has no more than 38 digits.
fn exact(text: &str) -> Option<Variant<'static, 'static>> {
    if text.contains(['e', 'E']) {
        return None;
    }
    let places = text
        .split_once('.')
        .map_or(0, |(_, fraction)| fraction.len());
    let scale = u8::try_from(places).ok().filter(|scale| *scale <= 38)?;
    let digits = decimal(text, 38, i8::try_from(scale).ok()?)?;
    let four = i32::try_from(digits)
        .ok()
        .and_then(|it| VariantDecimal4::try_new(it, scale).ok());
    let eight = i64::try_from(digits)
        .ok()
        .and_then(|it| VariantDecimal8::try_new(it, scale).ok());
    match (four, eight) {
        (Some(four), _) => Some(four.into()),
        (None, Some(eight)) => Some(eight.into()),
        (None, None) => VariantDecimal16::try_new(digits, scale)
            .ok()
            .map(Variant::from),
    }
}

/// Walks text that is valid JSON; its depth was limited before.
struct Walk<'t> {
    rest: &'t str,
}

impl<'t> Walk<'t> {
    fn value(&mut self, out: &mut impl VariantBuilderExt) -> Result<(), ArrowError> {
        match self.peek() {
            Some(b'{') => {
                let mut object = out.try_new_object()?;
                self.step();
                while let Some(b'"') = self.peek() {
                    let name = says(self.string());
                    self.past(b':');
                    self.value(&mut ObjectFieldBuilder::new(&name, &mut object))?;
                    self.past(b',');
                }
                self.past(b'}');
                object.finish();
            }
            Some(b'[') => {
                let mut list = out.try_new_list()?;
                self.step();
                while self.peek().is_some_and(|byte| byte != b']') {
                    self.value(&mut list)?;
                    self.past(b',');
                }
                self.past(b']');
                list.finish();
            }
            Some(b'"') => out.append_value(&*says(self.string())),
            _ => write(Value::of(self.word()?), out)?,
        }
        Ok(())
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.rest.bytes().next()
    }

    fn step(&mut self) {
        self.rest = self.rest.get(1..).unwrap_or_default();
    }

    fn past(&mut self, byte: u8) {
        if self.peek() == Some(byte) {
            self.step();
        }
    }

    /// The body of the string that begins here.
    fn string(&mut self) -> &'t str {
        self.step();
        let mut bytes = self.rest.bytes().enumerate();
        let mut end = self.rest.len();
        while let Some((at, byte)) = bytes.next() {
            match byte {
                b'\\' => drop(bytes.next()),
                b'"' => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        let body = self.rest.get(..end).unwrap_or_default();
        self.rest = self.rest.get(end..).unwrap_or_default();
        self.step();
        body
    }

    /// The number or word that begins here.
    fn word(&mut self) -> Result<&'t str, ArrowError> {
        let end = self.rest.find([',', ']', '}', ' ', '\t', '\n', '\r']);
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        if word.is_empty() {
            return Err(ArrowError::JsonError("a value is missing".to_owned()));
        }
        self.rest = rest;
        Ok(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut builder = VariantBuilder::new();
        write(Value::of(text), &mut builder).unwrap();
        let (names, value) = builder.finish();
        format!("{:?}", Variant::try_new(&names, &value).unwrap())
    }

    #[test]
    fn numbers_have_the_smallest_type_that_holds_them() {
        for (text, expected) in [
            ("127", "Int8(127)"),
            ("-129", "Int16(-129)"),
            ("32768", "Int32(32768)"),
            ("9223372036854775807", "Int64(9223372036854775807)"),
            (
                "1.50",
                "Decimal4(VariantDecimal4 { integer: 150, scale: 2 })",
            ),
            (
                "12345678.901",
                "Decimal8(VariantDecimal8 { integer: 12345678901, scale: 3 })",
            ),
            (
                "9223372036854775808",
                "Decimal16(VariantDecimal16 { integer: 9223372036854775808, scale: 0 })",
            ),
            ("1e3", "Double(1000.0)"),
            ("-0.0", "Decimal4(VariantDecimal4 { integer: 0, scale: 1 })"),
        ] {
            assert_eq!(shown(text), expected);
        }
        assert!(shown(&"9".repeat(39)).starts_with("Double("));
        assert!(shown(&format!("0.{}", "1".repeat(39))).starts_with("Double("));
        assert!(shown("1e999").contains("1e999"));
    }

    #[test]
    fn nested_values_keep_their_shape() {
        let text = r#" { "a" : [ 1 , "x\"y\u00e9" , null , [ ] , { } ] , "b" : { "c" : true } , "a\n" : "" } "#;
        let mut builder = VariantBuilder::new();
        write(Value::of(text.trim()), &mut builder).unwrap();
        let (names, value) = builder.finish();
        let variant = Variant::try_new(&names, &value).unwrap();
        let object = variant.as_object().unwrap();
        assert_eq!(object.len(), 3);
        let list = object.get("a").unwrap();
        let list = list.as_list().unwrap();
        assert_eq!(list.len(), 5);
        assert_eq!(list.get(1).unwrap(), Variant::from("x\"y\u{e9}"));
        assert_eq!(list.get(2).unwrap(), Variant::Null);
        let inner = object.get("b").unwrap();
        assert_eq!(
            inner.as_object().unwrap().get("c"),
            Some(Variant::from(true))
        );
        assert_eq!(object.get("a\n"), Some(Variant::from("")));
    }

    #[test]
    fn the_last_of_equal_names_and_half_characters_are_kept() {
        let mut builder = VariantBuilder::new();
        write(Value::of(r#"{"a":1,"a":"\ud800"}"#), &mut builder).unwrap();
        let (names, value) = builder.finish();
        let variant = Variant::try_new(&names, &value).unwrap();
        let object = variant.as_object().unwrap();
        assert_eq!(
            (object.len(), object.get("a")),
            (1, Some(Variant::from(r"\ud800")))
        );
    }
}
