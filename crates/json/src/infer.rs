//! A schema from a sample of events: types are merged as Spark's inference merges them.
//!
//! Names with dots are folded into structs, as the projection finds them either way. The sample may
//! be hostile, so names and depth are limited.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};

use crate::malformed::Malformed;
use crate::plan::MAX_SCHEMA_DEPTH;
use crate::project::{event_text, write_pairs};
use crate::text::{body, unescaped};
use crate::time::timestamp;
use crate::value::{self, Value, elements, members};

/// The common schema of the members of the events so far.
#[derive(Debug, Clone, Default)]
pub struct Inference {
    members: Members,
    case_sensitive: bool,
    events: u64,
    malformed: u64,
    names: usize,
    names_left_out: u64,
}

/// The common type of a member's values.
#[derive(Debug, Clone, Default, PartialEq)]
enum Kind {
    /// Only nulls were seen.
    #[default]
    Null,
    Bool,
    Long,
    /// Whole numbers of which one needs more than 64 bits, none more than 38 digits.
    Whole,
    Double,
    Timestamp,
    /// Texts, or values without any other common type.
    Text,
    List(Box<Self>),
    Object(Members),
}

/// Members in the order in which they were first seen.
#[derive(Debug, Clone, Default, PartialEq)]
struct Members {
    fields: Vec<(String, Kind)>,
    places: HashMap<String, usize>,
}

impl Inference {
    /// An empty inference. Names that differ in case alone are one, unless `case_sensitive`.
    pub fn new(case_sensitive: bool) -> Self {
        Self {
            case_sensitive,
            ..Self::default()
        }
    }

    /// Observes an event, if it is a JSON object.
    pub fn observe(&mut self, payload: &[u8]) {
        self.events += 1;
        if self.observe_object(payload).is_err() {
            self.malformed += 1;
        }
    }

    /// Observes an event of pairs of a key and a text, given in turn.
    pub fn observe_pairs<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        let mut text = Vec::new();
        self.events += 1;
        let whole = write_pairs(parts, &mut text);
        if whole.and_then(|()| self.observe_object(&text)).is_err() {
            self.malformed += 1;
        }
    }

    /// The number of observed events.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The number of them that were no JSON object.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// How often a member was skipped: there were 2,000 names already, or its own name has an empty
    /// part or too many.
    pub fn names_left_out(&self) -> u64 {
        self.names_left_out
    }

    /// The columns as Spark's DDL, one on each line, without those named in `without`.
    pub fn ddl(&self, without: &[&str]) -> String {
        let wanted = self.columns(without);
        let lines = wanted.map(|(name, kind)| format!("{} {kind}", Quoted(name)));
        lines.collect::<Vec<_>>().join(",\n")
    }

    /// The columns as an Arrow schema, without those named in `without`.
    pub fn schema(&self, without: &[&str]) -> Schema {
        let fields = self.columns(without).map(|(name, kind)| field(name, kind));
        Schema::new(fields.collect::<Vec<_>>())
    }

    /// Those of `names` that events have as members.
    pub fn seen<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        let is_seen = |name: &&&str| self.members.fields.iter().any(|(own, _)| own == **name);
        names.iter().filter(is_seen).copied().collect()
    }

    fn columns(&self, without: &[&str]) -> impl Iterator<Item = (&str, &Kind)> {
        let all = self
            .members
            .fields
            .iter()
            .map(|(name, kind)| (name.as_str(), kind));
        all.filter(|(name, _)| !without.contains(name))
    }

    fn observe_object(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let text = event_text(payload)?;
        value::check(text).map_err(|error| Malformed::syntax(&error))?;
        let mut merge = Merge {
            case_sensitive: self.case_sensitive,
            names: &mut self.names,
            left_out: &mut self.names_left_out,
        };
        merge.object(&mut self.members, text, 1);
        Ok(())
    }
}

/// Merges one event into the inference.
struct Merge<'a> {
    case_sensitive: bool,
    names: &'a mut usize,
    left_out: &'a mut u64,
}

