//! The shapes of values, and how a value of another language is read by one.

use bytes::Bytes;

use super::args::{Args, Misuse, listed};
use crate::{Fraction, Members, Value};

/// A value of another language: JSON of the vectors, an object of Python. Each method answers `None` where the
/// value is something else.
pub trait Source: Sized {
    /// Whether it stands for no value.
    fn is_nothing(&self) -> bool;
    /// A whole number.
    fn number(&self) -> Option<u64>;
    /// A whole number that may be negative.
    fn signed(&self) -> Option<i64>;
    /// A fraction.
    fn fraction(&self) -> Option<Fraction>;
    /// A flag.
    fn flag(&self) -> Option<bool>;
    /// A text.
    fn text(&self) -> Option<String>;
    /// Bytes.
    fn bytes(&self) -> Option<Bytes>;
    /// Several values.
    fn items(&self) -> Option<Vec<Self>>;
    /// Several values by name.
    fn members(&self) -> Option<Vec<(String, Self)>>;
    /// A word and its value.
    fn tagged(&self) -> Option<(String, Self)>;
    /// The value in a sentence.
    fn shown(&self) -> String;
}

/// The shape of a value.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A whole number from `least` to `most`.
    Number {
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// A whole number of 64 bits that may be negative.
    Signed,
    /// A fraction.
    Fraction,
    /// A flag.
    Flag,
    /// Bytes.
    Bytes,
    /// A text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, or one of `tags` with a value of the shape `of`.
    Tagged {
        /// Words that stand alone.
        words: &'static [&'static str],
        /// Words with a value.
        tags: &'static [&'static str],
        /// The value's shape.
        of: &'static Self,
    },
    /// A value of the first of these shapes that it has.
    Either(&'static [Self]),
    /// Any number of values of one shape.
    List(&'static Self),
    /// A value of each of these shapes, in order.
    Row(&'static [Self]),
    /// Values by name.
    Map(&'static [Field]),
    /// Frames.
    Frames(&'static [Schema]),
}

/// A value by name: an argument, an option, or a member of an event or frame.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its shape.
    pub shape: Shape,
    /// Whether it may be left out.
    pub is_optional: bool,
    /// Whether it may be no value, which is off.
    pub is_nullable: bool,
    /// The name that the vectors have for this limit, if it is one.
    pub limit: Option<&'static str>,
}

/// A verb, an event or a frame: its name and its values.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub fields: &'static [Field],
    /// An event that the vectors do not have.
    pub is_beside_the_vectors: bool,
}

impl Shape {
    /// A number of 8 bits.
    pub const U8: Self = Self::number(0, 0xff);
    /// A number of 32 bits.
    pub const U32: Self = Self::number(0, 0xffff_ffff);
    /// A number of 64 bits.
    pub const U64: Self = Self::number(0, u64::MAX);

    /// A whole number from `least` to `most`.
    pub const fn number(least: u64, most: u64) -> Self {
        Self::Number { least, most }
    }

    fn read<S: Source>(&self, name: &str, source: &S) -> Result<Value, Misuse> {
        let odd = || {
            let (shown, wanted) = (source.shown(), self.wanted());
            Misuse::of(name, format!("{name} is {shown}; it is {wanted}"))
        };
        match self {
            Self::Tagged { tags, of, .. } if word(self, source).is_none() => {
                let (tag, value) = source.tagged().ok_or_else(odd)?;
                let tag = tags.iter().find(|one| **one == tag).ok_or_else(odd)?;
                Ok(Value::Tagged(tag, Box::new(of.read(name, &value)?)))
            }
            Self::Either(shapes) => {
                let mut read = shapes.iter().map(|shape| shape.read(name, source));
                read.find(Result::is_ok).unwrap_or_else(|| Err(odd()))
            }
            Self::List(of) => {
                let items = source.items().ok_or_else(odd)?;
                let read = items.iter().map(|item| of.read(name, item));
                read.collect::<Result<_, _>>().map(Value::List)
            }
            Self::Row(shapes) => {
                let items = source.items().filter(|items| items.len() == shapes.len());
                let items = items.ok_or_else(odd)?;
                let read = shapes.iter().zip(&items);
                let read = read.map(|(shape, item)| shape.read(name, item));
                read.collect::<Result<_, _>>().map(Value::List)
            }
            Self::Map(fields) => {
                let given = source.members().ok_or_else(odd)?;
                let Args(members) = read(fields, given, |key, names| {
                    Misuse::of(name, format!("{name} has no member {key:?}: {names}"))
                })?;
                Ok(Value::Map(members))
            }
            Self::Frames(known) => {
                let items = source.items().ok_or_else(odd)?;
                let read = items.iter().map(|item| {
                    let (name, Args(members)) = Schema::read_one_of(known, name, item)?;
                    Ok(Value::Tagged(name, Box::new(Value::Map(members))))
                });
                read.collect::<Result<_, _>>().map(Value::List)
            }
            _ => self.read_plain(source).ok_or_else(odd),
        }
    }

    /// A value without others inside.
    fn read_plain<S: Source>(&self, source: &S) -> Option<Value> {
        match self {
            Self::Number { least, most } => {
                let number = source.number().filter(|it| (least..=most).contains(&it));
                number.map(Value::Number)
            }
            Self::Signed => source.signed().map(Value::Signed),
            Self::Fraction => source.fraction().map(Value::Fraction),
            Self::Flag => source.flag().map(Value::Flag),
            Self::Bytes => source.bytes().map(Value::Bytes),
            Self::Text => source.text().map(Value::Text),
            _ => word(self, source),
        }
    }

    /// The values that have this shape, in a sentence.
    fn wanted(&self) -> String {
        match self {
            Self::Number { least, most } => format!("a whole number from {least} to {most}"),
            Self::Signed => format!("a whole number from {} to {}", i64::MIN, i64::MAX),
            Self::Fraction => "a finite fraction".to_owned(),
            Self::Flag => "True or False".to_owned(),
            Self::Bytes => "bytes".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Word(words) => quoted(words),
            Self::Tagged { words, tags, .. } => {
                let words = words.iter().map(|word| format!("{word:?}"));
                let tags = tags.iter().map(|tag| format!("({tag:?}, id)"));
                alternatives(&words.chain(tags).collect::<Vec<_>>())
            }
            Self::Either(shapes) => {
                alternatives(&shapes.iter().map(Self::wanted).collect::<Vec<_>>())
            }
            Self::List(_) | Self::Frames(_) => "a list".to_owned(),
            Self::Row(shapes) => format!("a list of {}", shapes.len()),
            Self::Map(fields) => format!("a map: {}", names(fields)),
        }
    }
}

/// The word that the value is, if it is one of the shape's.
fn word<S: Source>(shape: &Shape, source: &S) -> Option<Value> {
    let (Shape::Word(words) | Shape::Tagged { words, .. }) = shape else {
        return None;
    };
    let text = source.text()?;
    let found = words.iter().find(|word| **word == text);
    found.map(|word| Value::Name(word))
}

/// `"a", "b" or "c"`.
pub(super) fn quoted(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
    alternatives(&words)
}

fn alternatives(all: &[String]) -> String {
    match all.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

impl Field {
    /// A value that must be given.
    pub const fn new(name: &'static str, shape: Shape) -> Self {
        Self {
            name,
            shape,
            is_optional: false,
            is_nullable: false,
            limit: None,
        }
    }

    /// A value that may be left out.
    pub const fn option(name: &'static str, shape: Shape) -> Self {
        Self {
            is_optional: true,
            ..Self::new(name, shape)
        }
    }

    /// A value that may be left out, or be off.
    pub const fn switch(name: &'static str, shape: Shape) -> Self {
        Self {
            is_nullable: true,
            ..Self::option(name, shape)
        }
    }

    /// A time in milliseconds, which may be off.
    pub const fn timer(name: &'static str) -> Self {
        Self::switch(name, Shape::U64)
    }
}

impl Schema {
    /// A verb, an event or a frame.
    pub const fn new(name: &'static str, fields: &'static [Field]) -> Self {
        Self {
            name,
            fields,
            is_beside_the_vectors: false,
        }
    }

    /// An event that the vectors do not have.
    #[must_use]
    pub const fn beside_the_vectors(self) -> Self {
        Self {
            is_beside_the_vectors: true,
            ..self
        }
    }

    /// Reads the arguments of this verb.
    pub(super) fn arguments<S: Source>(&self, given: Vec<(String, S)>) -> Result<Args, Misuse> {
        let read = read(self.fields, given, |key, names| {
            let message = format!("there is no argument {key:?}: {names}");
            Misuse::of("unknown_argument", message)
        });
        read.map_err(|wrong| wrong.within(self.name))
    }

    /// Reads a map whose `type` names one of `known`, and whose other members are the values of that one.
    pub(super) fn read_one_of<S: Source>(
        known: &'static [Self],
        of: &str,
        source: &S,
    ) -> Result<(&'static str, Args), Misuse> {
        let odd = || Misuse::of("frame", format!("a frame is a map, not {}", source.shown()));
        let mut given = source.members().ok_or_else(odd)?;
        let at = given.iter().position(|(name, _)| name == "type");
        let kind = at.and_then(|at| given.swap_remove(at).1.text());
        let kind = kind.unwrap_or_default();
        let found = known.iter().find(|one| one.name == kind);
        let found = found
            .ok_or_else(|| Misuse::unknown("frame", &kind, of, known.iter().map(|one| one.name)))?;
        let read = read(found.fields, given, |key, names| {
            let message = format!("there is no member {key:?}: {names}");
            Misuse::of("unknown_member", message)
        });
        Ok((found.name, read.map_err(|wrong| wrong.within(found.name))?))
    }
}

/// Reads values by their fields; `unknown` makes the error of a name that no field has.
pub(super) fn read<S: Source>(
    fields: &[Field],
    given: Vec<(String, S)>,
    unknown: impl Fn(&str, &str) -> Misuse,
) -> Result<Args, Misuse> {
    let mut members = Members::new();
    for (key, source) in given {
        let field = fields.iter().find(|field| field.name == key);
        let field = field.ok_or_else(|| unknown(&key, &names(fields)))?;
        let value = if field.is_nullable && source.is_nothing() {
            Value::Nothing
        } else {
            field.shape.read(field.name, &source)?
        };
        members.push((field.name, value));
    }
    let is_missing =
        |field: &&Field| !field.is_optional && members.iter().all(|(name, _)| *name != field.name);
    if let Some(Field { name, .. }) = fields.iter().find(is_missing) {
        return Err(Misuse::of(
            name,
            format!("{name} is missing: {}", names(fields)),
        ));
    }
    Ok(Args(members))
}

fn names(fields: &[Field]) -> String {
    listed(fields.iter().map(|field| field.name))
}

#[cfg(test)]
mod tests;
