//! One value of an event as the columns see it: its kind, and its original text.

use std::borrow::Cow;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::text;

/// A value of valid JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    /// Without its quotes, still escaped.
    String(&'a str),
    Object(&'a str),
    Array(&'a str),
}

impl<'a> Value<'a> {
    pub(crate) fn of(raw: &'a str) -> Self {
        match raw.as_bytes().first() {
            Some(b'"') => Self::String(text::body(raw)),
            Some(b'{') => Self::Object(raw),
            Some(b'[') => Self::Array(raw),
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'-' | b'0'..=b'9') => Self::Number(raw),
            _ => Self::Null,
        }
    }

    /// The value that a text represents in a protocol that has only texts.
    pub(crate) fn of_text(text: &'a str) -> Option<Self> {
        match text {
            "true" => Some(Self::Bool(true)),
            "false" => Some(Self::Bool(false)),
            _ => text::is_number(text).then_some(Self::Number(text)),
        }
    }

    /// A string's contents; `None` if it is no string or half a surrogate pair.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Self::String(body) => text::unescaped(body),
            _ => None,
        }
    }
}

/// The elements of an array, unparsed.
pub(crate) fn elements<'a>(
    array: &'a str,
    each: &mut dyn FnMut(&'a str),
) -> Result<(), serde_json::Error> {
    struct Each<'f, 'a>(&'f mut dyn FnMut(&'a str));
    impl<'a> Visitor<'a> for Each<'_, 'a> {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'a>>(self, mut elements: A) -> Result<(), A::Error> {
            while let Some(element) = elements.next_element::<&RawValue>()? {
                (self.0)(element.get());
            }
            Ok(())
        }
    }
    serde_json::Deserializer::from_str(array).deserialize_seq(Each(each))
}

/// The members of an object, unparsed: names with their quotes, values.
pub(crate) fn members<'a>(
    object: &'a str,
    each: &mut dyn FnMut(&'a str, &'a str),
) -> Result<(), serde_json::Error> {
    struct Each<'f, 'a>(&'f mut dyn FnMut(&'a str, &'a str));
    impl<'a> Visitor<'a> for Each<'_, 'a> {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
            while let Some(name) = members.next_key::<&RawValue>()? {
                let value: &RawValue = members.next_value()?;
                (self.0)(name.get(), value.get());
            }
            Ok(())
        }
    }
    serde_json::Deserializer::from_str(object).deserialize_map(Each(each))
}

/// Checks that a text is JSON, with nothing after it.
pub(crate) fn check(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<IgnoredAny>(text).map(drop)
}
