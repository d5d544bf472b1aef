//! The columns that members fill, and the members that are left over.

use crate::support::{self, field, list, long, map, projector, row, rows, structure, text};
use ackline_json::{Mode, Options, Projector, SchemaError};
use arrow_schema::{DataType, Field, Schema};
use serde_json::{Value, json};
use std::sync::Arc;

fn log() -> Vec<Field> {
    vec![structure(
        "log",
        vec![text("level"), structure("file", vec![text("path")])],
    )]
}

/// The rescued members of an event's row, as JSON.
fn rescued(row: &Value) -> Value {
    row["_rescued"].as_str().map_or(Value::Null, |text| {
        serde_json::from_str(text).expect("JSON")
    })
}

#[test]
fn nested_and_dotted_members_fill_the_same_column() {
    for event in [
        r#"{"log":{"level":"info","file":{"path":"/x"}}}"#,
        r#"{"log.level":"info","log.file.path":"/x"}"#,
        r#"{"log.level":"info","log.file":{"path":"/x"}}"#,
        r#"{"log":{"level":"info","file.path":"/x"}}"#,
        r#"{ "log" :{"level" : "info"} , "log.file" : {"path":"/x"} }"#,
        r#"{"\u006cog":{"l\u0065vel":"info"},"log\u002efile.path":"/x"}"#,
    ] {
        let row = row(log(), event);
        assert_eq!(
            row["log"],
            json!({"level": "info", "file": {"path": "/x"}}),
            "{event}"
        );
        assert_eq!(row["_rescued"], Value::Null, "{event}");
    }
}

#[test]
fn nested_wins_over_dotted_whatever_comes_first() {
    for (event, left) in [
        (
            r#"{"log.level":"d","log":{"level":"n"}}"#,
            json!({"log.level": "d"}),
        ),
        (
            r#"{"log":{"level":"n"},"log.level":"d"}"#,
            json!({"log.level": "d"}),
        ),
        (
            r#"{"log":{"level":"n"},"log.level":{"x":[1, 2]}}"#,
            json!({"log.level": {"x": [1, 2]}}),
        ),
    ] {
        let row = row(log(), event);
        assert_eq!(row["log"]["level"], json!("n"), "{event}");
        assert_eq!(rescued(&row), left, "{event}");
    }
    let deep = row(
        log(),
        r#"{"log.file.path":"0","log":{"file":{"path":"2"},"file.path":"1"}}"#,
    );
    assert_eq!(deep["log"]["file"]["path"], json!("2"));
    assert_eq!(
        rescued(&deep),
        json!({"log.file.path": "0", "log": {"file.path": "1"}})
    );
}

#[test]
fn columns_with_dots_in_their_names_are_filled_too() {
    let fields = || vec![text("log.level"), long("n")];
    for event in [
        r#"{"log":{"level":"info"},"n":1}"#,
        r#"{"log.level":"info","n":1}"#,
    ] {
        assert_eq!(
            row(fields(), event),
            json!({"log.level":"info", "n":1, "_rescued":null})
        );
    }
}