impl Merge<'_> {
    fn object(&mut self, known: &mut Members, object: &str, depth: usize) {
        // The text was checked, so every member is reported.
        let _valid = members(object, &mut |name, raw| {
            let Some(name) = unescaped(body(name)) else {
                return;
            };
            let parts: Vec<&str> = name.split('.').collect();
            if parts.iter().any(|part| part.is_empty())
                || depth + parts.len() > MAX_SCHEMA_DEPTH + 1
            {
                *self.left_out += 1;
            } else {
                self.member(known, &parts, raw, depth);
            }
        });
    }

    fn member(&mut self, known: &mut Members, path: &[&str], raw: &str, depth: usize) {
        let Some((name, below)) = path.split_first() else {
            return;
        };
        let Some(kind) = self.kind(known, name) else {
            *self.left_out += 1;
            return;
        };
        if below.is_empty() {
            return self.value(kind, raw, depth);
        }
        let mut object = match std::mem::take(kind) {
            Kind::Null => Members::default(),
            Kind::Object(members) => members,
            _ => {
                *kind = Kind::Text;
                return;
            }
        };
        self.member(&mut object, below, raw, depth + 1);
        *kind = Kind::Object(object);
    }

    /// The kind of a member so far; `None` if it is new and there are too many.
    fn kind<'k>(&mut self, known: &'k mut Members, name: &str) -> Option<&'k mut Kind> {
        let key = if self.case_sensitive {
            name.to_owned()
        } else {
            name.to_lowercase()
        };
        let next = known.fields.len();
        let place = known.places.get(&key).copied().unwrap_or(next);
        if place == next {
            if *self.names >= MAX_NAMES {
                return None;
            }
            *self.names += 1;
            known.places.insert(key, place);
            known.fields.push((name.to_owned(), Kind::Null));
        }
        known.fields.get_mut(place).map(|(_, kind)| kind)
    }

    fn value(&mut self, known: &mut Kind, raw: &str, depth: usize) {
        let kind = match (Value::of(raw), &mut *known) {
            (Value::Null, _) => return,
            (Value::Object(_) | Value::Array(_), _) if depth >= MAX_SCHEMA_DEPTH => Kind::Text,
            (Value::Object(object), Kind::Object(members)) => {
                return self.object(members, object, depth + 1);
            }
            (Value::Object(object), Kind::Null) => {
                let mut members = Members::default();
                self.object(&mut members, object, depth + 1);
                Kind::Object(members)
            }
            (Value::Array(array), Kind::List(element)) => {
                return self.elements(element, array, depth);
            }
            (Value::Array(array), Kind::Null) => {
                let mut element = Kind::Null;
                self.elements(&mut element, array, depth);
                Kind::List(Box::new(element))
            }
            (Value::Object(_) | Value::Array(_), _) => Kind::Text,
            (Value::Bool(_), _) => Kind::Bool,
            (Value::Number(text), _) => number(text),
            (Value::String(body), _) => string(body),
        };
        *known = merged(std::mem::take(known), kind);
    }

    fn elements(&mut self, element: &mut Kind, array: &str, depth: usize) {
        let _valid = elements(array, &mut |raw| self.value(element, raw, depth + 1));
    }
}

fn number(text: &str) -> Kind {
    let is_whole = !text.contains(['.', 'e', 'E']);
    if is_whole && text.parse::<i64>().is_ok() {
        return Kind::Long;
    }
    if is_whole && text.trim_start_matches('-').len() <= 38 {
        return Kind::Whole;
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Kind::Double,
        _ => Kind::Text,
    }
}

fn string(body: &str) -> Kind {
    // A day alone is a name as often as a time.
    match unescaped(body).as_deref() {
        Some(text) if text.len() > 10 && timestamp(text).is_some() => Kind::Timestamp,
        _ => Kind::Text,
    }
}

/// The common type of two kinds; objects and lists were merged before.
fn merged(known: Kind, new: Kind) -> Kind {
    match (known, new) {
        (Kind::Null, kind) | (kind, Kind::Null) => kind,
        (known, new) if known == new => known,
        (Kind::Long, Kind::Whole) | (Kind::Whole, Kind::Long) => Kind::Whole,
        (Kind::Double, Kind::Long | Kind::Whole) | (Kind::Long | Kind::Whole, Kind::Double) => {
            Kind::Double
        }
        _ => Kind::Text,
    }
}

fn field(name: &str, kind: &Kind) -> Field {
    Field::new(name, data_type(kind), true)
}

