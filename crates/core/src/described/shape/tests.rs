use super::*;

/// A value as a test writes it.
#[derive(Clone)]
enum Own {
    Nothing,
    Number(u64),
    Signed(i64),
    Fraction(f64),
    Text(&'static str),
    List(Vec<Self>),
    Map(Vec<(&'static str, Self)>),
}

impl Source for Own {
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn signed(&self) -> Option<i64> {
        match self {
            Self::Number(number) => i64::try_from(*number).ok(),
            Self::Signed(number) => Some(*number),
            _ => None,
        }
    }

    fn fraction(&self) -> Option<Fraction> {
        match self {
            Self::Fraction(number) => Fraction::new(*number),
            _ => None,
        }
    }

    fn flag(&self) -> Option<bool> {
        None
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some((*text).to_owned()),
            _ => None,
        }
    }

    fn bytes(&self) -> Option<Bytes> {
        None
    }

    fn items(&self) -> Option<Vec<Self>> {
        match self {
            Self::List(items) => Some(items.clone()),
            _ => None,
        }
    }

    fn members(&self) -> Option<Vec<(String, Self)>> {
        let Self::Map(members) = self else {
            return None;
        };
        let members = members.iter().cloned();
        Some(
            members
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }

    fn tagged(&self) -> Option<(String, Self)> {
        let mut members = self.members()?;
        members.pop().filter(|_| members.is_empty())
    }

    fn shown(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Signed(number) => number.to_string(),
            Self::Fraction(number) => number.to_string(),
            Self::Text(text) => (*text).to_owned(),
            _ => "it".to_owned(),
        }
    }
}

const TAGGED: Shape = Shape::Tagged {
    words: &["top"],
    tags: &["own"],
    of: &Shape::U8,
};
const VERB: Schema = Schema::new(
    "send",
    &[
        Field::new("target", TAGGED),
        Field::switch("through", Shape::number(1, 9)),
    ],
);

fn read(given: &[(&'static str, Own)]) -> Result<Args, String> {
    let given = given.iter().cloned();
    let given = given.map(|(name, value)| (name.to_owned(), value));
    let read = VERB.arguments(given.collect());
    read.map_err(|error| error.message().to_owned())
}

#[test]
fn values_of_their_shapes_are_read() {
    let own = Own::Map(vec![("own", Own::Number(7))]);
    let args = read(&[("target", own), ("through", Own::Number(9))]).unwrap();
    let target = Value::Tagged("own", Box::new(Value::Number(7)));
    assert_eq!(args.get("target"), Some(&target));
    assert_eq!(args.number("through"), Ok(Some(9_u32)));
    let args = read(&[("target", Own::Text("top")), ("through", Own::Nothing)]).unwrap();
    assert_eq!(args.number::<u32>("through"), Ok(None));
}

#[test]
fn other_values_are_refused_by_verb_and_name() {
    let top = || ("target", Own::Text("top"));
    for (given, said) in [
        (vec![], "send: target is missing: it has target, through"),
        (
            vec![("target", Own::Nothing)],
            "send: target is it; it is \"top\" or (\"own\", id)",
        ),
        (
            vec![("target", Own::Map(vec![("own", Own::Number(256))]))],
            "send: target is 256; it is a whole number from 0 to 255",
        ),
        (
            vec![("target", Own::Map(vec![("peer", Own::Number(1))]))],
            "send: target is it; it is \"top\" or (\"own\", id)",
        ),
        (
            vec![top(), ("through", Own::Number(0))],
            "send: through is 0; it is a whole number from 1 to 9",
        ),
        (
            vec![top(), ("through", Own::Number(10))],
            "send: through is 10; it is a whole number from 1 to 9",
        ),
        (
            vec![top(), ("thru", Own::Number(1))],
            "send: there is no argument \"thru\": it has target, through",
        ),
    ] {
        assert_eq!(read(&given), Err(said.to_owned()));
    }
}

#[test]
fn rows_and_maps_have_all_of_their_values() {
    let shape = Shape::List(&Shape::Row(&[Shape::U8, Shape::Text]));
    let row = Own::List(vec![Own::Number(1), Own::Text("x")]);
    let read = shape.read("rows", &Own::List(vec![row.clone()])).unwrap();
    let read_row = Value::List(vec![Value::Number(1), Value::Text("x".to_owned())]);
    assert_eq!(read, Value::List(vec![read_row]));
    let short = Own::List(vec![row, Own::List(vec![Own::Number(1)])]);
    assert!(shape.read("rows", &short).is_err());
    const NAMED: Shape = Shape::Map(&[Field::new("name", Shape::Text)]);
    assert!(NAMED.read("one", &Own::Map(vec![])).is_err());
    let either = Shape::Either(&[Shape::U8, Shape::Text]);
    assert!(either.read("one", &Own::Text("x")).is_ok());
    let error = either.read("one", &Own::Number(256)).unwrap_err();
    assert_eq!(
        error.message(),
        "one is 256; it is a whole number from 0 to 255 or text"
    );
}

#[test]
fn numbers_are_whole_or_fractions_as_they_are_given() {
    const NUMBER: Shape = Shape::Either(&[Shape::Signed, Shape::Fraction]);
    let fraction = |number| Value::Fraction(Fraction::new(number).unwrap());
    for (given, read) in [
        (Own::Number(20), Value::Signed(20)),
        (Own::Signed(-5), Value::Signed(-5)),
        (Own::Fraction(20.0), fraction(20.0)),
        (Own::Fraction(1.5), fraction(1.5)),
    ] {
        assert_eq!(NUMBER.read("number", &given), Ok(read));
    }
    let refused = |shape: &Shape, given| {
        let error = shape.read("one", &given).unwrap_err();
        error.message().to_owned()
    };
    let whole = "a whole number from -9223372036854775808 to 9223372036854775807";
    assert_eq!(
        refused(&NUMBER, Own::Number(1 << 63)),
        format!("one is 9223372036854775808; it is {whole} or a finite fraction")
    );
    assert_eq!(
        refused(&Shape::Signed, Own::Fraction(1.5)),
        format!("one is 1.5; it is {whole}")
    );
    assert_eq!(
        refused(&Shape::Fraction, Own::Fraction(f64::NAN)),
        "one is NaN; it is a finite fraction"
    );
    assert!(Shape::U64.read("one", &Own::Signed(-5)).is_err());
}
