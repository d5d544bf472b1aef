//! Descriptions of elements of a fixed size: one type such as `f64`, or fields such as `time:u64,value:f32`, packed
//! without padding.
//!
//! This module decides which descriptions are sound, and where each field stands. It decodes nothing and knows neither
//! Arrow nor Python. Texts of its errors begin with `element`, the name of Python's argument and the last part of
//! Spark's option.

use std::fmt::{self, Display, Formatter};

/// The name of the one column of a description that is a type alone.
const ONLY: &str = "element";

/// The name of fields that fill no column.
const SKIPPED: &str = "_";

/// The most bytes of an element: those of a column in one batch.
const MOST_BYTES: usize = i32::MAX as usize;

/// Characters of a description in an error.
const SHOWN: usize = 100;

/// The types with a fixed width, by their names.
const NAMED: [(&str, Kind); 11] = [
    ("bool", Kind::Bool),
    ("i8", Kind::I8),
    ("i16", Kind::I16),
    ("i32", Kind::I32),
    ("i64", Kind::I64),
    ("u8", Kind::U8),
    ("u16", Kind::U16),
    ("u32", Kind::U32),
    ("u64", Kind::U64),
    ("f32", Kind::F32),
    ("f64", Kind::F64),
];

/// Names that other programs give these types. `NumPy` counts bytes (`f8`), the types here count bits (`f64`).
const ALIASES: [(&[&str], &str); 12] = [
    (&["float64", "double", "f8", "d"], "f64"),
    (&["float32", "float", "single", "real", "f4", "f"], "f32"),
    (&["int64", "long", "bigint", "q"], "i64"),
    (&["int32", "int", "integer", "i4", "i"], "i32"),
    (&["int16", "short", "smallint", "i2", "h"], "i16"),
    (&["int8", "byte", "tinyint", "i1", "b"], "i8"),
    (&["uint64", "ulong", "usize"], "u64"),
    (&["uint32", "uint", "u4"], "u32"),
    (&["uint16", "ushort", "u2"], "u16"),
    (&["uint8", "uchar", "u1"], "u8"),
    (&["boolean", "b1", "?"], "bool"),
    (
        &["bytes", "binary", "string", "str", "char", "blob", "pad"],
        "bytes[N]",
    ),
];

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One byte, 0 or 1.
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    /// So many bytes, as they are.
    Bytes(usize),
}

impl Kind {
    /// The bytes of a value.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
            Self::Bytes(count) => count,
        }
    }

    fn has_order(self) -> bool {
        !matches!(self, Self::Bool | Self::Bytes(_))
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Self::Bytes(count) = self {
            return write!(f, "bytes[{count}]");
        }
        let named = NAMED.iter().find(|(_, kind)| kind == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

/// A field that fills a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// The name of its column.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether its most significant byte comes first.
    pub(crate) is_big_endian: bool,
    /// The offset of its first byte in the element.
    pub(crate) at: usize,
}

/// A description that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    /// The fields that fill columns, in their order; at least one.
    fields: Vec<Field>,
    /// The bytes of every element, also of those that are skipped; at least one.
    size: usize,
    /// The description as it was given; cut off after 100 characters.
    shown: String,
}

