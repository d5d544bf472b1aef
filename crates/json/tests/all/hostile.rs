//! Events that are no JSON object, in each mode; nothing here may panic, and each reason has its
//! code.

use crate::support::{
    self, list, long, projector, reason, row_of_bytes, rows, structure, text, without_rescue,
};
use ackline_json::{Mode, Options, Projector, with_rescued};
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use serde_json::{Value, json};
use std::sync::Arc;

/// Payloads that are no JSON object, and their codes.
fn malformed() -> Vec<(Vec<u8>, &'static str)> {
    let deep = |depth: usize| {
        [
            br#"{"a":"#.repeat(depth - 1),
            b"{}".to_vec(),
            b"}".repeat(depth - 1),
        ]
        .concat()
    };
    let mut cases: Vec<(Vec<u8>, &'static str)> = vec![
        (deep(129), "json.depth"),
        (b"[".repeat(1_000_000), "json.depth"),
        (br#"{"x":"#.repeat(1_000_000), "json.depth"),
        (br#"{"a":1}"#.repeat(2), "json.syntax"),
        (vec![0; 3], "json.syntax"),
        (vec![0xff], "json.utf8"),
        (b"{\"a\":\"\xed\xa0\x80\"}".to_vec(), "json.utf8"),
        (b"{\"a\":\"\xc0\xaf\"}".to_vec(), "json.utf8"),
    ];
    for (text, code) in [
        ("", "json.empty"),
        (" \r\n\t", "json.empty"),
        ("[]", "json.not_object"),
        (r#" [{"a":1}] "#, "json.not_object"),
        ("1", "json.not_object"),
        ("null", "json.not_object"),
        (r#""{}""#, "json.not_object"),
        ("{", "json.syntax"),
        ("}", "json.syntax"),
        ("[1", "json.syntax"),
        ("[1]]", "json.syntax"),
        (r#"{"a":1} x"#, "json.syntax"),
        ("{\"a\":1}\0", "json.syntax"),
        ("{\"a\":\"\n\"}", "json.syntax"),
        (r#"{"a":NaN}"#, "json.syntax"),
        (r#"{"a":Infinity}"#, "json.syntax"),
        (r#"{"a":01}"#, "json.syntax"),
        (r#"{"a":+1}"#, "json.syntax"),
        (r#"{"a":.5}"#, "json.syntax"),
        (r#"{"a":1.}"#, "json.syntax"),
        (r#"{"a":1,}"#, "json.syntax"),
        (r"{a:1}", "json.syntax"),
        (r"{1:1}", "json.syntax"),
        (r"{'a':1}", "json.syntax"),
        (r#"{"a" 1}"#, "json.syntax"),
        (r#"{"a":"\x"}"#, "json.syntax"),
        (r#"{"a":"\u12"}"#, "json.syntax"),
        (r#"{"other":{"b":[tru]}}"#, "json.syntax"),
        ("{} // no", "json.syntax"),
        ("\u{feff}{}", "json.syntax"),
        ("NaN", "json.syntax"),
    ] {
        cases.push((text.as_bytes().to_vec(), code));
    }
    cases
}

fn columns() -> Vec<arrow_schema::Field> {
    vec![text("a"), structure("s", vec![list("l", DataType::Int64)])]
}

#[test]
fn permissive_keeps_the_row_and_the_text() {
    for (payload, code) in malformed() {
        let row = row_of_bytes(columns(), &payload);
        assert_eq!(
            (&row["a"], &row["s"]),
            (&Value::Null, &Value::Null),
            "{code}"
        );
        let rescued: Value = serde_json::from_str(row["_rescued"].as_str().unwrap()).unwrap();
        let text = String::from_utf8_lossy(&payload);
        assert_eq!(rescued, json!({"_corrupt_record": text}), "{code}");
    }
}

#[test]
fn permissive_gives_the_text_to_the_column_that_is_named_for_it() {
    for rescued in [Some("_rescued".to_owned()), None] {
        let options = Options {
            rescued,
            corrupt: "broken".to_owned(),
            ..Options::default()
        };
        let mut projector = projector(vec![long("a"), text("broken")], &options);
        projector.push(0, b"{oops").unwrap();
        projector.push(1, br#"{"a":1,"broken":"mine"}"#).unwrap();
        projector.push(2, br#"{"a":"x"}"#).unwrap();
        let rows = rows(&mut projector, 3);
        assert_eq!(
            (&rows[0]["a"], &rows[0]["broken"]),
            (&Value::Null, &json!("{oops"))
        );
        assert_eq!(
            (&rows[1]["a"], &rows[1]["broken"]),
            (&json!(1), &Value::Null)
        );
        let (broken, rescued) = match options.rescued {
            Some(_) => (Value::Null, json!(r#"{"a":"x"}"#)),
            None => (json!(r#"{"a":"x"}"#), Value::Null),
        };
        assert_eq!(rows[2]["broken"], broken);
        assert_eq!(
            rows[2].get("_rescued").cloned().unwrap_or_default(),
            rescued
        );
    }
}

#[test]
fn failfast_names_position_and_reason() {
    for (payload, code) in malformed() {
        let mut projector = projector(columns(), &without_rescue(Mode::FailFast));
        let (found, message) = reason(projector.push(4711, &payload));
        assert_eq!(found, code, "{message}");
        assert!(message.starts_with("position 4711: "), "{message}");
        assert!(message.ends_with("; the mode is FAILFAST"), "{message}");
        assert!(message.len() < 300, "{message}");
    }
}

#[test]
fn dropmalformed_has_no_row_and_keeps_the_positions_of_the_others() {
    let schema = Schema::new(vec![long("position"), long("a")]);
    let options = Options {
        mode: Mode::DropMalformed,
        ..Options::default()
    };
    let schema = with_rescued(&schema, &options);
    let mut projector = Projector::new(schema, &["position"], &options).unwrap();
    let events: [&[u8]; 4] = [br#"{"a":1,"position":9}"#, b"nope", b"[]", br#"{"a":"x"}"#];
    for (position, event) in (10..).zip(events) {
        projector.push(position, event).unwrap();
    }
    let positions = Arc::new(Int64Array::from_iter_values(10..14));
    let beside = RecordBatch::try_from_iter([("position", positions as _)]).unwrap();
    let batch = projector.finish(&beside).unwrap();
    let shown: Vec<Value> = (0..batch.num_rows())
        .map(|row| {
            batch
                .columns()
                .iter()
                .map(|column| support::value(column, row))
                .collect()
        })
        .collect();
    assert_eq!(
        shown,
        [
            json!([10, 1, r#"{"position":9}"#]),
            json!([13, null, r#"{"a":"x"}"#])
        ]
    );
    projector.push(14, br#"{"a":5}"#).unwrap();
    let beside =
        RecordBatch::try_from_iter([("position", Arc::new(Int64Array::from(vec![14])) as _)]);
    assert_eq!(projector.finish(&beside.unwrap()).unwrap().num_rows(), 1);
}

#[test]
fn a_misfit_is_malformed_only_if_no_column_rescues_it() {
    for (mode, left) in [(Mode::DropMalformed, 0), (Mode::Permissive, 1)] {
        let mut projector = projector(vec![long("a")], &without_rescue(mode));
        projector.push(0, br#"{"a":"x","unknown":1}"#).unwrap();
        assert_eq!(rows(&mut projector, 1).len(), left, "{mode:?}");
    }
    let mut strict = projector(vec![long("a")], &without_rescue(Mode::FailFast));
    strict.push(0, br#"{"unknown":1}"#).unwrap();
    let (code, message) = reason(strict.push(1, br#"{"a":"x"}"#));
    assert_eq!(code, "json.misfit");
    assert!(
        message.starts_with(r#"position 1: the member "a" does not fit"#),
        "{message}"
    );
    let structs = DataType::Struct(vec![long("a")].into());
    let mut unknown = projector(vec![list("l", structs)], &without_rescue(Mode::FailFast));
    unknown.push(0, br#"{"l":[{"a":1,"unknown":2}]}"#).unwrap();
    let rescuing = Options {
        mode: Mode::FailFast,
        ..Options::default()
    };
    projector(vec![long("a")], &rescuing)
        .push(0, br#"{"a":"x"}"#)
        .unwrap();
}

#[test]
fn an_event_may_nest_to_the_limit() {
    let event = [br#"{"a":"#.repeat(127), b"{}".to_vec(), b"}".repeat(127)].concat();
    let row = row_of_bytes(vec![text("a")], &event);
    assert_eq!(row["a"].as_str().unwrap().len(), event.len() - 6);
    assert_eq!(row["_rescued"], Value::Null);
}

#[test]
fn every_truncation_is_malformed() {
    let event = r#" {"a":"x\u00e9é\n","s":{"l":[1,-2.5e3,null]},"o":{"p":[true,{}]}}"#.as_bytes();
    for end in 0..event.len() {
        let row = row_of_bytes(columns(), event.get(..end).unwrap());
        assert_eq!(
            (&row["a"], &row["s"]),
            (&Value::Null, &Value::Null),
            "{end}"
        );
        assert!(
            row["_rescued"]
                .as_str()
                .unwrap()
                .starts_with(r#"{"_corrupt_record":"#),
            "{end}"
        );
    }
    assert_eq!(row_of_bytes(columns(), event)["a"], json!("xéé\n"));
}

#[test]
fn pairs_are_members_and_their_texts_may_be_numbers() {
    let fields = vec![
        long("offset"),
        text("line"),
        structure("host", vec![text("name")]),
        support::timestamp("at"),
        text("status"),
    ];
    let mut projector = projector(fields, &Options::default());
    let parts: [&[u8]; 14] = [
        b"offset",
        b"12",
        b"line",
        b"a\"b\n",
        b"host.name",
        b"web",
        b"at",
        b"2026-11-21T10:10:22Z",
        b"status",
        b"200",
        b"x",
        b"\x01",
        b"odd",
        b"",
    ];
    projector.push_pairs(0, parts.into_iter()).unwrap();
    let odd: [&[u8]; 3] = [b"offset", b"twelve", b"line"];
    projector.push_pairs(1, odd.into_iter()).unwrap();
    projector
        .push_pairs(2, [b"offset".as_slice(), b"\xff"].into_iter())
        .unwrap();
    projector.push_pairs(3, [].into_iter()).unwrap();
    projector.push(4, br#"{"offset":"12"}"#).unwrap();
    let rows = rows(&mut projector, 5);
    assert_eq!(
        rows[0],
        json!({"offset": 12, "line": "a\"b\n", "host": {"name": "web"},
        "at": 1_795_255_822_000_000_i64, "status": "200", "_rescued": r#"{"x":"\u0001","odd":""}"#})
    );
    assert_eq!(rows[1]["_rescued"], json!(r#"{"offset":"twelve"}"#));
    assert_eq!(rows[1]["line"], json!(""));
    assert_eq!(
        rows[2]["_rescued"],
        json!("{\"_corrupt_record\":\"{\\\"offset\\\":\\\"\u{fffd}\\\"}\"}")
    );
    assert_eq!(rows[3]["_rescued"], Value::Null);
    assert_eq!(
        rows[4]["offset"],
        Value::Null,
        "a string of JSON is no number"
    );
}
