"""`where`: predicates in SQL's form become filters that choose the same messages as SQL does."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ackline.exceptions import UsageError
from ackline.micromsg import Filter, write_properties
from ackline.spark.options import stream_options
from ackline.spark.where import filter_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST = "N-17976931348623157" + "0" * 292 + ".0"
"""The smallest number of a property: every number fulfils `>=` with it."""


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (
            "level >= 3 AND region = 'eu' AND host LIKE 'web%'",
            "level>=N3;region=Teu;host<Tweb",
        ),
        ("(a = 1) and ((b > -2.5 AND c < 0))", "a=N1;b>N-2.5;c<N0"),
        ("a == 1.0 AND b <= 007", "a=N1;b<=N7"),
        ("at >= TIMESTAMP '2026-11-21 10:00:00Z'", "at>=D1795255200.0"),
        ("at < timestamp'1969-12-31T23:59:59.75+00:00'", "at<D-0.25"),
        ("a LIKE '%x'", "a>Tx"),
        ("a LIKE '%x%'", "a&Tx"),
        ("a LIKE '%%'", "a<T"),
        ("a LIKE 'x'", "a=Tx"),
        ("a = ''", "a=T"),
        ("a = 'it''s 5%;'", "a=Tit%27s%205%25%3B"),
        ("`first_name` = 'ä'", "first_name=T%C3%A4"),
        ("`A``b` = 1", "A`b=N1"),
        ("date = 1 AND timestamp = 2", "date=N1;timestamp=N2"),
        # SQL's <> and NOT LIKE are not true for a missing value.
        ("a <> 'x'", "a<T;a!=Tx"),
        ("a NOT LIKE '%x%'", "a<T;a~Tx"),
        ("a NOT LIKE 'x'", "a<T;a!=Tx"),
        ("a != 3", f"a>={LEAST};a!=N3"),
        ("a <> TIMESTAMP '1970-01-01 00:00:00Z'", f"a>=D{LEAST[1:]};a!=D0.0"),
    ],
)
def test_a_predicate_becomes_a_filter(predicate: str, text: str) -> None:
    assert filter_of(predicate) == text


@pytest.mark.parametrize(
    ("predicate", "part"),
    [
        ("a = 1 OR b = 2", "OR cannot be translated into a filter of MicroMsg2: all conditions"),
        ("NOT a = 1", "NOT a cannot"),
        ("a IN (1, 2)", "IN cannot"),
        ("a NOT IN (1, 2)", "NOT IN cannot"),
        ("a BETWEEN 1 AND 2", "BETWEEN cannot be translated .*: write two comparisons"),
        ("a IS NULL", "IS cannot"),
        ("a IS NOT NULL", "IS cannot"),
        ("a <=> 1", "<=> cannot"),
        ("a > 'x'", "a > 'x' cannot be translated .*: a filter does not compare texts by their"),
        ("a <= ''", "a <= '' cannot"),
        ("a LIKE 'x_'", "a LIKE 'x_' cannot be translated .*: only % at the beginning and the end"),
        ("a LIKE 'a%b'", "a LIKE 'a%b' cannot"),
        ("a LIKE '_%'", "a LIKE '_%' cannot"),
        (r"a LIKE 'x\%'", "a backslash has several meanings"),
        (r"a = 'x\n'", "a backslash has several meanings"),
        ("a LIKE 'x/%' ESCAPE '/'", "ESCAPE cannot"),
        ("a ILIKE 'x'", "ILIKE cannot"),
        ("a RLIKE 'x'", "RLIKE cannot"),
        ("a NOT LIKE 'x%'", "a NOT LIKE 'x%' cannot"),
        ("a NOT LIKE '%x'", "a NOT LIKE '%x' cannot"),
        ("a NOT LIKE '%'", "a NOT LIKE '%' cannot"),
        ("lower(a) = 'x'", r"the function lower\(\) cannot"),
        ("3 <= a", "the literal 3 in front cannot"),
        ("'x' = a", "the literal 'x' in front cannot"),
        ("-3 <= a", "the literal - in front cannot"),
        ("TIMESTAMP '2026-01-01 00:00:00Z' < a", "the literal TIMESTAMP in front cannot"),
        ("Level = 1", "Level cannot be translated .*: names are compared by case"),
        ("`a b` = 1", "the name 'a b' cannot"),
        ("`ä` = 1", "the name 'ä' cannot"),
        ("`a<b` = 1", "the name 'a<b' cannot"),
        ("a = TRUE", "a compared with TRUE cannot be translated .*: write 'true'"),
        ("a = NULL", "a compared with NULL cannot"),
        ("a = b", "a compared with b cannot"),
        ('a = "x"', 'a compared with " cannot be translated .*: write texts in single quotes'),
        ("a = r'x'", "a compared with r cannot"),
        ("a = 1e3", "a compared with 1e3 cannot"),
        ("a = 3L", "a compared with 3L cannot"),
        ("a = .5", "a compared with .5 cannot"),
        ("a = 5.", "a compared with 5. cannot"),
        ("a = 1 + 1", r"\+ cannot"),
        ("a = 'x' 'y'", "'y' cannot"),
        ("a = 1)", r"\) cannot"),
        ("a = 1; b = 2", "; cannot"),
        ("a = 1 -- b", "- cannot"),
        ("a = /* c */ 1", "a compared with / cannot"),
        ("a.b = 1", ".b cannot"),
        ("a['b'] = 1", r"\[ cannot"),
        ("d = DATE '2026-01-01'", "d compared with DATE cannot be translated .*: write the time"),
        ("a > TIMESTAMP '2026-01-01'", "TIMESTAMP '2026-01-01' cannot .*: write it with its zone"),
        ("a > TIMESTAMP '2026-01-01 00:00:00'", "write it with its zone"),
        ("a > TIMESTAMP '2026-02-30 00:00:00Z'", "it is no time"),
        ("a > TIMESTAMP '9999-12-31 23:59:59.999999Z'", "more digits than a property's date"),
        ("a > TIMESTAMP_NTZ '2026-01-01 00:00:00'", "a compared with TIMESTAMP_NTZ cannot"),
        ("a = 9223372036854775808", "a property's whole number has 64 bits"),
        ("a < 0.1234567890123456789", "it has more digits than a property's number keeps"),
        ("a <= 2.99999999999999999999", "it has more digits than a property's number keeps"),
        ("", "the predicate is not complete"),
        ("a", "the predicate is not complete"),
        ("a =", "the predicate is not complete"),
        ("a = 1 AND", "the predicate is not complete"),
        ("(a = 1", "the predicate is not complete"),
        ("a LIKE", "the predicate is not complete|LIKE cannot"),
    ],
)
def test_a_part_without_a_translation_is_refused_by_its_name(predicate: str, part: str) -> None:
    with pytest.raises(UsageError, match=f"^where: .*{part}") as error:
        filter_of(predicate)
    assert "not complete" in str(error.value) or "use DataFrame.filter" in str(error.value)


# ---- the same rows as DataFrame.filter ----

NUMBERS: list[float] = [0, 1, -1, 3, 2.5, -0.25, 2**53 + 1, 2**53, -(2**63), 2**63 - 1, 1e15]
TEXTS = ["", "a", "b", "ab", "aba", "a%b", "A", "é", "web-1", "3", "true", "a\nb", " a", "a "]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = [
    EPOCH,
    EPOCH + timedelta(microseconds=1),
    EPOCH - timedelta(microseconds=1),
    datetime(2026, 11, 21, 10, 0, 0, 123456, UTC),
    datetime(2026, 11, 21, 10, 0, 0, 123457, UTC),
    datetime(1, 1, 2, tzinfo=UTC),
]
NAMES = ["p", "q", "r"]
KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "number": ((int, float), "DECIMAL(38, 10)"),
    "text": (str, "STRING"),
    "time": (datetime, "TIMESTAMP"),
}


def any_value(random_: random.Random) -> Any:
    return random_.choice(random_.choice([NUMBERS, TEXTS, TIMES]))


def messages(random_: random.Random, count: int) -> list[dict[str, Any]]:
    """Properties of messages: any name may be missing, and may have a value of any type."""
    return [
        {name: any_value(random_) for name in NAMES if random_.random() < 0.8} for _ in range(count)
    ]


def comparison(random_: random.Random, name: str, kind: str) -> str:
    if kind == "number":
        number = random_.choice(NUMBERS)
        text = f"{number:.2f}" if isinstance(number, float) else str(number)
        return f"{name} {random_.choice(['=', '<>', '!=', '<', '<=', '>', '>='])} {text}"
    if kind == "time":
        time = f"TIMESTAMP '{random_.choice(TIMES).isoformat(' ')}'"
        return f"{name} {random_.choice(['=', '<>', '<', '<=', '>', '>='])} {time}"
    text = random_.choice([text for text in TEXTS if "%" not in text])
    form = random_.choice(
        ["= '{}'", "<> '{}'", "LIKE '{}%'", "LIKE '%{}'", "LIKE '%{}%'", "LIKE '{}'"]
        + (["NOT LIKE '%{}%'"] if text else ["LIKE '%'"])
        + ["NOT LIKE '{}'"]
    )
    return f"{name} {form.format(text)}"


def test_a_filter_chooses_the_rows_of_dataframe_filter(spark: SparkSession) -> None:
    random_ = random.Random(22)
    sent = messages(random_, 120)
    # Each name has a column for each type, which is NULL if the property is of another one.
    columns = [(name, kind) for name in NAMES for kind in KINDS]
    data = [
        [row, *(_cell(message.get(name), kind) for name, kind in columns)]
        for row, message in enumerate(sent)
    ]
    schema = ", ".join(f"{name}_{kind} {_stored(kind)}" for name, kind in columns)
    frame = spark.createDataFrame(data, f"row INT, {schema}")
    typed = frame.select(
        "row",
        *(
            frame[f"{name}_{kind}"].cast(KINDS[kind][1]).alias(f"{name}_{kind}")
            for name, kind in columns
        ),
    )
    predicates = []
    for _ in range(250):
        kinds = {name: random_.choice(list(KINDS)) for name in NAMES}
        names = random_.choices(NAMES, k=random_.choice([1, 1, 2, 3]))
        predicates.append(
            [(name, comparison(random_, name, kinds[name]), kinds[name]) for name in names]
        )
    in_sql = [
        " AND ".join(text.replace(name, f"{name}_{kind}", 1) for name, text, kind in predicate)
        for predicate in predicates
    ]
    ticked = [f"({text}) IS TRUE AS `{at}`" for at, text in enumerate(in_sql)]
    rows = typed.selectExpr("row", *ticked).orderBy("row").collect()
    raw = [write_properties(message) for message in sent]
    matched = 0
    for at, predicate in enumerate(predicates):
        text = " AND ".join(text for _, text, _ in predicate)
        chosen = Filter(filter_of(text))
        by_filter = [chosen.matches(properties) for properties in raw]
        assert by_filter == [row[str(at)] for row in rows], text
        matched += sum(by_filter)
    assert matched > 1_000


def _cell(value: Any, kind: str) -> Any:
    if not isinstance(value, KINDS[kind][0]):
        return None
    return (
        f"{value:.10f}" if isinstance(value, float) else str(value) if kind == "number" else value
    )


def _stored(kind: str) -> str:
    return "STRING" if kind == "number" else KINDS[kind][1]


# ---- options ----


def options(**given: str) -> dict[str, str]:
    return {"spool": "/s", "consumer": "c"} | {
        name.replace("__", "."): value for name, value in given.items()
    }


def connected(**given: str) -> tuple[str, ...]:
    listen = stream_options(options(**given)).listen
    assert listen is not None
    return listen.connect


def test_a_filter_goes_with_each_url_to_connect_to() -> None:
    urls = "micromsg://h:1/alerts, micromsg+unix:///x.sock?topic=a"
    level = "filter=level%3E%3DN3%3Bregion%3DTeu"
    for given in (
        {"where": "level >= 3 AND region = 'eu'"},
        {"micromsg__filter": "level>=N3;region=Teu;"},
    ):
        assert connected(connect=urls, **given) == (
            f"micromsg://h:1/alerts?{level}",
            f"micromsg+unix:///x.sock?topic=a&{level}",
        )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"where": "a = 1"}, "where is for the receiver that the option listen or connect starts"),
        (
            {"connect": "micromsg://h:1/a", "where": "a = 1", "micromsg__filter": "a=N1"},
            "where and micromsg.filter filter the same messages",
        ),
        (
            {"connect": "micromsg://h:1/a,bpmux://h:2?x=secret", "where": "a = 1"},
            "what comes from bpmux://h:2 would not be filtered",
        ),
        (
            {"connect": "micromsg://h:1/a", "listen": "micromsg://h:2", "where": "a = 1"},
            "what comes from micromsg://h:2 would not be filtered",
        ),
        (
            {"connect": "micromsg://h:1/a?filter=a%3DN1", "where": "a = 1"},
            "micromsg://h:1/a has a filter in its query",
        ),
        ({"connect": "micromsg://h:1/a", "micromsg__filter": "a>3"}, "micromsg.filter: the filter"),
        ({"connect": "micromsg://h:1/a", "where": "a > 'x'"}, "where: a > 'x' cannot"),
    ],
)
def test_a_filter_that_would_not_hold_for_every_row_is_refused(
    given: dict[str, str], text: str
) -> None:
    with pytest.raises(UsageError, match=text) as error:
        stream_options(options(**given))
    assert "secret" not in str(error.value)
