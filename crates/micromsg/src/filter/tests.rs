//! The rules of filters, and a comparison with a model of them on owned values.

use proptest::prelude::*;

use super::*;
use crate::fuzzing::filters;
use crate::text::{read_properties, write_properties};

const FIELD: &str = "the filter";

const OPERATORS: [Operator; 8] = [
    Operator::Equal,
    Operator::NotEqual,
    Operator::Less,
    Operator::LessOrEqual,
    Operator::Greater,
    Operator::GreaterOrEqual,
    Operator::Contains,
    Operator::DoesNotContain,
];

fn matches(filter: &str, properties: &str) -> bool {
    let filter = Filter::read(filter.as_bytes()).unwrap();
    filter.matches(&Properties::new(properties.as_bytes()))
}

fn text(text: &str) -> Property {
    Property::Text(text.to_owned())
}

fn whole(number: i64) -> Property {
    Property::Number(Number::Whole(number))
}

#[test]
fn all_conditions_must_hold_each_by_the_rule_of_its_operator_and_type() {
    let properties = "first-name:Tjonas;age:N20;born:D500.5;city:Tfalun;untyped:falun;big:N9223372036854775808;d:D12;";
    for (filter, expected) in [
        ("first-name=Tjonas", true),
        ("first-name=TJonas", false),
        ("first-name!=TJonas", true),
        ("first-name=Tjonas;age>N18", true),
        ("first-name=Tjonas;age>N20", false),
        ("age>N20;first-name=Tjonas", false),
        ("first-name=Tjonas;age>N18;", true),
        ("city<Tfal", true),
        ("city<Tal", false),
        ("city>Tlun", true),
        ("city>Tlu", false),
        ("city&Talu", true),
        ("city&Tau", false),
        ("city&T", true),
        ("city~Talu", false),
        ("city~TAlu", true),
        ("city~T", false),
        ("age=N20", true),
        ("age=N20.0", true),
        ("age!=N20", false),
        ("age<N20", false),
        ("age<N21", true),
        ("age<=N20", true),
        ("age<=N19", false),
        ("age>=N20", true),
        ("age>=N20.5", false),
        ("age>N19.5", true),
        ("born>D500.25", true),
        ("born=D500.5", true),
        ("born!=D500.5", false),
        ("born<D501", true),
        ("born>=D501", false),
        ("untyped=Tfalun", true),
        ("big=TN9223372036854775808", true),
        ("d=D12.0", true),
    ] {
        assert_eq!(matches(filter, properties), expected, "{filter}");
    }
}

#[test]
fn a_missing_property_or_another_type_matches_only_the_negative_operators() {
    let properties = "number:N1;date:D1;text:T1;";
    for (name, letters) in [
        ("missing", "NDT"),
        ("number", "DT"),
        ("date", "NT"),
        ("text", "ND"),
    ] {
        for (operator, letter) in OPERATORS
            .iter()
            .flat_map(|one| letters.chars().map(move |letter| (one, letter)))
        {
            let filter = format!("{name}{}{letter}1", operator.symbol());
            let Ok(read) = Filter::read(filter.as_bytes()) else {
                continue;
            };
            let negative = matches!(operator, Operator::NotEqual | Operator::DoesNotContain);
            assert_eq!(
                read.matches(&Properties::new(properties.as_bytes())),
                negative,
                "{filter}"
            );
        }
    }
}

#[test]
fn of_two_properties_with_one_name_the_first_counts() {
    assert!(matches("a=N1", "a:N1;a:N2"));
    assert!(!matches("a=N2", "a:N1;a:N2"));
}

#[test]
fn properties_that_cannot_be_read_match_only_the_negative_operators() {
    for properties in ["a:N2;b:T%4", "a:N2;b", "a:N2;;b:N1", "a:N2;b c:N1"] {
        assert!(!matches("a=N2", properties), "{properties}");
        assert!(matches("a!=N2", properties), "{properties}");
    }
}

#[test]
fn operators_and_values_are_read_with_their_types() {
    let filter = Filter::read(b"a=N1;b!=N1.5;c<D2;d<=N0;e>Tx;f>=N0;g&T%3B%2C;my_name~T=<").unwrap();
    let conditions = filter.conditions().iter();
    let conditions: Vec<_> = conditions
        .map(|one| (one.name(), one.operator().symbol(), one.value().clone()))
        .collect();
    let expected = [
        ("a", "=", whole(1)),
        ("b", "!=", Property::Number(Number::Fraction(1.5))),
        ("c", "<", Property::Date(2.0)),
        ("d", "<=", whole(0)),
        ("e", ">", text("x")),
        ("f", ">=", whole(0)),
        ("g", "&", text(";,")),
        ("my_name", "~", text("=<")),
    ];
    assert_eq!(conditions, expected);
    assert_eq!(
        filter.write(),
        "a=N1;b!=N1.5;c<D2.0;d<=N0;e>Tx;f>=N0;g&T%3B%2C;my_name~T%3D%3C"
    );
}

