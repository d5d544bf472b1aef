"""Filters of subscriptions: their text, their builder, and matches compared with a small model."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.micromsg_pair import TIME, pair

from ackline import UsageError, micromsg
from ackline.micromsg import Filter, where

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (where("level") >= 3, "level>=N3"),
        (where("level") < -1.5, "level<N-1.5"),
        (where("level") == 0, "level=N0"),
        (where("level") != 0, "level!=N0"),
        (where("at") <= NOON, "at<=D1782907200.0"),
        (where("at") > NOON, "at>D1782907200.0"),
        (where("region") == "eu", "region=Teu"),
        (where("region") != "e u", "region!=Te%20u"),
        (where("path").startswith("/a"), "path<T%2Fa"),
        (where("path").endswith("é"), "path>T%C3%A9"),
        (where("path").contains(";"), "path&T%3B"),
        (where("path").lacks("x"), "path~Tx"),
        ((where("a") > 1) & (where("b") == "x") & (where("a") < 3), "a>N1;b=Tx;a<N3"),
    ],
)
def test_a_built_filter_has_a_text_that_reads_the_same(built: Filter, text: str) -> None:
    assert str(built) == text
    assert repr(built) == f"Filter({text!r})"
    assert Filter(text) == built
    assert hash(Filter(text)) == hash(built)
    assert Filter(text + ";") == built
    assert Filter("other=N1") != built


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ("", "invalid_filter", "it has no condition"),
        ("level", "invalid_filter", "a condition has no operator"),
        ("level=3", "invalid_filter", "a value has no type in front"),
        ("level=N3x", "invalid_filter", "not the form of its type"),
        ("level&N3", "invalid_filter", "an operator is not one for the type"),
        ("region>=Teu", "invalid_filter", "an operator is not one for the type"),
        ("=N1", "invalid_filter", "a name is empty"),
        ("a=N1;;b=N1", "invalid_filter", "a condition has no operator"),
        ("a=Té", "not_ascii", "the filter is not ASCII"),
        ("a=T%4", "invalid_percent_encoding", "percent sign"),
    ],
)
def test_a_text_that_is_no_filter_says_why(text: str, code: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as wrong:
        Filter(text)
    assert wrong.value.code == code
    assert isinstance(wrong.value, ValueError)


def test_conditions_that_make_no_sense_are_refused() -> None:
    level: Any = where("level")
    for build, code in [
        (lambda: level > "a", "invalid_filter"),
        (lambda: level <= "a", "invalid_filter"),
        (lambda: level.contains(3), "invalid_filter"),
        (lambda: level.startswith(b"x"), "invalid_filter"),
        (lambda: level == None, "invalid_value"),  # noqa: E711 (it makes a condition)
        (lambda: level == True, "invalid_value"),  # noqa: E712 (it makes a condition)
        (lambda: level >= math.inf, "not_finite"),
        (lambda: level == 1 << 64, "out_of_range"),
        (lambda: where("a<b") == 1, "invalid_name"),
        (lambda: where("") == 1, "invalid_name"),
        (lambda: Filter.condition("a", "=>", 1), "invalid_filter"),
    ]:
        with pytest.raises(UsageError) as wrong:
            build()
        assert wrong.value.code == code
    with pytest.raises(TypeError):
        hash(where("a"))
    with pytest.raises(TypeError):
        _ = Filter("a=N1") & "b=N1"  # type: ignore[operator]


def test_a_filter_names_properties_of_other_implementations() -> None:
    chosen = where("first_name") == "jonas"
    assert str(chosen) == "first_name=Tjonas"
    assert chosen.matches("first_name:jonas;twitter:jgauffin;")
    assert chosen.matches({"first_name": "jonas"})


def test_a_filter_has_no_truth() -> None:
    with pytest.raises(TypeError, match="join conditions by &"):
        bool(where("a") == 1 and where("b") == 2)
    with pytest.raises(TypeError, match="join conditions by &"):
        bool(1 < where("a") < 5)


def test_a_filter_takes_a_message_its_raw_properties_or_a_mapping() -> None:
    chosen = (where("level") >= 3) & where("region").startswith("e")
    with pair() as (near, far):
        near.send(b"", properties={"level": 3, "region": "eu"})
        message = far.receive(timeout=TIME)
        assert message is not None
        assert chosen.matches(message)
        assert chosen.matches(message.raw_properties)
        assert chosen.matches(message.properties)
    # Properties that cannot be read are none.
    assert chosen.matches("level:N4;region:eu")
    for raw in ("level:N4;;region:eu", "level:N4;region:eu;x:T%", "level:N4;region:eu;x"):
        assert not chosen.matches(raw)
    assert not chosen.matches("level:4;region:eu")
    assert not chosen.matches({})
    with pytest.raises(UsageError):
        chosen.matches({"le vel": 3})
    with pytest.raises(UsageError):
        chosen.matches(7)  # type: ignore[arg-type]


def test_a_subscription_has_its_filter() -> None:
    with pair() as (near, far):
        near.subscribe("all")
        near.subscribe("rooms/7", "level>=N3")
        near.subscribe("rooms/7", where("level") > 5)
        near.unsubscribe("rooms/7")
        near.command("ping", {"a": "b=c,d;e ü", "x": ""})
        near.close(timeout=TIME)
        assert list(far.commands()) == [
            micromsg.Subscribe("all"),
            micromsg.Subscribe("rooms/7", Filter("level>=N3")),
            micromsg.Subscribe("rooms/7", Filter("level>N5")),
            micromsg.Unsubscribe("rooms/7"),
            micromsg.Command("ping", {"a": "b=c,d;e ü", "x": ""}),
        ]


def test_what_cannot_be_subscribed_to_is_refused() -> None:
    with pair() as (near, _):
        for topic, code in [("ä", "not_ascii"), ("t" * 256, "out_of_range")]:
            with pytest.raises(UsageError) as wrong:
                near.subscribe(topic)
            assert wrong.value.code == code
        with pytest.raises(UsageError, match="a condition has no operator") as wrong:
            near.subscribe("t", "level")
        assert wrong.value.code == "invalid_filter"
        for name, properties in [("Ping", {}), ("", {}), ("a", {"B": "x"})]:
            with pytest.raises(UsageError) as wrong:
                near.command(name, properties)
            assert wrong.value.code == "invalid_name"
    with pair({"optional_extensions": "ack"}, optional_extensions="ack") as (near, _):
        for call in [near.subscribe, near.unsubscribe]:
            with pytest.raises(UsageError) as wrong:
                call("t")
            assert wrong.value.code == "extension_not_negotiated"


def test_frames_of_an_extension_come_as_they_were_sent() -> None:
    options: dict[str, Any] = {"optional_extensions": "x-trace;x-blob:level=2"}
    with pair(options, **options) as (near, far):
        assert near.extensions == ["x-trace", "x-blob"]
        near.send_extension("x-trace", b"1")
        near.send_extension("x-blob", bytearray(300_000), timeout=TIME)
        assert far.receive_extension(timeout=TIME) == ("x-trace", b"1")
        assert far.receive_extension(timeout=TIME) == ("x-blob", bytes(300_000))
        for name in ["x-other", ""]:
            with pytest.raises(UsageError) as wrong:
                near.send_extension(name, b"")
            assert wrong.value.code == "extension_not_negotiated"
        with pytest.raises(UsageError):
            near.send_extension("x-trace", "text")  # type: ignore[arg-type]
        far.send_extension("x-trace", memoryview(b"2"))
        far.close(timeout=TIME)
        assert list(near.extension_frames()) == [("x-trace", b"2")]


NAMES = st.sampled_from(["a", "b", "c-1"])
TEXTS = st.text("ab é%;", max_size=4)
INTEGERS = st.integers(-3, 3) | st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.sampled_from([-2.5, -1.0, 0.0, 1.0, 2.5, 9.223372036854775807e18]) | st.floats(
    allow_nan=False, allow_infinity=False
)
DATES = st.integers(-5, 5).map(lambda days: NOON + timedelta(days=days))
VALUES = TEXTS | INTEGERS | FLOATS | DATES
ORDERED = ["=", "!=", "<", "<=", ">", ">="]
OF_TEXT = ["=", "!=", "<", ">", "&", "~"]


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str, micromsg.Value]:
    value = draw(VALUES)
    operators = OF_TEXT if isinstance(value, str) else ORDERED
    return draw(NAMES), draw(st.sampled_from(operators)), value


def kind(value: micromsg.Value | None) -> type:
    return float if isinstance(value, int) else type(value)


def holds(properties: micromsg.Properties, name: str, operator: str, value: Any) -> bool:
    """The model of one condition."""
    own: Any = properties.get(name)
    if kind(own) is not kind(value):
        return operator in {"!=", "~"}
    if isinstance(value, str):
        return {
            "=": own == value, "!=": own != value, "<": own.startswith(value),
            ">": own.endswith(value), "&": value in own, "~": value not in own,
        }[operator]  # fmt: skip
    return {
        "=": own == value, "!=": own != value, "<": own < value,
        "<=": own <= value, ">": own > value, ">=": own >= value,
    }[operator]  # fmt: skip


@given(st.lists(conditions(), min_size=1, max_size=4), st.dictionaries(NAMES, VALUES))
def test_matches_are_those_of_the_model(
    every: list[tuple[str, str, micromsg.Value]], properties: dict[str, micromsg.Value]
) -> None:
    first, *more = [Filter.condition(*one) for one in every]
    for one in more:
        first &= one
    expected = all(holds(properties, *one) for one in every)
    assert first.matches(properties) is expected
    again = Filter(str(first))
    assert again == first
    assert again.matches(micromsg.write_properties(properties)) is expected


@given(st.dictionaries(NAMES, VALUES))
def test_properties_are_read_as_they_were_written(properties: dict[str, micromsg.Value]) -> None:
    again = micromsg.read_properties(micromsg.write_properties(properties))
    assert again == properties
    assert list(again) == list(properties)
    assert [type(value) for value in again.values()] == [type(it) for it in properties.values()]