fn data_type(kind: &Kind) -> DataType {
    match kind {
        Kind::Null | Kind::Text => DataType::Utf8,
        Kind::Bool => DataType::Boolean,
        Kind::Long => DataType::Int64,
        Kind::Whole => DataType::Decimal128(38, 0),
        Kind::Double => DataType::Float64,
        Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Kind::List(element) => DataType::List(Arc::new(field("element", element))),
        Kind::Object(members) if members.fields.is_empty() => DataType::Utf8,
        Kind::Object(members) => {
            let fields = members.fields.iter().map(|(name, kind)| field(name, kind));
            DataType::Struct(fields.collect())
        }
    }
}

/// The type in Spark's DDL.
impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null | Self::Text => f.write_str("STRING"),
            Self::Bool => f.write_str("BOOLEAN"),
            Self::Long => f.write_str("BIGINT"),
            Self::Whole => f.write_str("DECIMAL(38, 0)"),
            Self::Double => f.write_str("DOUBLE"),
            Self::Timestamp => f.write_str("TIMESTAMP"),
            Self::List(element) => write!(f, "ARRAY<{element}>"),
            Self::Object(members) if members.fields.is_empty() => f.write_str("STRING"),
            Self::Object(members) => {
                f.write_str("STRUCT<")?;
                for (at, (name, kind)) in members.fields.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{}: {kind}", Quoted(name))?;
                }
                f.write_str(">")
            }
        }
    }
}

/// A name in Spark's DDL: in backticks unless it is plain.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_plain = self.0.starts_with(|first: char| first.is_ascii_lowercase())
            && self
                .0
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_plain {
            return f.write_str(self.0);
        }
        write!(f, "`{}`", self.0.replace('`', "``"))
    }
}