#[test]
fn filters_without_structure_or_types_are_invalid() {
    for filter in [
        "",
        ";",
        ";;",
        "a=N1;;b=N1",
        "a=N1;;",
        ";a=N1",
        "city",
        "city<=Tf",
        "city>=Tf",
        "a~N1",
        "a&N1",
        "a~D1",
        "a&D1",
        "city=falun",
        "a=",
        "a=N",
        "a=Nx",
        "a=N1e3",
        "a=N9223372036854775808",
        "a=D",
        "a=D1.",
        "a=%4",
        "a=N%31",
        "a!N1",
        "a!",
        "=N1",
        "!=N1",
        "a==N1",
        "a=>N1",
        "a<>N1",
        "a b=N1",
        "a:b=N1",
        "a,b=N1",
        "a =N1",
        "a=n1",
        "a%N1",
    ] {
        let read = Filter::read(filter.as_bytes());
        assert!(
            matches!(&read, Err(Kind::InvalidFilter { text, .. }) if text == filter),
            "{filter} {read:?}"
        );
    }
}

#[test]
fn other_bytes_than_ascii_and_bad_escapes_have_errors_of_their_own() {
    for filter in ["a=Té", "é=N1", "é"] {
        assert_eq!(
            Filter::read(filter.as_bytes()),
            Err(Kind::NotAscii { field: FIELD }),
            "{filter}"
        );
    }
    for filter in ["a=T%4", "a=N1;b=T%", "a~T%FF", "a=T%C3"] {
        let error = Kind::InvalidPercentEncoding { field: FIELD };
        assert_eq!(Filter::read(filter.as_bytes()), Err(error), "{filter}");
    }
}

#[test]
fn a_condition_that_cannot_be_written_is_refused() {
    let new =
        |name: &str, operator, value| Condition::new(name.to_owned(), operator, value).map(|_| ());
    for operator in OPERATORS {
        let text_alone = matches!(operator, Operator::Contains | Operator::DoesNotContain);
        let no_text = matches!(operator, Operator::LessOrEqual | Operator::GreaterOrEqual);
        let expected = |refused: bool| {
            if refused {
                Err(refusal::INVALID_FILTER)
            } else {
                Ok(())
            }
        };
        assert_eq!(new("a", operator, whole(1)), expected(text_alone));
        assert_eq!(
            new("a", operator, Property::Date(1.0)),
            expected(text_alone)
        );
        assert_eq!(new("a", operator, text("b")), expected(no_text));
    }
    for name in ["A", "first_name", "a.b"] {
        assert_eq!(new(name, Operator::Equal, whole(1)), Ok(()), "{name}");
    }
    for name in [
        "", "a b", "é", "a:b", "a;", "a,", "a=b", "a<", "a>", "!a", "a~", "a&b",
    ] {
        assert_eq!(
            new(name, Operator::Equal, whole(1)),
            Err(refusal::INVALID_PROPERTY_NAME),
            "{name}"
        );
    }
    for number in [f64::NAN, f64::INFINITY] {
        let fraction = Property::Number(Number::Fraction(number));
        assert_eq!(
            new("a", Operator::Equal, fraction),
            Err(refusal::NOT_FINITE)
        );
        assert_eq!(
            new("a", Operator::Equal, Property::Date(number)),
            Err(refusal::NOT_FINITE)
        );
    }
    assert_eq!(Filter::new(Vec::new()), Err(refusal::INVALID_FILTER));
}

#[test]
fn a_search_that_nearly_matches_everywhere_is_no_bomb() {
    let filter = format!("a&T{}b", "a".repeat(30_000));
    let filter = Filter::read(filter.as_bytes()).unwrap();
    #[allow(clippy::disallowed_methods)] // its time is measured
    let begin = std::time::Instant::now();
    for part in ["a", "%61"] {
        let properties = format!("a:T{}", part.repeat(20_000)).repeat(3);
        for _ in 0..100 {
            assert!(!filter.matches(&Properties::new(properties.as_bytes())));
        }
    }
    // 20,000 × 30,000 steps for each of 200 would take minutes.
    let took = begin.elapsed();
    assert!(took.as_secs() < 40, "{took:?}");
}

#[test]
fn held_bytes_grow_with_names_texts_and_searches() {
    let held = |filter: &str| Filter::read(filter.as_bytes()).unwrap().held_bytes();
    let condition = size_of::<Condition>();
    assert!(held("a=N1") > condition);
    assert!(held("a=N1;b=N2") > condition * 2);
    assert!(held(&format!("{}=N1", "a".repeat(1_000))) > condition + 1_000);
    assert!(held(&format!("a=T{}", "a".repeat(1_000))) > condition + 1_000);
    assert!(held(&format!("a&T{}", "a".repeat(1_000))) > condition + 9_000);
}

/// Whether a message with these properties matches a filter, by the model.
fn expected(filter: &Filter, properties: &[u8]) -> bool {
    let properties = read_properties(properties).unwrap_or_default();
    filters::matches(&filters::conditions(filter), &properties)
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("a"), Just("b"), Just("name-2")].prop_map(str::to_owned)
}

