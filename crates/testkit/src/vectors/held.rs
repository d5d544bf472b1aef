//! Whether events and frames are as they are described.

use ackline_core::described::{Field, Shape};
use ackline_core::{Members, Value};

/// Whether these are values of all fields, and no others.
pub(super) fn hold(fields: &[Field], members: &Members) -> bool {
    let known = |name: &str| fields.iter().any(|field| field.name == name);
    members.iter().all(|(name, _)| known(name))
        && fields.iter().all(|field| {
            let found = members.iter().find(|(name, _)| *name == field.name);
            match found {
                Some((_, Value::Nothing)) => field.is_nullable,
                Some((_, value)) => has(&field.shape, value),
                None => field.is_optional,
            }
        })
}

/// Whether the value has this shape.
fn has(shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::Number { least, most }, Value::Number(number)) => (least..=most).contains(&number),
        (Shape::Signed, Value::Signed(_))
        | (Shape::Fraction, Value::Fraction(_))
        | (Shape::Flag, Value::Flag(_))
        | (Shape::Bytes, Value::Bytes(_))
        | (Shape::Text, Value::Text(_) | Value::Name(_)) => true,
        (Shape::Word(words) | Shape::Tagged { words, .. }, Value::Name(word)) => {
            words.contains(word)
        }
        (Shape::Tagged { tags, of, .. }, Value::Tagged(tag, value)) => {
            tags.contains(tag) && has(of, value)
        }
        (Shape::Either(shapes), value) => shapes.iter().any(|shape| has(shape, value)),
        (Shape::List(of), Value::List(items)) => items.iter().all(|item| has(of, item)),
        (Shape::Row(shapes), Value::List(items)) => {
            shapes.len() == items.len()
                && shapes
                    .iter()
                    .zip(items)
                    .all(|(shape, item)| has(shape, item))
        }
        (Shape::Map(fields), Value::Map(members)) => hold(fields, members),
        (Shape::Frames(known), Value::Frames(frames)) => frames.iter().all(|frame| {
            let found = known.iter().find(|one| one.name == frame.name);
            found.is_some_and(|one| hold(one.fields, &frame.members))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ackline_core::Fraction;

    use super::*;

    const TAGGED: Shape = Shape::Tagged {
        words: &["top"],
        tags: &["own"],
        of: &Shape::U8,
    };
    const FIELDS: &[Field] = &[
        Field::new("target", TAGGED),
        Field::switch("through", Shape::number(1, 9)),
    ];

    #[test]
    fn members_hold_when_all_are_there_and_have_their_shapes() {
        let target = ("target", Value::Name("top"));
        let through = |value| vec![target.clone(), ("through", value)];
        for (members, holds) in [
            (vec![target.clone()], true),
            (through(Value::Number(1)), true),
            (through(Value::Nothing), true),
            (through(Value::Number(10)), false),
            (through(Value::Flag(true)), false),
            (vec![], false),
            (vec![target.clone(), ("more", Value::Number(1))], false),
            (vec![("target", Value::Name("down"))], false),
            (
                vec![("target", Value::Tagged("own", Box::new(Value::Number(256))))],
                false,
            ),
        ] {
            assert_eq!(hold(FIELDS, &members), holds, "{members:?}");
        }
    }

    #[test]
    fn numbers_keep_their_kind() {
        let fraction = Value::Fraction(Fraction::new(1.0).unwrap());
        assert!(has(&Shape::Signed, &Value::Signed(1)));
        assert!(has(&Shape::Fraction, &fraction));
        assert!(!has(&Shape::Signed, &fraction));
        assert!(!has(&Shape::Signed, &Value::Number(1)));
        assert!(!has(&Shape::U64, &Value::Signed(1)));
    }

    #[test]
    fn a_row_has_all_of_its_values() {
        const ROW: Shape = Shape::Row(&[Shape::U8, Shape::Text]);
        let row = |items| has(&ROW, &Value::List(items));
        assert!(row(vec![Value::Number(1), Value::Name("x")]));
        assert!(!row(vec![Value::Number(1)]));
        assert!(!row(vec![Value::Name("x"), Value::Number(1)]));
    }
}
