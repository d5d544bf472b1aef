//! Values of the vectors, which are JSON, and those of a description.

use ackline_core::described::{Field, Source};
use ackline_core::{Fraction, Inspected, Members};
use bytes::Bytes;
use serde_json::{Map, Value};

use super::{bytes_of, to_hex};

/// A value of the vectors.
pub(super) struct Json<'a>(&'a Value);

impl Source for Json<'_> {
    fn is_nothing(&self) -> bool {
        self.0.is_null()
    }

    fn number(&self) -> Option<u64> {
        self.0.as_u64()
    }

    fn signed(&self) -> Option<i64> {
        self.0.as_i64()
    }

    fn fraction(&self) -> Option<Fraction> {
        // A whole number is none: 1 is not 1.0.
        let number = self.0.as_f64().filter(|_| self.0.is_f64());
        number.and_then(Fraction::new)
    }

    fn flag(&self) -> Option<bool> {
        self.0.as_bool()
    }

    fn text(&self) -> Option<String> {
        self.0.as_str().map(str::to_owned)
    }

    fn bytes(&self) -> Option<Bytes> {
        bytes_of(self.0).ok().map(Bytes::from)
    }

    fn items(&self) -> Option<Vec<Self>> {
        Some(self.0.as_array()?.iter().map(Json).collect())
    }

    fn members(&self) -> Option<Vec<(String, Self)>> {
        self.0.as_object().map(sources)
    }

    fn tagged(&self) -> Option<(String, Self)> {
        let mut members = self.members()?;
        members.pop().filter(|_| members.is_empty())
    }

    fn shown(&self) -> String {
        self.0.to_string()
    }
}

/// The members of an object.
pub(super) fn sources(map: &Map<String, Value>) -> Vec<(String, Json<'_>)> {
    let members = map.iter();
    members
        .map(|(name, value)| (name.clone(), Json(value)))
        .collect()
}

/// A config or a context as options: `limits` have other names there.
pub(super) fn options<'a>(
    fields: &[Field],
    map: &'a Map<String, Value>,
) -> Result<Vec<(String, Json<'a>)>, String> {
    let mut given = sources(map);
    given.retain(|(name, _)| name != "limits");
    let limits = map
        .get("limits")
        .map(|limits| limits.as_object().ok_or("limits"));
    for (name, value) in limits.transpose()?.into_iter().flatten() {
        let mut fields = fields.iter();
        let field = fields.find(|field| field.limit == Some(name));
        let field = field.ok_or_else(|| format!("limit {name}"))?;
        given.push((field.name.to_owned(), Json(value)));
    }
    Ok(given)
}

/// One frame, as `frame`.
pub(super) fn source(frame: &Value) -> Json<'_> {
    Json(frame)
}

/// A value as the vectors write it.
pub(super) fn to_json(value: &ackline_core::Value) -> Value {
    use ackline_core::Value as Own;
    match value {
        Own::Nothing => Value::Null,
        Own::Number(number) => (*number).into(),
        Own::Signed(number) => (*number).into(),
        Own::Fraction(fraction) => fraction.to_f64().into(),
        Own::Flag(flag) => (*flag).into(),
        Own::Name(name) => (*name).into(),
        Own::Text(text) => text.clone().into(),
        Own::Bytes(bytes) => to_hex(bytes).into(),
        Own::List(items) => items.iter().map(to_json).collect(),
        Own::Map(members) => object("", members),
        Own::Tagged(tag, value) => Map::from_iter([((*tag).to_owned(), to_json(value))]).into(),
        Own::Frames(frames) => frames.iter().map(frame).collect(),
    }
}

/// A frame as the vectors write it.
pub(super) fn frame(frame: &Inspected) -> Value {
    object(frame.name, &frame.members)
}

fn object(kind: &str, members: &Members) -> Value {
    let members = members.iter();
    let mut map: Map<_, _> = members
        .map(|(name, value)| ((*name).to_owned(), to_json(value)))
        .collect();
    if !kind.is_empty() {
        map.insert("type".to_owned(), kind.into());
    }
    map.into()
}