impl Element {
    /// Reads a description.
    ///
    /// # Errors
    /// The fault of a description that is not sound, as a sentence that quotes it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let shown = cut(text);
        if text.is_empty() {
            return Err(format!(
                "element is empty; it is a type such as f64, or fields such as time:u64,value:f32; {}",
                allowed()
            ));
        }
        let wrong = |fault: String| format!("element is {shown:?}: {fault}");
        let mut element = Self {
            fields: Vec::new(),
            size: 0,
            shown: shown.clone(),
        };
        if text.contains([',', ':']) {
            for (index, part) in text.split(',').enumerate() {
                element
                    .push(part.trim())
                    .map_err(|fault| wrong(format!("field {} {fault}", index + 1)))?;
            }
        } else {
            let (kind, is_big_endian) =
                typed(text).map_err(|fault| wrong(format!("it {fault}")))?;
            element.append(ONLY, kind, is_big_endian).map_err(wrong)?;
        }
        if element.fields.is_empty() {
            return Err(wrong(
                "every field is skipped; give at least one a name other than _".to_owned(),
            ));
        }
        Ok(element)
    }

    /// The fields that fill columns, in their order.
    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The bytes of every element.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The description for a text; cut off after 100 characters.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Adds a field such as `time:u64`.
    fn push(&mut self, part: &str) -> Result<(), String> {
        if part.is_empty() {
            return Err("is empty; write name:type between commas".to_owned());
        }
        let shown = cut(part);
        let Some((name, kind)) = part.split_once(':') else {
            return Err(format!(
                "is {shown:?} without a colon; write name:type, such as value:f32, or _:bytes[4] to skip bytes"
            ));
        };
        let name = name.trim();
        if name.is_empty() {
            return Err(format!(
                "is {shown:?} without a name; write name:type, or _:bytes[4] to skip bytes"
            ));
        }
        let (kind, is_big_endian) =
            typed(kind.trim()).map_err(|fault| format!("is {shown:?}, and {fault}"))?;
        self.append(name, kind, is_big_endian)
    }

    fn append(&mut self, name: &str, kind: Kind, is_big_endian: bool) -> Result<(), String> {
        if self
            .fields
            .iter()
            .any(|field| field.name.eq_ignore_ascii_case(name))
        {
            let name = cut(name);
            return Err(format!(
                "has the name {name:?} of an earlier field; give each its own name, or _ to skip it"
            ));
        }
        let at = self.size;
        self.size = at
            .checked_add(kind.width())
            .filter(|size| *size <= MOST_BYTES)
            .ok_or_else(|| format!("ends behind {MOST_BYTES} bytes, the most of an element"))?;
        if name != SKIPPED {
            self.fields.push(Field {
                name: name.to_owned(),
                kind,
                is_big_endian,
                at,
            });
        }
        Ok(())
    }
}

/// The type that a text names, and whether it is big-endian.
fn typed(text: &str) -> Result<(Kind, bool), String> {
    let (name, order) = match text.strip_prefix(['<', '>']) {
        Some(name) => (name.trim_start(), text.get(..1)),
        None => (text, None),
    };
    let named = NAMED.iter().find(|(known, _)| *known == name);
    let kind = named.map(|(_, kind)| *kind).or_else(|| counted(name));
    match kind {
        Some(Kind::Bytes(0)) => Err(format!(
            "has the type {text:?} without a byte; N of bytes[N] is at least 1"
        )),
        Some(kind) if order.is_none() || kind.has_order() => Ok((kind, order == Some(">"))),
        Some(kind) => Err(format!(
            "has the type {:?}, but {kind} has no byte order; write {kind}",
            cut(text)
        )),
        None if text.is_empty() => Err(format!("has no type; {}", allowed())),
        None => {
            let hint =
                meant(text).map_or_else(String::new, |name| format!(" (did you mean {name}?)"));
            Err(format!(
                "has the unknown type {:?}{hint}; {}",
                cut(text),
                allowed()
            ))
        }
    }
}

/// `bytes[N]`.
fn counted(name: &str) -> Option<Kind> {
    let count = name.strip_prefix("bytes[")?.strip_suffix(']')?.trim();
    let is_number = count.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !count.is_empty()).then(|| {
        // A number that is too large for its type is too large for an element.
        Kind::Bytes(count.parse().unwrap_or(usize::MAX))
    })
}

fn allowed() -> String {
    let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
    format!(
        "types are {} and bytes[N]; numbers count bits and are little-endian, and big-endian with > in front",
        names.join(", ")
    )
}

