//! Any object, projected: every member comes out, in a column or rescued; and the assertions of the
//! fuzz target.

use std::path::Path;

use crate::support::{field, list, long, map, projector, row, structure, text};
use ackline_json::{Encoder, Nulls, Options, fuzzing, with_rescued};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Scalars that JSON writes and reads the same.
fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            object_of(inner).prop_map(Value::Object),
        ]
    })
}

fn object_of(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let name = prop_oneof![
        prop::sample::select(vec!["a", "b", "o", "p", "l", "m", "s", "o.a"]).prop_map(String::from),
        any::<String>(),
    ];
    prop::collection::vec((name, value), 0..6).prop_map(|members| members.into_iter().collect())
}

fn schema() -> Vec<Field> {
    vec![
        long("a"),
        field("b", DataType::Boolean),
        text("s"),
        structure("o", vec![long("a"), structure("p", vec![text("s")])]),
        list("l", DataType::Float64),
        map("m", DataType::Int64),
    ]
}

/// All members of an object, by their names joined with dots; objects are replaced by their
/// members.
fn leaves(object: &Map<String, Value>, above: &str, out: &mut Vec<(String, Value)>) {
    for (name, value) in object {
        let name = if above.is_empty() {
            name.clone()
        } else {
            format!("{above}.{name}")
        };
        match value {
            Value::Object(inner) if !inner.is_empty() => leaves(inner, &name, out),
            _ => out.push((name, value.clone())),
        }
    }
}

proptest! {
    #[test]
    fn nothing_is_lost(object in object_of(value()), spaced in any::<bool>()) {
        let event = if spaced {
            serde_json::to_string_pretty(&object).unwrap()
        } else {
            serde_json::to_string(&object).unwrap()
        };
        let row = row(schema(), &event);
        let mut found = Vec::new();
        if let Some(rescued) = row["_rescued"].as_str() {
            let rescued: Value = serde_json::from_str(rescued).unwrap();
            leaves(rescued.as_object().unwrap(), "", &mut found);
        }
        let mut wanted = Vec::new();
        // As read from text: the nearest double of a long number may differ.
        let object: Map<String, Value> = serde_json::from_str(&event).unwrap();
        leaves(&object, "", &mut wanted);
        for (name, value) in wanted {
            let folded = name.to_lowercase();
            let is_column = ["a", "b", "s", "l", "o", "o.a", "o.p", "o.p.s"].contains(&folded.as_str())
                || folded == "m" || folded.starts_with("m.") || folded.starts_with("s.");
            let is_rescued = found.iter().any(|(other, kept)| other.to_lowercase() == folded && *kept == value);
            prop_assert!(is_column || is_rescued, "{name} is lost: {event} became {row}");
        }
    }

    #[test]
    fn a_column_holds_the_value_of_its_member(a in any::<Option<i64>>(), s in any::<Option<String>>(),
        l in prop::collection::vec(any::<Option<i32>>(), 0..5), p in any::<Option<String>>()) {
        let event = json!({"a": a, "o": {"p": {"s": p}}, "l": l, "s": s}).to_string();
        let row = row(schema(), &event);
        prop_assert_eq!(&row["a"], &json!(a));
        prop_assert_eq!(&row["s"], &json!(s));
        prop_assert_eq!(&row["o"]["p"]["s"], &json!(p));
        prop_assert_eq!(&row["l"], &json!(l.iter().map(|n| n.map(f64::from)).collect::<Vec<_>>()));
        prop_assert_eq!(&row["_rescued"], &Value::Null);
    }

    #[test]
    fn columns_survive_encoding_and_projection(object in object_of(value())) {
        let options = Options { rescued: None, ..Options::default() };
        let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![],
            &RecordBatchOptions::new().with_row_count(Some(1))).unwrap();
        let read = |text: &[u8]| {
            let mut projector = projector(schema(), &options);
            projector.push(0, text).unwrap();
            projector.finish(&none).unwrap()
        };
        let batch = read(Value::Object(object).to_string().as_bytes());
        let schema = with_rescued(&Schema::new(schema()), &options);
        let mut encoder = Encoder::new(&schema, Nulls::Keep, None).unwrap();
        let written = encoder.encode(&batch).unwrap().remove(0);
        prop_assert_eq!(read(&written), batch);
    }

    #[test]
    fn any_bytes_keep_the_promises(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzzing::project(&bytes);
    }

    #[test]
    fn any_json_with_a_byte_changed_keeps_the_promises(
        object in object_of(value()), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut event = Value::Object(object).to_string().into_bytes();
        fuzzing::project(&event);
        let at = at.index(event.len());
        event[at] = byte;
        fuzzing::project(&event);
    }
}

#[test]
fn the_seeds_of_the_fuzz_target_keep_the_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/json_project");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let seed = std::fs::read(entry.unwrap().path()).unwrap();
        fuzzing::project(&seed);
        (0..seed.len()).for_each(|end| fuzzing::project(&seed[..end]));
        seen += 1;
    }
    assert!(seen >= 5);
}
