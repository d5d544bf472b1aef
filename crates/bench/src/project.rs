//! Projection of the events' JSON to typed columns, alone: one thread, batches of 1,024, nothing read from a disk.

use std::error::Error;
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline_json::{Options, Projector, with_rescued};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::events::{EVENT_BYTES, Fields, Numbers, push_event};

/// Events that are projected in turn: more than a cache holds.
const EVENTS: u32 = 32_768;
/// Events in a batch: as many as Spark's tasks read at once.
const BATCH: usize = 1024;

/// Measures each set of columns for the given time and prints a JSON line for it.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let seconds = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let mut numbers = Numbers::new(0x5eed);
    let events = (0..EVENTS)
        .map(|at| {
            let mut event = Vec::with_capacity(EVENT_BYTES);
            push_event(
                &mut event,
                Fields::Default,
                &mut numbers,
                u64::from(at) * 231,
            )?;
            Ok(event)
        })
        .collect::<io::Result<Vec<_>>>()?;
    let without = Options {
        rescued: None,
        ..Options::default()
    };
    let contenders = [
        ("4 of 12 columns", four(), without.clone()),
        ("4 of 12 columns and _rescued", four(), Options::default()),
        ("12 of 12 columns", twelve(), without),
    ];
    for (name, schema, options) in contenders {
        let nanoseconds = measure(&with_rescued(&schema, &options), &options, &events, seconds)?;
        writeln!(
            io::stdout(),
            r#"{{"event":"projected","columns":"{name}","event_bytes":{EVENT_BYTES},"us_per_event":{:.3}}}"#,
            nanoseconds / 1000.0
        )?;
    }
    Ok(())
}

/// Nanoseconds for an event: the quickest time of each batch, as all others were disturbed.
fn measure(
    schema: &SchemaRef,
    options: &Options,
    events: &[Vec<u8>],
    seconds: f64,
) -> Result<f64, Box<dyn Error>> {
    let mut projector = Projector::new(schema.clone(), &[], options)?;
    let rows = RecordBatchOptions::new().with_row_count(Some(BATCH));
    let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &rows)?;
    let mut best = vec![Duration::MAX; events.len().div_ceil(BATCH)];
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < seconds {
        for (batch, best) in events.chunks(BATCH).zip(&mut best) {
            let round = Instant::now();
            for (position, event) in (0..).zip(batch) {
                projector.push(position, event)?;
            }
            black_box(projector.finish(&none)?);
            *best = round.elapsed().min(*best);
        }
    }
    Ok(best.iter().sum::<Duration>().as_secs_f64() * 1e9 / f64::from(EVENTS))
}

/// A time, a number two objects down, two texts.
fn four() -> Schema {
    Schema::new(vec![
        timestamp(),
        texts("message"),
        structure("log", vec![Field::new("offset", DataType::Int64, true)]),
        structure("host", vec![texts("name")]),
    ])
}

fn twelve() -> Schema {
    Schema::new(vec![
        timestamp(),
        structure("@metadata", vec![texts("beat")]),
        structure(
            "log",
            vec![
                Field::new("offset", DataType::Int64, true),
                structure("file", vec![texts("path"), texts("inode")]),
            ],
        ),
        texts("message"),
        structure("input", vec![texts("type")]),
        structure("ecs", vec![texts("version")]),
        structure("agent", vec![texts("id"), texts("name")]),
        structure(
            "host",
            vec![texts("name"), structure("os", vec![texts("family")])],
        ),
    ])
}

fn timestamp() -> Field {
    let zone = Some(Arc::from("UTC"));
    Field::new(
        "@timestamp",
        DataType::Timestamp(TimeUnit::Microsecond, zone),
        true,
    )
}

fn texts(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

fn structure(name: &str, fields: Vec<Field>) -> Field {
    Field::new_struct(name, fields, true)
}
