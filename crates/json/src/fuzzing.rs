//! The fuzz target's entry: it takes any bytes and fails an assertion if a promise of the crate
//! does not hold for them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{Inference, Mode, Options, ProjectError, Projector, with_rescued};

/// Projects bytes as an event and as pairs, in every mode, between two events that fit.
///
/// A row is complete or it is refused; valid values are not lost; a refused event is one that
/// `serde_json` refuses, or no object, or too deep; the event after it is not affected.
pub fn project(data: &[u8]) {
    let fits = serde_json::from_slice::<Value>(data)
        .ok()
        .filter(Value::is_object);
    for mode in [Mode::Permissive, Mode::DropMalformed, Mode::FailFast] {
        let options = Options {
            mode,
            ..Options::default()
        };
        let whole = run(data, &options);
        let refused = matches!(whole, Err(ProjectError::Malformed { .. }));
        assert!(mode == Mode::FailFast || !refused, "{mode:?} refuses");
        if fits.is_some() {
            let batch = whole.as_ref().ok();
            assert!(
                batch.is_some_and(|batch| batch.num_rows() == 3),
                "an object is not whole"
            );
        }
        if let Ok(batch) = whole {
            check(&batch, fits.as_ref());
        }
        pairs(data, &options);
    }
    infer(data, fits.is_some());
}

/// The bytes between two events whose rows are known.
fn run(data: &[u8], options: &Options) -> Result<RecordBatch, ProjectError> {
    let mut projector = made(options);
    for (position, event) in (0..).zip([KNOWN, data, KNOWN]) {
        projector.push(position, event)?;
    }
    projector.finish(&nothing(3))
}

fn check(batch: &RecordBatch, event: Option<&Value>) {
    let last = batch.num_rows().saturating_sub(1);
    for row in [0, last] {
        let text = batch.column(0).as_string::<i32>();
        assert_eq!(text.value(row), "known", "a row was moved");
    }
    let rescued = batch
        .column_by_name("_rescued")
        .map(AsArray::as_string::<i32>);
    let Some(rescued) = rescued else {
        return;
    };
    for text in rescued.iter().flatten() {
        // Its grammar alone: a number that no double can hold is kept as text.
        let object = serde_json::from_str::<IgnoredAny>(text);
        assert!(
            object.is_ok() && text.starts_with('{'),
            "what is rescued is no object: {text:?}"
        );
    }
    // A member that no column can take is kept.
    let is_kept = event
        .and_then(|event| event.get("zzz"))
        .is_none_or(|_| rescued.is_valid(1));
    assert!(is_kept, "a member was lost");
}

fn pairs(data: &[u8], options: &Options) {
    let mut projector = made(options);
    let parts = data.split(|byte| *byte == b'\n');
    if projector.push_pairs(0, parts).is_ok() {
        assert!(projector.push(1, KNOWN).is_ok());
        assert!(projector.finish(&nothing(2)).is_ok(), "pairs broke a batch");
    }
}

fn infer(data: &[u8], is_object: bool) {
    let mut inference = Inference::new(false);
    inference.observe(data);
    assert!(
        !is_object || inference.malformed() == 0,
        "an object is malformed"
    );
    let schema = inference.schema(&[]);
    let made = Projector::new(Arc::new(schema), &[], &Options::default());
    let mut projector = made.expect("a schema that was inferred is taken");
    assert!(projector.push(0, data).is_ok());
    assert!(projector.finish(&nothing(1)).is_ok());
}

fn made(options: &Options) -> Projector {
    let schema = with_rescued(&schema(), options);
    Projector::new(schema, &[], options).expect("every type of it is read")
}

/// One column of each kind, nested and not.
fn schema() -> SchemaRef {
    let nullable = |name: &str, data_type| Field::new(name, data_type, true);
    let list = |element| DataType::List(Arc::new(nullable("element", element)));
    let inner = Fields::from(vec![
        nullable("t", DataType::Utf8),
        nullable("n", DataType::Decimal128(10, 2)),
    ]);
    let utc = Some(Arc::from("UTC"));
    let nested = vec![
        nullable("b", DataType::Boolean),
        nullable("l", list(DataType::Struct(inner))),
        nullable("y", DataType::Binary),
    ];
    let key = Field::new("key", DataType::Utf8, false);
    let value = nullable("value", list(DataType::Float64));
    let marked = [("variant".to_owned(), "true".to_owned())];
    let variant = vec![
        Field::new("value", DataType::Binary, false),
        Field::new("metadata", DataType::Binary, false)
            .with_metadata(std::collections::HashMap::from(marked)),
    ];
    Arc::new(Schema::new(vec![
        nullable("s", DataType::Utf8),
        nullable("i", DataType::Int32),
        nullable("at", DataType::Timestamp(TimeUnit::Microsecond, utc)),
        nullable("day", DataType::Date32),
        nullable("o", DataType::Struct(nested.into())),
        nullable("o.x", DataType::UInt64),
        Field::new_map("m", "entries", key, value, false, true),
        nullable("v", DataType::Struct(variant.into())),
    ]))
}

fn nothing(rows: usize) -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let schema = Arc::new(Schema::empty());
    RecordBatch::try_new_with_options(schema, Vec::new(), &options).expect("no columns agree")
}

const KNOWN: &[u8] = br#"{"s":"known","i":1,"o":{"b":true,"l":[{"t":"x"}]},"m":{"k":[1]},"v":[1]}"#;
