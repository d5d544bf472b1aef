use std::time::Instant;

use ackline_core::described::{
    self as core, Args, Decoder, Field, Machine, Misuse, OptionSet, Role, Schema, Shape,
};
use ackline_core::options::Uses;
use ackline_core::{Fraction, Inspected, Value as Own};
use serde_json::json;

use super::*;

/// A protocol of texts: a frame has one number, in decimal digits, and no number if it is empty.
struct Made;

const NUMBER: Shape = Shape::Either(&[Shape::Signed, Shape::Fraction]);
const FRAMES: &[Schema] = &[Schema::new(
    "text",
    &[
        Field::option("number", NUMBER),
        Field::new("names", Shape::List(&Shape::Text)),
    ],
)];
const OPTIONS: &[Field] = &[
    Field::new("unit", Shape::Word(&["text"])),
    Field::option("names", Shape::List(&Shape::Text)),
];

impl Described for Made {
    fn name(&self) -> &'static str {
        "made"
    }

    fn roles(&self) -> &'static [Role] {
        &[]
    }

    fn frames(&self) -> &'static [Schema] {
        FRAMES
    }

    fn decoding(&self) -> OptionSet {
        OptionSet {
            table: Vec::new,
            uses: Uses::DECODE,
            others: OPTIONS,
            limits: &[],
        }
    }

    fn open(&self, role: &str, _now: Instant, _options: &Args) -> Result<Box<dyn Machine>, Misuse> {
        Err(Misuse::no_verb(role))
    }

    fn decoder(&self, _sender: Option<&str>, options: &Args) -> Result<Box<dyn Decoder>, Misuse> {
        Ok(Box::new(Reader {
            names: options.items("names").to_vec(),
        }))
    }

    fn encode(&self, _frame: &str, members: &Args, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let text = match members.get("number") {
            Some(Own::Signed(number)) => number.to_string(),
            Some(Own::Fraction(fraction)) => format!("{:?}", fraction.to_f64()),
            _ => String::new(),
        };
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

struct Reader {
    names: Vec<Own>,
}

impl Decoder for Reader {
    fn next(
        &mut self,
        input: &mut BytesMut,
        offset: u64,
    ) -> Result<Option<Inspected>, core::Failure> {
        let bytes = input.split().freeze();
        let text = String::from_utf8_lossy(&bytes);
        let number = match (text.parse().ok(), text.parse().ok()) {
            _ if text.is_empty() => None,
            (Some(number), _) => Some(Own::Signed(number)),
            (None, Some(number)) => Fraction::new(number).map(Own::Fraction),
            (None, None) => {
                return Err(core::Failure {
                    code: "made.no_number",
                    option: None,
                    offset,
                    message: "no number".to_owned(),
                });
            }
        };
        let mut members = vec![("names", Own::List(self.names.clone()))];
        members.extend(number.map(|number| ("number", number)));
        Ok(Some(Inspected {
            name: "text",
            bytes: bytes.clone(),
            members,
            spans: Vec::new(),
        }))
    }

    fn is_whole(&self) -> bool {
        true
    }
}

/// Runs the vector of a text; returns the difference, if there is one.
fn run_text(text: &str, frame: &Value) -> Option<String> {
    let vector = json!({
        "context": {"unit": "text", "names": ["a", "b"]},
        "hex": to_hex(text.as_bytes()),
        "frames": [frame],
        "canonical": true,
    });
    let mut splits = 0;
    let result = run_frames(&Made, &vector, &mut splits);
    assert_eq!(splits, 0);
    result.err().map(|wrong| wrong.came)
}

#[test]
fn a_whole_text_is_read_once_even_if_it_is_empty() {
    let empty = json!({"type": "text", "names": ["a", "b"]});
    assert_eq!(run_text("", &empty), None);
    let null = json!({"type": "text", "names": ["a", "b"], "number": null});
    assert_eq!(run_text("", &null), None);
    assert!(run_text("1", &null).is_some());
    let vector = json!({"context": {"unit": "text"}, "hex": "78", "error": "no_number"});
    assert!(run_frames(&Made, &vector, &mut 0).is_ok());
}

#[test]
fn numbers_are_compared_by_kind() {
    let frame = |number: Value| json!({"type": "text", "names": ["a", "b"], "number": number});
    for (text, number) in [
        ("-5", json!(-5)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("9223372036854775807", json!(i64::MAX)),
        ("1.5", json!(1.5)),
        ("1413198000.0", json!(1_413_198_000.0)),
    ] {
        assert_eq!(run_text(text, &frame(number)), None, "{text}");
    }
    for (text, number) in [("20", json!(20.0)), ("20.0", json!(20))] {
        assert!(run_text(text, &frame(number)).is_some(), "{text}");
    }
}

#[test]
fn a_member_with_null_is_absent_and_one_that_is_left_out_is_not_compared() {
    let agree = |expected: Value, came: Value| agrees(&plain(&expected), &came);
    assert!(agree(json!([{"a": 1}]), json!([{"a": 1, "b": 2}])));
    assert!(agree(json!([{"a": 1, "b": null}]), json!([{"a": 1}])));
    assert!(agree(json!([{"b": null}]), json!([{"b": null}])));
    assert!(!agree(json!([{"b": null}]), json!([{"b": 2}])));
    assert!(!agree(json!([{"b": 2}]), json!([{}])));
    assert!(!agree(json!([{"b": 2}]), json!([{"b": 2.0}])));
}