#[test]
fn the_last_of_equal_names_wins() {
    let twice = row(vec![long("a")], r#"{"a":1,"b":1,"a":2,"b":2}"#);
    assert_eq!(twice, json!({"a": 2, "_rescued": r#"{"b":1,"b":2}"#}));
    let null = row(vec![long("a")], r#"{"a":1,"a":null}"#);
    assert_eq!(null, json!({"a": null, "_rescued": null}));
    let misfit = row(vec![long("a")], r#"{"a":1,"a":"x"}"#);
    assert_eq!(misfit, json!({"a": null, "_rescued": r#"{"a":"x"}"#}));
    let fits = row(vec![long("a")], r#"{"a":"x","a":1}"#);
    assert_eq!(fits, json!({"a": 1, "_rescued": null}));
    let merged = row(
        log(),
        r#"{"log":{"level":"a"},"log":{"file":{"path":"p"}}}"#,
    );
    assert_eq!(merged["log"], json!({"level": "a", "file": {"path": "p"}}));
}

#[test]
fn of_an_object_and_another_value_of_one_name_the_last_wins() {
    let file = json!({"level": null, "file": {"path": "p"}});
    for (event, log_is, left) in [
        (
            r#"{"log":{"level":"a"},"log":"x"}"#,
            Value::Null,
            r#"{"log":"x"}"#,
        ),
        (
            r#"{"log":{"z":1},"log":"x"}"#,
            Value::Null,
            r#"{"log":"x"}"#,
        ),
        (r#"{"log":{"level":"a","z":1},"log":null}"#, Value::Null, ""),
        (
            r#"{"log":{"level":"a"},"log":[{}]}"#,
            Value::Null,
            r#"{"log":[{}]}"#,
        ),
        (
            r#"{"log":"x","log":{"file":{"path":"p"}}}"#,
            file.clone(),
            "",
        ),
        (
            r#"{"log":{"level":"a"},"log":2,"log":{"file":{"path":"p"}}}"#,
            file.clone(),
            "",
        ),
        (
            r#"{"log":{"level":"a"},"l\u006fg":2,"log":{"file.path":"p"}}"#,
            file.clone(),
            "",
        ),
        (
            r#"{"log":{"file":{"path":"a"}},"log":{"file":0,"file":{"path":"p"}}}"#,
            file.clone(),
            "",
        ),
        (
            r#"{"log":{"file":{"path":"a"}},"log":{"file":0}}"#,
            json!({"level": null, "file": null}),
            r#"{"log":{"file":0}}"#,
        ),
        (
            r#"{"log.file":{"path":"p"},"log":{"file":{"path":"a"},"file":null}}"#,
            file,
            "",
        ),
    ] {
        let row = row(log(), event);
        assert_eq!(row["log"], log_is, "{event}");
        assert_eq!(
            row["_rescued"].as_str().unwrap_or_default(),
            left,
            "{event}"
        );
    }
    let fields = || vec![text("log"), text("log.level")];
    let object = row(fields(), r#"{"log":"line","log":{"level":"x"}}"#);
    assert_eq!(
        object,
        json!({"log": null, "log.level": "x", "_rescued": null})
    );
    let line = row(fields(), r#"{"log":{"level":"x"},"log":"line"}"#);
    assert_eq!(
        line,
        json!({"log": "line", "log.level": null, "_rescued": null})
    );
    let within = row(
        vec![list("l", log()[0].data_type().clone())],
        r#"{"l":[{"file":{"path":1},"file":null}]}"#,
    );
    assert_eq!(within["l"], json!([{"level": null, "file": null}]));
}

#[test]
fn a_replaced_member_is_no_misfit() {
    let mut projector = projector(log(), &support::without_rescue(Mode::FailFast));
    let event = br#"{"log":7,"log":{"level":"a"},"z":0}"#;
    projector.push(0, event).expect("it fits");
    let misfit = projector.push(1, br#"{"log":{"level":"a"},"log":7}"#);
    let error = misfit.expect_err("it does not fit");
    assert_eq!(error.code(), "json.misfit");
    assert_eq!(
        error.to_string(),
        "position 1: the member \"log\" does not fit its column, and the schema has no column for rescued \
         members; the mode is FAILFAST"
    );
}

#[test]
fn a_long_name_of_a_misfit_is_cut_in_the_error() {
    for (name, shown) in [
        ("x".repeat(200), format!("\"{}…", "x".repeat(99))),
        ("ä".repeat(60), format!("\"{}\"", "ä".repeat(60))),
        ("ä".repeat(100), format!("\"{}…", "ä".repeat(99))),
    ] {
        let options = support::without_rescue(Mode::FailFast);
        let mut projector = projector(vec![long(&name)], &options);
        let event = format!(r#"{{"{name}":"no"}}"#);
        let error = projector.push(0, event.as_bytes()).expect_err("a text");
        let text = error.to_string();
        assert!(text.contains(&format!("the member {shown} does")), "{text}");
    }
}

#[test]
fn names_are_compared_as_the_option_says() {
    let event = r#"{"MESSAGE":"a","ÄRGER":{"X":1}}"#;
    let fields = || vec![text("message"), structure("ärger", vec![long("x")])];
    let any = row(fields(), event);
    assert_eq!(
        any,
        json!({"message": "a", "ärger": {"x": 1}, "_rescued": null})
    );
    let options = Options {
        case_sensitive: true,
        ..Options::default()
    };
    let mut exact = projector(fields(), &options);
    exact.push(0, event.as_bytes()).unwrap();
    let exact = rows(&mut exact, 1).remove(0);
    assert_eq!(
        exact,
        json!({"message": null, "ärger": null, "_rescued": event})
    );
}

#[test]
fn of_names_that_differ_in_case_the_other_is_rescued() {
    let row = row(vec![text("message")], r#"{"message":"a","Message":"b"}"#);
    assert_eq!(
        row,
        json!({"message": "b", "_rescued": r#"{"message":"a"}"#})
    );
}

#[test]
fn many_columns_are_found_as_few_are() {
    for case_sensitive in [false, true] {
        let names: Vec<String> = (0..40).map(|at| format!("c{at}")).collect();
        let fields = names.iter().map(|name| long(name)).collect();
        let options = Options {
            case_sensitive,
            ..Options::default()
        };
        let mut projector = projector(fields, &options);
        let members: Vec<String> = (0..50)
            .rev()
            .map(|at| format!(r#""{}{at}":{at}"#, if at == 7 { 'C' } else { 'c' }))
            .collect();
        projector
            .push(0, format!("{{{}}}", members.join(",")).as_bytes())
            .unwrap();
        let row = rows(&mut projector, 1).remove(0);
        assert_eq!(row["c39"], json!(39));
        assert_eq!(row["c0"], json!(0));
        assert_eq!(
            row["c7"],
            if case_sensitive {
                Value::Null
            } else {
                json!(7)
            }
        );
        assert_eq!(
            rescued(&row).as_object().unwrap().len(),
            10 + usize::from(case_sensitive)
        );
    }
}

#[test]
fn an_unknown_member_is_rescued_at_its_place() {
    let event =
        r#"{"x": [1, {"y":2}], "log":{"level":"i","id":7,"file":{"inode":"9"}},"log.zzz":1}"#;
    let row = row(log(), event);
    assert_eq!(row["log"], json!({"level": "i", "file": {"path": null}}));
    assert_eq!(
        row["_rescued"],
        json!(r#"{"x":[1, {"y":2}],"log.zzz":1,"log":{"id":7,"file":{"inode":"9"}}}"#)
    );
}

#[test]
fn a_number_that_no_double_can_hold_is_rescued_as_it_came() {
    for event in [
        r#"{"a":1e999}"#,
        r#"{"a":7,"x":1e999}"#,
        r#"{"a":7,"x":[1e999]}"#,
    ] {
        let row = row(vec![long("a")], event);
        let text = row["_rescued"].as_str().unwrap();
        assert!(text.contains("1e999"), "{event} became {text}");
    }
}

#[test]
fn a_misfit_is_null_and_rescued() {
    let fields = vec![long("n"), structure("s", vec![long("m")]), text("t")];
    let row = row(fields, r#"{"n":"12","s":[1],"t":{"a":1}}"#);
    assert_eq!(row["n"], Value::Null);
    assert_eq!(row["s"], Value::Null);
    assert_eq!(row["t"], json!(r#"{"a":1}"#));
    assert_eq!(row["_rescued"], json!(r#"{"s":[1],"n":"12"}"#));
}

#[test]
fn structs_are_null_where_nothing_of_them_is_there() {
    for (event, expected) in [
        ("{}", Value::Null),
        (r#"{"log":null}"#, Value::Null),
        (r#"{"log":{}}"#, json!({"level": null, "file": null})),
        (
            r#"{"log":{"file":{}}}"#,
            json!({"level": null, "file": {"path": null}}),
        ),
        (
            r#"{"log.level":null}"#,
            json!({"level": null, "file": null}),
        ),
        (
            r#"{"log.file.path":null}"#,
            json!({"level": null, "file": {"path": null}}),
        ),
        (
            r#"{"log":null,"log.level":"x"}"#,
            json!({"level": "x", "file": null}),
        ),
    ] {
        let row = row(log(), event);
        assert_eq!(row["log"], expected, "{event}");
        assert_eq!(row["_rescued"], Value::Null, "{event}");
    }
}

#[test]
fn a_list_or_map_with_misfits_keeps_the_rest_and_is_rescued_whole() {
    let structs = DataType::Struct(vec![long("a")].into());
    let fields = || {
        vec![
            list("l", DataType::Int64),
            list("s", structs.clone()),
            map("m", DataType::Int64),
        ]
    };
    for (event, column, expected, is_rescued) in [
        (r#"{"l":[1,null,3]}"#, "l", json!([1, null, 3]), false),
        (r#"{"l":[]}"#, "l", json!([]), false),
        (r#"{"l":[1,"x",3]}"#, "l", json!([1, null, 3]), true),
        (r#"{"l":1}"#, "l", Value::Null, true),
        (
            r#"{"s":[{"a":1},null,{}]}"#,
            "s",
            json!([{"a":1}, null, {"a": null}]),
            false,
        ),
        (r#"{"s":[{"a":1,"b":2}]}"#, "s", json!([{"a":1}]), true),
        (r#"{"s":[{"a":1},5]}"#, "s", json!([{"a":1}, null]), true),
        (
            r#"{"m":{"x":1,"y":null}}"#,
            "m",
            json!([["x", 1], ["y", null]]),
            false,
        ),
        (
            r#"{"m":{"x":1,"y":2,"x":3}}"#,
            "m",
            json!([["y", 2], ["x", 3]]),
            false,
        ),
        (r#"{"m":{"x":"1"}}"#, "m", json!([["x", null]]), true),
        (
            r#"{"m":{"\ud800":1,"k\n":2}}"#,
            "m",
            json!([["k\n", 2]]),
            true,
        ),
        (r#"{"m":[]}"#, "m", Value::Null, true),
    ] {
        let row = row(fields(), event);
        assert_eq!(row[column], expected, "{event}");
        let rescued = if is_rescued {
            json!(event)
        } else {
            Value::Null
        };
        assert_eq!(row["_rescued"], rescued, "{event}");
    }
}

#[test]
fn lists_and_maps_nest() {
    let inner = list("x", DataType::Int64).data_type().clone();
    let fields = vec![list("l", inner.clone()), map("m", inner)];
    let row = row(fields, r#"{"l":[[1],[],null,[2,3]],"m":{"a":[4]}}"#);
    assert_eq!(row["l"], json!([[1], [], null, [2, 3]]));
    assert_eq!(row["m"], json!([["a", [4]]]));
}

#[test]
fn batches_begin_anew() {
    let mut projector = projector(
        vec![
            list("l", DataType::Int64),
            text("t"),
            map("m", DataType::Utf8),
        ],
        &Options::default(),
    );
    for n in 0..3 {
        projector
            .push(
                0,
                format!(r#"{{"l":[{n}],"t":"{n}","m":{{"k":"{n}"}}}}"#).as_bytes(),
            )
            .unwrap();
        projector.push(1, b"{}").unwrap();
        let rows = rows(&mut projector, 2);
        let text = n.to_string();
        assert_eq!(
            rows[0],
            json!({"l": [n], "t": text, "m": [["k", text]], "_rescued": null})
        );
        assert_eq!(
            rows[1],
            json!({"l": null, "t": null, "m": null, "_rescued": null})
        );
    }
}

#[test]
fn schemas_that_json_cannot_fill_are_refused_by_name() {
    let refused = |fields: Vec<Field>| {
        let schema = Arc::new(Schema::new(fields));
        Projector::new(schema, &[], &Options::default())
            .err()
            .unwrap()
    };
    assert_eq!(
        refused(vec![structure("a", vec![field("b", DataType::Float16)])]),
        SchemaError::Type {
            column: "a.b".into(),
            data_type: "Float16".into()
        }
    );
    assert_eq!(
        refused(vec![Field::new("a", DataType::Int64, false)]),
        SchemaError::NotNull { column: "a".into() }
    );
    let element = Field::new("element", DataType::Int64, false);
    assert_eq!(
        refused(vec![Field::new_list("a", element, true)]),
        SchemaError::NotNull {
            column: "a.element".into()
        }
    );
    assert_eq!(
        refused(vec![
            text("log.level"),
            structure("log", vec![text("level")])
        ]),
        SchemaError::Twice {
            member: "log.level".into()
        }
    );
    assert_eq!(
        refused(vec![text("a"), text("a")]),
        SchemaError::SameName { column: "a".into() }
    );
    assert_eq!(
        refused(vec![text("a"), text("A")]),
        SchemaError::Twice { member: "A".into() }
    );
    assert_eq!(
        refused(vec![structure("a", vec![])]),
        SchemaError::Empty { column: "a".into() }
    );
    let number_keys = Field::new("key", DataType::Int64, false);
    let map = Field::new_map("m", "entries", number_keys, text("value"), false, true);
    let refused_key = refused(vec![map]);
    assert_eq!(
        refused_key.to_string(),
        "column m.key has the type Int64: keys of a map are names of members, STRING (Utf8)"
    );
    let deep = (0..40).fold(text("x"), |inner, _| structure("x", vec![inner]));
    assert!(matches!(refused(vec![deep]), SchemaError::Deep { .. }));
}

#[test]
fn a_struct_and_a_column_of_its_members_share_their_values() {
    let fields = vec![text("log"), text("log.level")];
    let nested = row(fields.clone(), r#"{"log":{"level":"x"}}"#);
    assert_eq!(
        nested,
        json!({"log": null, "log.level": "x", "_rescued": null})
    );
    let flat = row(fields, r#"{"log":"line","log.level":"x"}"#);
    assert_eq!(
        flat,
        json!({"log": "line", "log.level": "x", "_rescued": null})
    );
}

#[test]
fn left_over_members_do_not_carry_over_to_the_next_event() {
    let mut projector = projector(
        vec![text("t"), list("l", DataType::Utf8)],
        &Options::default(),
    );
    for event in [
        r#"{"t":"kept\ud800","x":1,"l":["a","b\udc00"]}"#,
        r#"{"t":"next","l":["c"]}"#,
        r#"{"t":"last","y":2}"#,
    ] {
        projector.push(0, event.as_bytes()).unwrap();
    }
    let rows = rows(&mut projector, 3);
    assert_eq!(
        rows[0],
        json!({"t": null, "l": ["a", null], "_rescued": r#"{"x":1,"t":"kept\ud800","l":["a","b\udc00"]}"#})
    );
    assert_eq!(rows[1], json!({"t": "next", "l": ["c"], "_rescued": null}));
    assert_eq!(
        rows[2],
        json!({"t": "last", "l": null, "_rescued": r#"{"y":2}"#})
    );
}

#[test]
fn no_column_stands_twice() {
    for name in ["_rescued", "_corrupt_record", "position", "a"] {
        let schema = Arc::new(Schema::new(vec![text(name), text("b"), text(name)]));
        let refused = Projector::new(schema, &["position"], &Options::default());
        assert_eq!(
            refused.err(),
            Some(SchemaError::SameName {
                column: name.into()
            })
        );
    }
}

#[test]
fn rescued_members_keep_the_names_of_their_objects() {
    let fields = || {
        vec![structure(
            "log",
            vec![structure("a", vec![long("b")]), text("c")],
        )]
    };
    for (event, left) in [
        (r#"{"log.a":{"x":5}}"#, r#"{"log.a":{"x":5}}"#),
        (
            r#"{"LOG":{"z":1},"log":{"z":2}}"#,
            r#"{"LOG":{"z":1},"log":{"z":2}}"#,
        ),
        (
            r#"{"log.a":{"x":1},"log":{"a":{"x":2},"a":{"y":3}}}"#,
            r#"{"log.a":{"x":1},"log":{"a":{"x":2,"y":3}}}"#,
        ),
        (
            r#"{"log":{"z":1},"y":0,"log":{"a":{"b":4},"w":2}}"#,
            r#"{"y":0,"log":{"z":1,"w":2}}"#,
        ),
        (r#"{"log":{"a":{"b":"no"}}}"#, r#"{"log":{"a":{"b":"no"}}}"#),
        (r#"{"log.a.b":"no"}"#, r#"{"log.a.b":"no"}"#),
        (r#"{"l\u006fg":{"z":1}}"#, r#"{"l\u006fg":{"z":1}}"#),
        (r#"{"z":1,"z":2}"#, r#"{"z":1,"z":2}"#),
    ] {
        assert_eq!(row(fields(), event)["_rescued"], json!(left), "{event}");
    }
}

#[test]
fn of_equal_names_behind_names_of_other_spelling_none_is_lost() {
    let fields = || vec![structure("log", vec![text("c")])];
    let both = row(fields(), r#"{"LOG":{"c":"1"},"log":{"c":"2"}}"#);
    assert_eq!(both["log"], json!({"c": "2"}));
    assert_eq!(both["_rescued"], json!(r#"{"LOG":{"c":"1"}}"#));
    let again = row(fields(), r#"{"log":{"c":"1"},"log":{"c":"2"}}"#);
    assert_eq!(again, json!({"log": {"c": "2"}, "_rescued": null}));
}