fn number() -> impl Strategy<Value = Number> {
    let large = prop_oneof![
        Just(i64::MAX),
        Just(i64::MAX - 1),
        Just(i64::MIN),
        Just((1 << 53) + 1)
    ];
    let large_fraction = prop_oneof![
        Just(9_223_372_036_854_775_808.0),
        Just(-9_223_372_036_854_775_808.0),
        Just(9_007_199_254_740_992.0),
        Just(1e21),
    ];
    prop_oneof![
        (-3_i64..4).prop_map(Number::Whole),
        (-12_i32..13).prop_map(|quarters| Number::Fraction(f64::from(quarters) / 4.0)),
        large.prop_map(Number::Whole),
        large_fraction.prop_map(Number::Fraction),
    ]
}

fn value() -> impl Strategy<Value = Property> {
    prop_oneof![
        number().prop_map(Property::Number),
        (-4_i32..5).prop_map(|halves| Property::Date(f64::from(halves) / 2.0)),
        "[abN1é ]{0,5}".prop_map(Property::Text),
        "[ab]{0,4}".prop_map(Property::Text),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let parts = (name(), proptest::sample::select(&OPERATORS[..]), value());
    parts.prop_filter_map("fits", |(name, operator, value)| {
        Condition::new(name, operator, value).ok()
    })
}

/// An entry of properties: a sound one, one with texts of other forms, or one that cannot be read.
fn entry() -> impl Strategy<Value = Vec<u8>> {
    let sound = (name(), value()).prop_map(|(name, value)| {
        let written = write_properties([(name.as_str(), &value)]).unwrap();
        written.trim_end_matches(';').to_owned()
    });
    let raw = (name(), "[TND]?(%61|%62|%C3%A9|%c3%a9|[abN1.:=-]){0,8}")
        .prop_map(|(name, raw)| format!("{name}:{raw}"));
    let bad = (name(), "[TND]?[ab1]?(%|%4|%4g|%FF|%C3)[ab]?")
        .prop_map(|(name, raw)| format!("{name}:{raw}"));
    let other = prop_oneof![
        "", "[ab]", ":N1", "a b:N1", "a=b:N1", "a,:Ta", "A_x:Ta", "[ab]:Té", "é:N1"
    ];
    prop_oneof![4 => sound, 3 => raw, 2 => bad, 1 => other].prop_map(String::into_bytes)
}

fn entries_of_a_message() -> impl Strategy<Value = Vec<u8>> {
    let count = prop_oneof![4 => 0_usize..6, 1 => 28_usize..40];
    let few_names = count.prop_flat_map(|count| proptest::collection::vec(entry(), count));
    // Entries in front that no condition names, so that the others come behind the ones that are split once.
    let front = prop_oneof![3 => Just(0_usize), 1 => 30_usize..35];
    let all = (front, few_names).prop_map(|(front, entries)| {
        let front = (0..front).map(|at| format!("x{at}:N1").into_bytes());
        front.chain(entries).collect::<Vec<_>>().join(&b';')
    });
    prop_oneof![
        9 => all,
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn evaluation_is_that_of_the_model(
        conditions in proptest::collection::vec(condition(), 1..4),
        properties in entries_of_a_message(),
    ) {
        let filter = Filter::new(conditions).unwrap();
        let expected = expected(&filter, &properties);
        prop_assert_eq!(filter.matches(&Properties::new(&properties)), expected);
    }

    #[test]
    fn a_single_condition_is_evaluated_like_in_the_model(
        condition in condition(),
        properties in proptest::collection::vec(entry(), 1..3),
    ) {
        let filter = Filter::new(vec![condition]).unwrap();
        let properties = properties.join(&b';');
        let expected = expected(&filter, &properties);
        prop_assert_eq!(filter.matches(&Properties::new(&properties)), expected);
    }

    #[test]
    fn a_written_filter_is_read_again(conditions in proptest::collection::vec(condition(), 1..4)) {
        let filter = Filter::new(conditions).unwrap();
        let text = filter.write();
        prop_assert!(text.is_ascii());
        prop_assert_eq!(Filter::read(text.as_bytes()), Ok(filter.clone()));
        prop_assert_eq!(Filter::read(format!("{text};").as_bytes()), Ok(filter));
    }

    #[test]
    fn no_input_panics(
        filter in "([ab]?[=<>!~&;]{0,2}[NDT]?[-0-9.%]{0,3};?){0,4}",
        bytes in proptest::collection::vec(any::<u8>(), 0..20),
        properties in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        for text in [filter.as_bytes(), &bytes] {
            if let Ok(filter) = Filter::read(text) {
                let _ = filter.matches(&Properties::new(&properties));
                let written = filter.write();
                prop_assert_eq!(Filter::read(written.as_bytes()), Ok(filter));
            }
        }
    }

    #[test]
    fn a_search_finds_what_the_standard_library_finds(
        needle in "[ab]{0,6}",
        text in "[ab]{0,30}",
        escaped in any::<bool>(),
    ) {
        let raw = if escaped { text.replace('b', "%62") } else { text.clone() };
        prop_assert_eq!(matches(&format!("a&T{needle}"), &format!("a:T{raw}")), text.contains(&needle));
    }
}