/// The type that a wrong text probably means.
fn meant(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let bare = lower.trim_start_matches(['<', '>', '=', '|', '!', '@']);
    let bare = bare.trim();
    let order = match lower.strip_suffix(bare) {
        Some(order) if order.starts_with(['>', '!']) => ">",
        _ => "",
    };
    let spelled = |name: &str, order: &str| {
        let has_order = !name.starts_with('b');
        format!("{}{name}", if has_order { order } else { "" })
    };
    if let Some(name) = exactly(bare) {
        return Some(spelled(&name, order));
    }
    for (suffix, order) in [("be", ">"), ("le", "")] {
        let stem = bare.strip_suffix(suffix);
        let stem = stem.map(|stem| stem.trim_end_matches(['_', '-', ' ']));
        if let Some(name) = stem.and_then(exactly) {
            return Some(spelled(&name, order));
        }
    }
    let names = || NAMED.iter().map(|(name, _)| *name);
    let near = names()
        .find(|name| is_shuffled(bare, name))
        .or_else(|| names().find(|name| is_one_off(bare, name)));
    near.map(|name| spelled(name, order))
}

/// The type of another spelling, such as `double`, `F64`, `bytes(3)` or `S3`.
fn exactly(text: &str) -> Option<String> {
    if let Some((name, _)) = NAMED.iter().find(|(name, _)| *name == text) {
        return Some((*name).to_owned());
    }
    let by_alias = ALIASES.iter().find(|(names, _)| names.contains(&text));
    if let Some((_, name)) = by_alias {
        return Some((*name).to_owned());
    }
    let stem = text.trim_end_matches([')', ']', '}', '>', ' ']);
    let count = stem.trim_start_matches(|one: char| !one.is_ascii_digit());
    let name = stem
        .strip_suffix(count)?
        .trim_end_matches(['(', '[', '{', '<', ' ', '_']);
    let is_bytes = ["s", "v", "byte", "bytes", "binary", "char", "fixed", "pad"].contains(&name);
    let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    (is_bytes && is_number).then(|| format!("bytes[{count}]"))
}

/// Whether a text has the characters of a name, the first at its place.
fn is_shuffled(text: &str, name: &str) -> bool {
    let sorted = |text: &str| {
        let mut rest: Vec<char> = text.chars().skip(1).collect();
        rest.sort_unstable();
        (text.chars().next(), rest)
    };
    sorted(text) == sorted(name)
}

/// Whether a text is a name with one character changed, missing or added behind the first.
fn is_one_off(text: &str, name: &str) -> bool {
    let (longer, shorter) = (text.len().max(name.len()), text.len().min(name.len()));
    let before = text.bytes().zip(name.bytes());
    let before = before.take_while(|(a, b)| a == b).count();
    let behind = text.bytes().rev().zip(name.bytes().rev());
    let behind = behind.take_while(|(a, b)| a == b).count();
    before > 0 && longer - shorter <= 1 && before + behind + 1 >= longer
}

