//! Measures the speed of encoding rows as JSON: CPU is wall time of one thread, the best of some
//! rounds, as a JSON line.
//!
//! `cargo run --release -p ackline-json --example encode [ROUNDS]`: rows of an access log with ten columns.
#![allow(clippy::print_stdout)] // a figure for people

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline_json::{Encoder, Nulls, Stamp};
use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field};
use serde_json::json;

const ROWS: i64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: u32 = std::env::args()
        .nth(1)
        .map_or(Ok(50), |text| text.parse())?;
    let batch = batch()?;
    let stamp = Stamp::new("ackline", &[("query", json!("q")), ("batch", json!(7))]);
    let mut encoder = Encoder::new(batch.schema_ref(), Nulls::Omit, Some(stamp))?;
    let mut best = Duration::MAX;
    let mut bytes = 0;
    for _ in 0..rounds {
        let start = Instant::now();
        let rows = encoder.encode(&batch)?;
        best = best.min(start.elapsed());
        bytes = rows.iter().map(bytes::Bytes::len).sum();
    }
    let rows = u32::try_from(ROWS)?;
    let seconds = best.as_secs_f64();
    println!(
        r#"{{"rows":{rows},"bytes_per_row":{},"us_per_row":{:.3},"mb_per_s":{:.0}}}"#,
        bytes / usize::try_from(rows)?,
        seconds * 1e6 / f64::from(rows),
        f64::from(u32::try_from(bytes)?) / seconds / 1e6,
    );
    Ok(())
}

fn batch() -> Result<RecordBatch, Box<dyn Error>> {
    let numbers = || 0..ROWS;
    let line = |n: i64| {
        format!(
            "203.0.113.{} - - [21/Nov/2026:10:12:13 +0000] \"GET /shop/item/{n}?ref=a HTTP/1.1\" 200 {} \
             \"https://example.org/\" \"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\"",
            n % 256,
            n * 7
        )
    };
    let os: ArrayRef = Arc::new(StringArray::from_iter_values(numbers().map(|_| "debian")));
    let name: ArrayRef = Arc::new(StringArray::from_iter_values(
        numbers().map(|n| format!("web-{}", n % 50)),
    ));
    let host = StructArray::from(vec![
        (Arc::new(Field::new("name", DataType::Utf8, true)), name),
        (Arc::new(Field::new("os", DataType::Utf8, true)), os),
    ]);
    let mut tags = ListBuilder::new(StringBuilder::new());
    for _ in numbers() {
        tags.append_value([Some("web"), Some("prod")]);
    }
    let price = Decimal128Array::from_iter_values(numbers().map(|n| i128::from(n) * 31));
    let small = |n: i64| i32::try_from(n % 600).unwrap_or_default();
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "@timestamp",
            Arc::new(
                TimestampMicrosecondArray::from_iter_values(
                    numbers().map(|n| 1_795_255_933_000_000 + n * 1_234),
                )
                .with_timezone("UTC"),
            ),
        ),
        (
            "message",
            Arc::new(StringArray::from_iter_values(numbers().map(line))),
        ),
        (
            "offset",
            Arc::new(Int64Array::from_iter_values(numbers().map(|n| n * 231))),
        ),
        (
            "status",
            Arc::new(Int32Array::from_iter_values(numbers().map(small))),
        ),
        (
            "seconds",
            Arc::new(Float64Array::from_iter_values(
                numbers().map(|n| f64::from(small(n)) / 1_000.0),
            )),
        ),
        ("price", Arc::new(price.with_precision_and_scale(18, 2)?)),
        (
            "cached",
            Arc::new(
                numbers()
                    .map(|n| Some(n % 3 == 0))
                    .collect::<BooleanArray>(),
            ),
        ),
        ("host", Arc::new(host)),
        ("tags", Arc::new(tags.finish())),
        (
            "user",
            Arc::new(
                numbers()
                    .map(|n| (n % 4 == 0).then(|| format!("user{n}")))
                    .collect::<StringArray>(),
            ),
        ),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )?)
}
