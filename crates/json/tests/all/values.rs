//! The values that fit each type.

use crate::support::{field, row, timestamp};
use arrow_schema::{DataType, TimeUnit};
use serde_json::{Value, json};

/// Each value as written in an event, and the column's value; `None` is null and rescued.
fn check(data_type: &DataType, cases: &[(&str, Option<Value>)]) {
    for (raw, expected) in cases {
        let event = format!(r#"{{"a":{raw}}}"#);
        let row = row(vec![field("a", data_type.clone())], &event);
        let rescued = if expected.is_none() {
            json!(event)
        } else {
            Value::Null
        };
        assert_eq!(
            row["a"],
            expected.clone().unwrap_or_default(),
            "{raw} as {data_type}"
        );
        assert_eq!(row["_rescued"], rescued, "{raw} as {data_type}");
    }
}

#[test]
fn null_is_null_in_every_type() {
    for data_type in [
        DataType::Int8,
        DataType::Utf8,
        DataType::Boolean,
        DataType::Date32,
    ] {
        check(&data_type, &[("null", Some(Value::Null))]);
    }
}

#[test]
fn truth_values_are_words() {
    check(
        &DataType::Boolean,
        &[
            ("true", Some(json!(true))),
            ("false", Some(json!(false))),
            ("1", None),
            (r#""true""#, None),
            ("[]", None),
        ],
    );
}

#[test]
fn whole_numbers_fit_their_width() {
    check(
        &DataType::Int8,
        &[
            ("127", Some(json!(127))),
            ("-128", Some(json!(-128))),
            ("128", None),
            ("-0", Some(json!(0))),
        ],
    );
    check(
        &DataType::Int16,
        &[("32767", Some(json!(32767))), ("32768", None)],
    );
    check(
        &DataType::Int32,
        &[("-2147483648", Some(json!(i32::MIN))), ("2147483648", None)],
    );
    check(
        &DataType::UInt8,
        &[("255", Some(json!(255))), ("-1", None), ("256", None)],
    );
    check(
        &DataType::UInt64,
        &[("18446744073709551615", Some(json!(u64::MAX)))],
    );
    check(
        &DataType::Int64,
        &[
            ("9007199254740993", Some(json!(9_007_199_254_740_993_i64))),
            ("-9223372036854775808", Some(json!(i64::MIN))),
            ("9223372036854775808", None),
            ("1.0", None),
            ("1e3", None),
            (r#""1""#, None),
            ("true", None),
        ],
    );
}

#[test]
fn floats_are_the_nearest_and_finite_or_named() {
    check(
        &DataType::Float64,
        &[
            ("1", Some(json!(1.0))),
            ("-0", Some(json!(-0.0))),
            ("0.1", Some(json!(0.1))),
            ("1e308", Some(json!(1e308))),
            ("1e309", None),
            ("-1e309", None),
            ("1e-400", Some(json!(0.0))),
            ("9007199254740993", Some(json!(9_007_199_254_740_992.0))),
            (r#""NaN""#, Some(json!("NaN"))),
            (r#""Infinity""#, Some(json!("inf"))),
            (r#""-INF""#, Some(json!("-inf"))),
            (r#""nan""#, None),
            (r#""1.5""#, None),
        ],
    );
    check(
        &DataType::Float32,
        &[("16777217", Some(json!(16_777_216.0))), ("1e39", None)],
    );
    let long = format!("0.{}", "1".repeat(5000));
    check(
        &DataType::Float64,
        &[(long.as_str(), Some(json!(1.0 / 9.0)))],
    );
}

#[test]
fn decimals_are_exact() {
    check(
        &DataType::Decimal128(10, 2),
        &[
            ("1", Some(json!("1.00"))),
            ("-0.005", Some(json!("-0.01"))),
            ("99999999.99", Some(json!("99999999.99"))),
            ("99999999.995", None),
            ("1e7", Some(json!("10000000.00"))),
            ("1e99999", None),
            (r#""12.5""#, Some(json!("12.50"))),
            (r#""12,5""#, None),
            (r#""""#, None),
        ],
    );
    let most = "9".repeat(38);
    check(
        &DataType::Decimal128(38, 0),
        &[(most.as_str(), Some(json!(most)))],
    );
}

#[test]
fn texts_are_strings_or_the_json_of_all_else() {
    check(
        &DataType::Utf8,
        &[
            (r#""""#, Some(json!(""))),
            (r#""a\n\u00e9\ud83d\ude00\u0000""#, Some(json!("a\né😀\0"))),
            ("1.50", Some(json!("1.50"))),
            ("true", Some(json!("true"))),
            (r#"{"a": [1 ,2]}"#, Some(json!(r#"{"a": [1 ,2]}"#))),
            (r#""\ud800""#, None),
            (r#""ab\udc00cd""#, None),
        ],
    );
}

#[test]
fn binary_is_base64() {
    check(
        &DataType::Binary,
        &[
            (r#""""#, Some(json!([]))),
            (r#""Zm9v""#, Some(json!([102, 111, 111]))),
            (r#""Zm8=""#, Some(json!([102, 111]))),
            (r#""\u005am8=""#, Some(json!([102, 111]))),
            (r#""Zm8""#, None),
            (r#""Zm9\u00e9""#, None),
            (r#""Zm 8=""#, None),
            (r#""Zm9vZm9vZ""#, None),
            ("1234", None),
        ],
    );
}

#[test]
fn dates_are_days() {
    check(
        &DataType::Date32,
        &[
            (r#""1970-01-02""#, Some(json!(1))),
            (r#""1970\u002d01-02""#, Some(json!(1))),
            (r#""1970-01-02T00:00:00Z""#, None),
            (r#""1970-1-2""#, None),
            ("1", None),
        ],
    );
}

#[test]
fn times_are_iso_8601_or_since_1970() {
    let at = 1_795_255_822_123_456_i64;
    check(
        timestamp("a").data_type(),
        &[
            (r#""2026-11-21T10:10:22.123456Z""#, Some(json!(at))),
            (r#""2026-11-21T10:10:22.123456999""#, Some(json!(at))),
            (r#""2026-11-21 11:10:22.123456+01:00""#, Some(json!(at))),
            (r#""2026-11-21T10:10:22""#, Some(json!(at - 123_456))),
            ("1795255822.123456", Some(json!(at))),
            ("1795255822123.456", Some(json!(at))),
            ("1795255822", Some(json!(at - 123_456))),
            ("1795255822123456", Some(json!(at))),
            ("1795255822123456789", Some(json!(at))),
            ("-1", Some(json!(-1_000_000))),
            (r#""1969-12-31T23:59:59.9999999Z""#, Some(json!(-1))),
            (r#""yesterday""#, None),
            (r#""1795255822""#, None),
            ("true", None),
            ("1e300", None),
        ],
    );
    let local = DataType::Timestamp(TimeUnit::Microsecond, None);
    check(
        &local,
        &[
            (r#""1970-01-01T00:00:01""#, Some(json!(1_000_000))),
            (r#""1970-01-01T00:00:01Z""#, None),
            ("1", Some(json!(1_000_000))),
        ],
    );
    let fine = DataType::Timestamp(TimeUnit::Nanosecond, None);
    check(
        &fine,
        &[
            (r#""1970-01-01T00:00:00.000000001""#, Some(json!(1))),
            (r#""2500-01-01T00:00:00""#, None),
        ],
    );
}