/// Names of all structs together; more than any schema that a person reads.
const MAX_NAMES: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ddl(events: &[&str]) -> String {
        let mut inference = Inference::new(false);
        for event in events {
            inference.observe(event.as_bytes());
        }
        assert_eq!(inference.malformed(), 0);
        inference.ddl(&[])
    }

    #[test]
    fn each_kind_has_its_type() {
        for (value, expected) in [
            ("true", "BOOLEAN"),
            ("1", "BIGINT"),
            ("9223372036854775808", "DECIMAL(38, 0)"),
            ("1.5", "DOUBLE"),
            ("1e3", "DOUBLE"),
            ("100000000000000000000000000000000000000", "DOUBLE"),
            ("1e999", "STRING"),
            ("\"x\"", "STRING"),
            ("\"2026-11-21T10:00:00.123Z\"", "TIMESTAMP"),
            ("\"2026-11-21 10:00\"", "TIMESTAMP"),
            ("\"2026-11-21\"", "STRING"),
            ("\"\\ud800\"", "STRING"),
            ("null", "STRING"),
            ("[]", "ARRAY<STRING>"),
            ("[1, 2.5, null]", "ARRAY<DOUBLE>"),
            ("[[1], [\"a\"]]", "ARRAY<ARRAY<STRING>>"),
            (
                "[{\"a\": 1}, {\"b\": true}]",
                "ARRAY<STRUCT<a: BIGINT, b: BOOLEAN>>",
            ),
            ("{}", "STRING"),
            ("{\"a\": {\"b\": 1}}", "STRUCT<a: STRUCT<b: BIGINT>>"),
        ] {
            assert_eq!(
                ddl(&[&format!("{{\"v\": {value}}}")]),
                format!("v {expected}"),
                "{value}"
            );
        }
    }

    #[test]
    fn different_kinds_become_a_type_that_holds_both() {
        for (one, other, expected) in [
            ("1", "1.5", "DOUBLE"),
            ("1", "9223372036854775808", "DECIMAL(38, 0)"),
            ("1.5", "9223372036854775808", "DOUBLE"),
            ("1", "null", "BIGINT"),
            ("1", "true", "STRING"),
            ("1", "\"a\"", "STRING"),
            ("1", "\"2026-11-21T10:00:00Z\"", "STRING"),
            ("\"a\"", "\"2026-11-21T10:00:00Z\"", "STRING"),
            ("1", "[1]", "STRING"),
            ("{\"a\": 1}", "1", "STRING"),
            ("{\"a\": 1}", "[1]", "STRING"),
            (
                "{\"a\": 1}",
                "{\"a\": 1.5, \"b\": 1}",
                "STRUCT<a: DOUBLE, b: BIGINT>",
            ),
            ("{}", "{\"a\": 1}", "STRUCT<a: BIGINT>"),
            ("[]", "[1]", "ARRAY<BIGINT>"),
        ] {
            let event = |value: &str| format!("{{\"v\": {value}}}");
            for (first, second) in [(one, other), (other, one)] {
                let found = ddl(&[&event(first), &event(second)]);
                if expected.starts_with("STRUCT") {
                    assert_eq!(found.len(), expected.len() + 2, "{first} {second}");
                } else {
                    assert_eq!(found, format!("v {expected}"), "{first} {second}");
                }
            }
        }
    }

    #[test]
    fn names_with_dots_become_structs() {
        let found = ddl(&[
            r#"{"log.level":"i"}"#,
            r#"{"log":{"offset":1,"file.path":"/"}}"#,
        ]);
        assert_eq!(
            found,
            "log STRUCT<level: STRING, offset: BIGINT, file: STRUCT<path: STRING>>"
        );
        assert_eq!(ddl(&[r#"{"log":"line","log.level":"i"}"#]), "log STRING");
        assert_eq!(ddl(&[r#"{"a..b":1,".":2,"":3,"c":4}"#]), "c BIGINT");
    }

    #[test]
    fn names_that_are_not_plain_are_quoted() {
        let found = ddl(&[r#"{"@timestamp":1,"a b":{"c`d":1},"Élan":1}"#]);
        assert_eq!(
            found,
            "`@timestamp` BIGINT,\n`a b` STRUCT<`c``d`: BIGINT>,\n`Élan` BIGINT"
        );
    }

    #[test]
    fn names_that_differ_in_case_are_one_unless_case_sensitive() {
        let event = r#"{"Message":1,"message":2.5}"#;
        assert_eq!(ddl(&[event]), "`Message` DOUBLE");
        let mut exact = Inference::new(true);
        exact.observe(event.as_bytes());
        assert_eq!(exact.ddl(&[]), "`Message` BIGINT,\nmessage DOUBLE");
        assert_eq!(exact.ddl(&["message"]), "`Message` BIGINT");
        assert_eq!(exact.seen(&["message", "payload"]), ["message"]);
    }

    #[test]
    fn events_that_are_no_object_are_counted() {
        let mut inference = Inference::new(false);
        for payload in [
            b"".as_slice(),
            b"[1]",
            b"{",
            b"{} x",
            b"\xff",
            br#"{"a":1}"#,
        ] {
            inference.observe(payload);
        }
        inference.observe_pairs([b"k".as_slice(), b"7"].into_iter());
        inference.observe_pairs([b"k".as_slice(), b"\xff"].into_iter());
        assert_eq!((inference.events(), inference.malformed()), (8, 6));
        assert_eq!(inference.ddl(&[]), "a BIGINT,\nk STRING");
    }

    #[test]
    fn depth_and_names_are_limited() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100));
        let found = ddl(&[&deep]);
        assert_eq!(found.matches("STRUCT").count(), MAX_SCHEMA_DEPTH - 1);
        let dots = format!(r#"{{"{}":1}}"#, vec!["a"; 100].join("."));
        assert_eq!(ddl(&[&dots]), "");
        let mut inference = Inference::new(false);
        for n in 0..3_000 {
            inference.observe(format!(r#"{{"o":{{"n{n}":1}}}}"#).as_bytes());
        }
        assert_eq!(inference.names_left_out(), 1_001);
        assert_eq!(inference.schema(&[]).fields().len(), 1);
    }

    #[test]
    fn the_arrow_schema_says_the_same() {
        let mut inference = Inference::new(false);
        inference.observe(br#"{"a":[{"b":1}],"t":"2026-11-21T10:00:00Z","e":{}}"#);
        let schema = inference.schema(&[]);
        assert!(
            crate::Projector::new(Arc::new(schema.clone()), &[], &crate::Options::default())
                .is_ok()
        );
        assert_eq!(schema.fields().len(), 3);
        assert_eq!(*schema.field(2).data_type(), DataType::Utf8);
    }
}
