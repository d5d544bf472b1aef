"""The columns of the sink to MicroMsg2: checks before any task, and rows that cannot be sent."""

from __future__ import annotations

import socket
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from inbox import Inbox
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ackline import _core
from ackline.exceptions import AcklineError, LinkLost, UsageError
from ackline.spark.message_columns import message_columns
from ackline.spark.sink import check_rows
from ackline.spark.sink_options import check_sink_options, sink_options

if TYPE_CHECKING:
    from collections.abc import Mapping

URL = "micromsg://127.0.0.1:8334"
TO_ROWS = f"{URL}/rows"


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def options(url: str = TO_ROWS, **given: str) -> dict[str, str]:
    named = {name: value for name, value in given.items() if name in ("payload", "metadata")}
    own = {f"micromsg.{name}": value for name, value in given.items() if name not in named}
    return {"url": url} | named | own


# ---- options ----


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("level", [("level", "")]),
        (
            " level , log-level=Log Level,a=`b,=c``d` ",
            [("level", ""), ("Log Level", "log-level"), ("b,=c`d", "a")],
        ),
        ("a.b,`a`", [("a.b", ""), ("a", "")]),
    ],
)
def test_properties_are_columns_with_names_or_without(
    text: str, columns: list[tuple[str, str]]
) -> None:
    found = message_columns({"micromsg.properties": text}, "micromsg")
    assert found == {"properties": tuple(columns)}


@pytest.mark.parametrize("text", ["", ",", "a,", "a,,b", "=a", "a=", "a=b=c", "`a", "a b`c`"])
def test_a_list_of_properties_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"micromsg\.properties must list columns with commas"):
        message_columns({"micromsg.properties": text}, "micromsg")


@pytest.mark.parametrize(
    ("url", "option", "value", "text"),
    [
        (TO_ROWS, "compression", "1", "has no windows of events: connect.window limits the"),
        (TO_ROWS, "max_in_flight", "1", "max_in_flight is an option of windows, and micromsg://"),
        (TO_ROWS, "batch_events", "1", "batch_events is an option of windows"),
        (TO_ROWS, "batch_bytes", "1", "batch_bytes is an option of windows"),
        (TO_ROWS, "goodbye", "x", "goodbye is an option of reactive://"),
        (TO_ROWS, "ca", "x", "ca is an option of TLS, and no URL is .tls"),
        (TO_ROWS, "connect.window", "0", "connect.window is 0; it is a"),
        (TO_ROWS, "connect.demand", "5", "of micromsg:// has no option connect.demand"),
        (TO_ROWS, "connect.send_bytes", "5", "has no option connect.send_bytes"),
        (TO_ROWS, "connect.optional_extensions", "a=b", "list of extensions"),
        (TO_ROWS, "micromsg.destination", "", "micromsg.destination must name a column"),
        (TO_ROWS, "micromsg.destination", "to", "the URL has the destination .rows., and micromsg"),
        ("lumberjack://h:1", "micromsg.destination", "to", "is an option of micromsg://, not of l"),
        ("bpmux://h:1", "micromsg.properties", "to", "is an option of micromsg://, not of bpmux"),
        (f"{TO_ROWS}?filter=a%3DN1", "timeout", "1", "a filter, and filters are for subscribers"),
        (f"{URL}/{'x' * 256}", "timeout", "1", "a destination has 1 to 255 characters of ASCII"),
        (f"{URL}/%C3%A4", "timeout", "1", "a destination has 1 to 255 characters of ASCII"),
        ("micromsg://h:0/x", "timeout", "1", "micromsg://h:0 has port 0"),
        ("micromsg://h/x", "timeout", "1", "needs a host and a port"),
        (f"{TO_ROWS},{URL}/b", "timeout", "1", "looks like more than one URL"),
    ],
)
def test_a_refusal_names_the_option(url: str, option: str, value: str, text: str) -> None:
    with pytest.raises(AcklineError, match=text):
        check_sink_options({"url": url, option: value})


@pytest.mark.parametrize(
    ("url", "option", "value"),
    [
        (TO_ROWS, "connect.window", "500"),
        (f"{TO_ROWS}?handshake_timeout=5s", "connect.name", "spark-7"),
        (URL, "connect.connect_timeout", "2s"),
        ("micromsg+unix:///x.sock?topic=rows", "connect.max_message_bytes", "64MiB"),
    ],
)
def test_options_of_connect_reach_the_native_sink(url: str, option: str, value: str) -> None:
    found = check_sink_options({"url": url, option: value})
    assert dict(found.native)[option.removeprefix("connect.")] == value


