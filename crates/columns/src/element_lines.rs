//! Elements of a fixed size as lines of JSON, for the command line.

use std::io::Write as _;

use crate::element::{Element, Field, Kind};
use crate::refused::Refused;

/// A description of elements, and the lines that they become.
#[derive(Debug, Clone)]
pub struct ElementShape {
    element: Element,
    /// Whether it is a type alone, whose value has no name.
    is_one: bool,
}

impl ElementShape {
    /// Reads a description.
    ///
    /// # Errors
    /// `element.schema`: the description is wrong.
    pub fn new(element: &str) -> Result<Self, Refused> {
        let is_one = !element.contains([',', ':']);
        let element =
            Element::parse(element).map_err(|text| Refused::new("element.schema", text))?;
        Ok(Self { element, is_one })
    }

    /// Bytes of every element.
    pub fn size(&self) -> usize {
        self.element.size()
    }

    /// The description, cut off after 100 characters.
    pub fn shown(&self) -> &str {
        self.element.shown()
    }

    /// `NumPy`'s name of a description that is a type alone, such as `<f8`; `None` for fields.
    pub fn numpy(&self) -> Option<String> {
        let [field] = self.element.fields() else {
            return None;
        };
        self.is_one.then(|| numpy_name(field))
    }

    /// The values of elements that stand one behind the other, each as a line.
    ///
    /// # Errors
    /// A sentence that says why the bytes are no such elements.
    pub fn lines(&self, elements: &[u8]) -> Result<Vec<u8>, String> {
        let size = self.element.size();
        if !elements.len().is_multiple_of(size) {
            return Err(format!(
                "--element {} has {size} bytes, and an element of the stream has {}",
                self.element.shown(),
                elements.len()
            ));
        }
        let mut lines = Vec::with_capacity(elements.len().saturating_mul(3));
        for element in elements.chunks_exact(size) {
            self.line(element, &mut lines)?;
            lines.push(b'\n');
        }
        Ok(lines)
    }

    fn line(&self, element: &[u8], line: &mut Vec<u8>) -> Result<(), String> {
        if let ([field], true) = (self.element.fields(), self.is_one) {
            return self.value(field, element, line);
        }
        line.push(b'{');
        for (number, field) in self.element.fields().iter().enumerate() {
            if number > 0 {
                line.push(b',');
            }
            put(line, &field.name);
            line.push(b':');
            self.value(field, element, line)?;
        }
        line.push(b'}');
        Ok(())
    }

    fn value(&self, field: &Field, element: &[u8], line: &mut Vec<u8>) -> Result<(), String> {
        let end = field.at.saturating_add(field.kind.width());
        let bytes = element.get(field.at..end).unwrap_or_default();
        // Every type but bytes fits into a whole number, the least significant byte first.
        let mut wide = [0; 8];
        if !matches!(field.kind, Kind::Bytes(_)) {
            let known = wide.get_mut(..bytes.len()).unwrap_or_default();
            known.copy_from_slice(bytes);
            if field.is_big_endian {
                known.reverse();
            }
        }
        let [b0, b1, b2, b3, ..] = wide;
        match field.kind {
            Kind::Bool if b0 > 1 => {
                let shown = self.element.shown();
                return Err(format!(
                    "an element of the stream does not fit: a bool of --element {shown} is {b0}; it is 0 or 1"
                ));
            }
            Kind::Bool => put(line, &(b0 == 1)),
            Kind::I8 => put(line, &i8::from_le_bytes([b0])),
            Kind::I16 => put(line, &i16::from_le_bytes([b0, b1])),
            Kind::I32 => put(line, &i32::from_le_bytes([b0, b1, b2, b3])),
            Kind::I64 => put(line, &i64::from_le_bytes(wide)),
            Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => put(line, &u64::from_le_bytes(wide)),
            Kind::F32 => {
                let value = f32::from_le_bytes([b0, b1, b2, b3]);
                number(line, value.into(), |line| put(line, &value));
            }
            Kind::F64 => {
                let value = f64::from_le_bytes(wide);
                number(line, value, |line| put(line, &value));
            }
            Kind::Bytes(_) => {
                line.push(b'"');
                for byte in bytes {
                    // Memory takes everything.
                    let _ = write!(line, "{byte:02x}");
                }
                line.push(b'"');
            }
        }
        Ok(())
    }
}

/// Adds a number; those that JSON lacks are texts.
fn number(line: &mut Vec<u8>, value: f64, finite: impl FnOnce(&mut Vec<u8>)) {
    if value.is_nan() {
        put(line, "NaN");
    } else if value.is_infinite() {
        put(line, if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        finite(line);
    }
}

/// Adds a value of JSON.
fn put<T: serde::Serialize + ?Sized>(line: &mut Vec<u8>, value: &T) {
    // Memory takes everything, and numbers and texts are JSON.
    let _ = serde_json::to_writer(line, value);
}

fn numpy_name(field: &Field) -> String {
    let order = match field.kind {
        Kind::Bool | Kind::I8 | Kind::U8 | Kind::Bytes(_) => '|',
        _ if field.is_big_endian => '>',
        _ => '<',
    };
    let kind = match field.kind {
        Kind::Bool => 'b',
        Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => 'i',
        Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => 'u',
        Kind::F32 | Kind::F64 => 'f',
        Kind::Bytes(_) => 'V',
    };
    format!("{order}{kind}{}", field.kind.width())
}