/// A text of the user's for an error.
fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Element {
        Element::parse(text).unwrap_or_else(|fault| panic!("{fault}"))
    }

    fn fault(text: &str) -> String {
        match Element::parse(text) {
            Ok(element) => panic!("{text:?} is read as {element:?}"),
            Err(fault) => fault,
        }
    }

    #[test]
    fn a_type_alone_is_one_column() {
        for (text, kind, size) in [
            ("bool", Kind::Bool, 1),
            ("i8", Kind::I8, 1),
            ("i16", Kind::I16, 2),
            ("i32", Kind::I32, 4),
            ("i64", Kind::I64, 8),
            ("u8", Kind::U8, 1),
            ("u16", Kind::U16, 2),
            ("u32", Kind::U32, 4),
            ("u64", Kind::U64, 8),
            ("f32", Kind::F32, 4),
            (" f64 ", Kind::F64, 8),
            ("bytes[16]", Kind::Bytes(16), 16),
        ] {
            let element = parsed(text);
            let [field] = element.fields() else {
                panic!("{element:?}")
            };
            assert_eq!(
                (field.name.as_str(), field.kind, field.at),
                ("element", kind, 0)
            );
            assert!(!field.is_big_endian);
            assert_eq!((element.size(), kind.width()), (size, size));
            assert_eq!(kind.to_string(), text.trim());
        }
    }

    #[test]
    fn a_sign_in_front_is_the_byte_order() {
        assert!(parsed(">f64").fields()[0].is_big_endian);
        assert!(!parsed("<f64").fields()[0].is_big_endian);
        let both = parsed("a:>u16,b:<u16,c:>u8");
        let orders = both.fields().iter().map(|field| field.is_big_endian);
        assert_eq!(orders.collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn fields_are_packed_and_skipped_ones_count() {
        let element = parsed("time : u64, _:bytes[3], value:>f32,_:u16, flag:bool, raw:bytes[2]");
        let fields = element.fields().iter();
        let places: Vec<_> = fields
            .map(|field| (field.name.as_str(), field.at))
            .collect();
        assert_eq!(
            places,
            [("time", 0), ("value", 11), ("flag", 17), ("raw", 18)]
        );
        assert_eq!(element.size(), 20);
        assert_eq!(parsed("größe:f64").fields()[0].name, "größe");
    }

    #[test]
    fn a_wrong_description_is_quoted_with_its_place_and_what_is_allowed() {
        for (text, parts) in [
            (
                "",
                &[
                    "element is empty",
                    "time:u64,value:f32",
                    "types are bool, i8",
                ][..],
            ),
            (
                "f46",
                &[
                    "element is \"f46\": it has the unknown type",
                    "did you mean f64?",
                ],
            ),
            (
                "a:u64,b",
                &["field 2 is \"b\" without a colon", "name:type"],
            ),
            ("f64,f64", &["field 1 is \"f64\" without a colon"]),
            ("a:u64,,b:u8", &["field 2 is empty"]),
            ("a:u64,", &["field 2 is empty"]),
            (":u64", &["field 1 is \":u64\" without a name"]),
            ("a:", &["field 1 is \"a:\", and has no type; types are"]),
            ("a:u64:b", &["unknown type \"u64:b\""]),
            (
                "a:u8,a:u8",
                &["field 2 has the name \"a\" of an earlier field"],
            ),
            ("_:f64", &["every field is skipped"]),
            ("a:bytes[0]", &["N of bytes[N] is at least 1"]),
            (">bool", &["bool has no byte order; write bool"]),
            ("><f64", &["did you mean >f64?"]),
            (
                "bytes[99999999999999999999]",
                &["ends behind 2147483647 bytes"],
            ),
            (
                "a:bytes[2147483647],b:u8",
                &["field 2 ends behind 2147483647 bytes"],
            ),
        ] {
            let fault = fault(text);
            for part in parts {
                assert!(fault.contains(part), "{text:?}: {fault}");
            }
            assert!(fault.starts_with("element is "), "{fault}");
        }
        let long = fault(&"ä".repeat(1000));
        assert!(
            long.contains(&format!("\"{}…\"", "ä".repeat(100))),
            "{long}"
        );
        assert!(!long.contains(&"ä".repeat(101)));
    }

    #[test]
    fn other_spellings_lead_to_the_type() {
        for (text, name) in [
            ("double", "f64"),
            ("DOUBLE", "f64"),
            ("F64", "f64"),
            ("f8", "f64"),
            (">f8", ">f64"),
            ("f64be", ">f64"),
            ("f64_le", "f64"),
            ("u16-BE", ">u16"),
            ("=i4", "i32"),
            ("!int32", ">i32"),
            ("uint64", "u64"),
            ("i46", "i64"),
            ("u65", "u64"),
            ("boole", "bool"),
            ("boolean", "bool"),
            ("bytes", "bytes[N]"),
            ("bytes(3)", "bytes[3]"),
            ("bytes3", "bytes[3]"),
            ("S16", "bytes[16]"),
            ("|V8", "bytes[8]"),
            ("[5]", ""),
            ("f16", ""),
            ("timestamp", ""),
            ("complex128", ""),
        ] {
            let fault = fault(text);
            let hint = fault
                .split_once("(did you mean ")
                .and_then(|(_, rest)| rest.split_once("?)"))
                .map_or("", |(hint, _)| hint);
            assert_eq!(hint, name, "{text}: {fault}");
        }
    }
}