# ---- columns ----


def test_columns_of_destinations_and_properties_are_no_payload() -> None:
    of_raw = options(URL, payload="raw", properties="level,tags", destination="to")
    tags = MapType(StringType(), StringType())
    check_rows(
        sink_options(of_raw),
        schema(to=StringType(), level=LongType(), tags=tags, value=BinaryType()),
    )
    # A column destination is one of the payload if the URL has the destination.
    check_rows(sink_options(options()), schema(destination=LongType()))
    check_rows(sink_options(options(URL)), schema(destination=StringType()))
    with pytest.raises(UsageError, match="the frame has a, value beside to, level, tags"):
        check_rows(
            sink_options(of_raw),
            schema(to=StringType(), level=LongType(), tags=tags, a=LongType(), value=BinaryType()),
        )


@pytest.mark.parametrize(
    ("given", "columns", "text"),
    [
        (options(URL), schema(a=LongType()), 'no column "destination", only a: a destination st'),
        (options(URL, destination="to"), schema(a=LongType()), 'there is no column "to", only a'),
        (options(URL), schema(destination=LongType()), "destination is Int64, and a destination"),
        (options(properties="b"), schema(a=LongType()), 'there is no column "b", only a'),
        (options(properties="A"), schema(a=LongType()), 'there is no column "A", only a'),
        (
            options(properties="first_name"),
            schema(first_name=StringType()),
            '"first_name" cannot be the name of a property: .* Write property=column',
        ),
        (options(properties="A=a"), schema(a=LongType()), '"A" cannot be the name of a property'),
        (
            options(properties="x=a,x=b"),
            schema(a=LongType(), b=LongType()),
            'two columns give the property "x"',
        ),
        (
            options(properties="t=tags"),
            schema(tags=MapType(StringType(), StringType())),
            "column tags is a map, whose keys are the names of its properties: write tags alone",
        ),
        (
            options(properties="m"),
            schema(m=MapType(StringType(), LongType())),
            "column m is Map.*, which no property can hold",
        ),
        (options(properties="a"), schema(a=BinaryType()), "column a is Binary, which no property"),
        (options(properties="a"), schema(a=ArrayType(LongType())), "column a is List"),
        (options(properties="a"), schema(a=schema(b=LongType())), "column a is Struct"),
        (options(properties="a"), schema(a=NullType()), "column a is Null"),
        (
            options(properties="a"),
            schema(a=TimestampNTZType()),
            "column a is Timestamp.*: it has no time zone: CAST it AS TIMESTAMP",
        ),
        (
            options(metadata="true", properties="a"),
            schema(a=LongType(), ackline=LongType()),
            "a column is named ackline",
        ),
    ],
)
def test_columns_are_checked_on_the_driver(
    given: Mapping[str, str], columns: StructType, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        check_rows(sink_options(given), columns)


def test_every_type_of_property_passes() -> None:
    kinds = (LongType(), DoubleType(), DecimalType(38, 10), BooleanType(), TimestampType())
    columns = schema(**{f"c{at}": kind for at, kind in enumerate(kinds)}, id=LongType())
    check_rows(sink_options(options(properties="c0,c1,c2,c3,c4")), columns)


# ---- rows ----


def refused(url: str, native: dict[str, Any], **columns: pa.Array) -> str:
    batch = pa.record_batch(columns)
    sink = _core.MicroMsgRows(url, {"timeout": 1, "partition": 3} | native)
    with pytest.raises(UsageError) as error:
        sink.write(batch)
    return str(error.value)


def strings(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.array([1.5, float("nan")]), "x is NaN, and a property's number is finite"),
        (pa.array([1.5, float("-inf")], pa.float32()), "x is -inf, and a property's number is"),
        (
            pa.array([Decimal("1.5"), Decimal("12345678901234567.8")], pa.decimal128(18, 1)),
            "x is 12345678901234567.8: a property would lose digits of this decimal",
        ),
        (
            pa.array([Decimal(1), Decimal(2**63)], pa.decimal128(19, 0)),
            "x is 9223372036854775808: a property's whole number has 64 bits",
        ),
        (
            pa.array([0, 253402300799999999], pa.timestamp("us", "UTC")),
            "x is 253402300799.999999 s since 1970: a property would lose digits of this time",
        ),
        (strings("a", "é" * 11_000), "its properties have 66009 bytes, and a message's have 65535"),
        (
            pa.array([[("a", "b")], [("First Name", "c")]], pa.map_(pa.string(), pa.string())),
            'x has the key "First Name", which cannot be the name of a property',
        ),
        (
            pa.array([[("a", "b")], [("n", "c")]], pa.map_(pa.string(), pa.string())),
            'x has the key "n", and another column gives this property',
        ),
    ],
)
def test_a_value_that_no_property_can_have_is_named_with_its_row(
    values: pa.Array, text: str
) -> None:
    native = {"properties": [("n", ""), ("x", "")]}
    error = refused(TO_ROWS, native, n=pa.array([1, 2]), x=values, id=pa.array([1, 2]))
    start = "row 1 of partition 3: " + ("" if text.startswith("its") else "column ")
    assert error.startswith(start + text)


@pytest.mark.parametrize(
    ("destination", "text"),
    [
        (None, "to is null, and every row needs a destination"),
        ("", 'to is "": a destination has 1 to 255 characters of ASCII'),
        ("é\n", r'to is "é\n": a destination has 1 to 255 characters of ASCII'),
        ("x" * 256, f'to is "{"x" * 100}": a destination has'),
    ],
)
def test_a_destination_that_no_message_can_have_is_named_with_its_row(
    destination: str | None, text: str
) -> None:
    error = refused(URL, {"destination": "to"}, to=strings("a", destination), id=strings("", ""))
    assert error.startswith(f"row 1 of partition 3: column {text}")


def test_a_row_above_the_limit_of_a_message_is_refused() -> None:
    error = refused(TO_ROWS, {"max_message_bytes": 1_000}, text=strings("a", "x" * 1_000))
    assert error.startswith("row 1 of partition 3 is an event of 1011 bytes, and one has 1000")


def test_numbers_keep_their_digits_and_edges() -> None:
    columns = {
        "tiny": pa.array([5e-324]),
        "huge": pa.array([1.7976931348623157e308]),
        "single": pa.array([16_777_217.0], pa.float32()),
        "least": pa.array([-(2**63)]),
        "price": pa.array([Decimal("-0.10")], pa.decimal128(4, 2)),
        "whole": pa.array([Decimal("5.00")], pa.decimal128(4, 2)),
        "early": pa.array([-62_135_596_800_000_000], pa.timestamp("us", "UTC")),
    }
    with Inbox() as inbox:
        native = {"timeout": 30, "properties": [(name, "") for name in columns]}
        sink = _core.MicroMsgRows(f"{inbox.url}/rows", native)
        sink.write(pa.record_batch(columns | {"id": pa.array([1])}))
        assert sink.finish() == (1, 0)
    (message,) = inbox.acknowledged
    found = dict(part.split(":") for part in message.raw_properties.strip(";").split(";"))
    assert float(found["tiny"][1:]) == 5e-324
    assert found["huge"] == "N17976931348623157" + "0" * 292 + ".0"
    assert (found["single"], found["least"]) == ("N16777216.0", f"N{-(2**63)}")
    assert (found["price"], found["whole"]) == ("N-0.1", "N5.0")
    assert found["early"] == "D-62135596800.0"


def test_a_sink_without_rows_makes_no_connection() -> None:
    sink = _core.MicroMsgRows(TO_ROWS, {"timeout": 1})
    assert sink.finish() == (0, 0)


def test_repeats_are_counted() -> None:
    cut: list[int] = []

    def look(messages: list[Any]) -> bool:
        if messages[0].position > 1 and not cut:
            cut.append(len(messages))
        return not cut or inbox.connections > 1

    with Inbox(look) as inbox:
        sink = _core.MicroMsgRows(f"{inbox.url}/rows", {"timeout": 30, "window": 100})
        sink.write(pa.record_batch({"id": pa.array(range(1_000))}))
        rows, repeats = sink.finish()
    assert rows == 1_000
    assert 0 < repeats <= 100
    assert len(inbox.messages) - 1_000 <= repeats
    assert [row["id"] for row in inbox.rows()] == list(range(1_000))


def test_a_peer_that_is_silent_in_the_handshake_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"micromsg://127.0.0.1:{server.getsockname()[1]}/rows"
        sink = _core.MicroMsgRows(url, {"timeout": 1, "partition": 3})
        before = time.monotonic()
        with pytest.raises(LinkLost, match="0 of the 2 rows of partition 3") as error:
            sink.write(pa.record_batch({"id": pa.array([1, 2])}))
    assert time.monotonic() - before < 8, "less than the 10 s of a handshake"
    assert "the peer was silent too long" in str(error.value)
    assert error.value.unacknowledged == 2
