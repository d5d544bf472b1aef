"""Checks of the sink before any task: options, URLs, rows without a form in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

import ackline.spark
from ackline.cli import values
from ackline.exceptions import AcklineError, UsageError
from ackline.spark.sink import check_rows
from ackline.spark.sink_options import check_sink_options, sink_options
from ackline.spark.source import AcklineSource

if TYPE_CHECKING:
    from pathlib import Path

MONTHS = YearMonthIntervalType()
URL = "lumberjack://127.0.0.1:5044"


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_defaults_are_left_to_the_native_sink() -> None:
    options = sink_options({"url": URL})
    assert (options.url, options.raw, options.metadata) == (URL, False, False)
    assert dict(options.native) == {"timeout": 120}


def test_names_are_read_in_any_case_and_values_reach_the_native_sink() -> None:
    options = sink_options(
        {
            "URL": URL,
            "Compression": "none",
            "batch_Events": "50",
            "batch_bytes": "1 MiB",
            "max_in_flight": "7",
            "timeout": "5",
            "ignorenullfields": "false",
            "metadata": "TRUE",
            "checkpointLocation": "/tmp/x",
            "server_name": "logs.example.org",
        }
    )
    assert options.metadata
    assert dict(options.native) == {
        "compression": None,
        "batch_events": 50,
        "batch_bytes": 1 << 20,
        "max_in_flight": 7,
        "timeout": 5,
        "keep_nulls": True,
        "server_name": "logs.example.org",
    }


@pytest.mark.parametrize(
    ("url", "option", "value"),
    [
        (URL, "connect.progress_timeout", "90s"),
        (URL, "connect.slow_start", "10"),
        ("relink://127.0.0.1:1/n", "connect.ping_after", "5s"),
        ("relink://127.0.0.1:1/n", "connect.reconnect_max", "2s"),
        ("bpmux://127.0.0.1:1", "connect.chunk_size", "4KiB"),
        ("bpmux://127.0.0.1:1", "connect.memory", "64MiB"),
        ("relink://127.0.0.1:1/n?ping_after=5s&lost_after=1h", "connect.memory", "64MiB"),
        ("bpmux://127.0.0.1:1?ping_after=5s", "connect.memory", "64MiB"),
        ("reactive://127.0.0.1:1/p", "connect.split_threshold", "4KiB"),
        ("reactive://127.0.0.1:1/p?hello_timeout=5s", "connect.goodbye_timeout", "1s"),
        ("reactive+unix:///x.sock?publisher=p", "connect.connect_timeout", "2s"),
    ],
)
def test_options_of_connect_reach_the_native_sink(url: str, option: str, value: str) -> None:
    options = check_sink_options({"url": url, option.title(): value})
    assert dict(options.native)[option.removeprefix("connect.")] == value


@pytest.mark.parametrize(
    ("url", "option", "value", "text"),
    [
        (URL, "connect.ping_after", "5s", "a sink of lumberjack:// has no option connect.ping_"),
        (URL, "connect.slow_strt", "5", r"connect.slow_strt \(did you mean connect.slow_start\?"),
        (URL, "connect.read_timeout", "5parsecs", "connect.read_timeout is 5parsecs; it is a time"),
        (URL, "connect.compression", "3", r"connect.compression \(write compression\)"),
        ("relink://h:1/n?ping_after=x", "connect.memory", "64MiB", "ping_after is x; it is a time"),
        ("relink://h:1/n", "connect.state", "/s", "has no option connect.state"),
        ("bpmux://h:1", "connect.chunk_size", "0", "connect.chunk_size is 0; it is a size"),
        ("reactive://h:1/p", "connect.demand", "5", "of reactive:// has no option connect.demand"),
        ("reactive://h:1/p", "connect.send_bytes", "5", "has no option connect.send_bytes"),
        ("reactive://h:1/p?hello_timeout=x", "metadata", "false", "hello_timeout is x; it is a"),
    ],
)
def test_a_wrong_option_of_connect_is_named(url: str, option: str, value: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check_sink_options({"url": url, option: value})


@pytest.mark.parametrize("level", [str(level) for level in range(10)])
def test_every_level_is_one(level: str) -> None:
    options = check_sink_options({"url": URL, "compression": level})
    assert dict(options.native)["compression"] == int(level)


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("bogus", "1", r"^the sink of format\('ackline'\) has no option 'bogus', only url, ca, "),
        ("spool", "/s", "has no option 'spool'"),
        ("url", "", "the option url is missing"),
        ("url", "127.0.0.1:5044", "is not a URL"),
        ("url", "kafka://h:9092", 'no protocol "kafka"'),
        ("url", "lumberjack://h", "needs a host and a port"),
        ("url", "lumberjack://h:1,i:0", "lumberjack://i:0 has port 0"),
        ("url", "lumberjack+tls://h:1?bogus=1", "bogus"),
        ("ca", "/x.pem", "ca is an option of TLS, and no URL is .tls"),
        ("compression", "10", "compression must be a level from 0 to 9 or none, not '10'"),
        ("compression", "fast", "compression must be"),
        ("batch_events", "0", "batch_events must be a number from 1 to 1000000"),
        ("batch_events", "1000001", "batch_events must be a number from 1 to 1000000"),
        ("batch_bytes", "x", "batch_bytes must be a number of bytes"),
        ("max_in_flight", "1001", "max_in_flight must be a number from 1 to 1000"),
        ("timeout", "0", "timeout must be a number from 1 to 86400"),
        ("payload", "xml", "payload must be json or raw"),
        ("metadata", "yes", "metadata must be true or false"),
        ("ignoreNullFields", "1", "ignoreNullFields must be true or false"),
    ],
)
def test_a_refusal_names_the_option(option: str, value: str, text: str) -> None:
    with pytest.raises(AcklineError, match=text):
        check_sink_options({"url": URL} | {option: value})


@pytest.mark.parametrize(
    ("url", "option", "text"),
    [
        ("bpmux://h:1", "compression", "compression is an option of windows, and bpmux://"),
        ("bpmux://h:1", "max_in_flight", "max_in_flight is an option of windows"),
        ("bpmux+tls://h:1", "batch_events", "batch_events is an option of windows"),
        ("bpmux://h:1", "batch_bytes", "batch_bytes is an option of windows"),
        ("bpmux://h:1", "ca", "ca is an option of TLS, and no URL is .tls"),
        ("bpmux://h:0", "timeout", "bpmux://h:0 has port 0"),
        ("bpmux://h", "timeout", "needs a host and a port"),
    ],
)
def test_options_that_bpmux_does_not_use_are_refused(url: str, option: str, text: str) -> None:
    with pytest.raises(AcklineError, match=text):
        check_sink_options({"url": url, option: "1"})


@pytest.mark.parametrize(
    ("url", "option", "text"),
    [
        ("reactive://h:1/p", "compression", "compression is an option of windows, and reactive://"),
        ("reactive+tls://h:1/p", "batch_events", "batch_events is an option of windows"),
        ("reactive://h:1/p", "ca", "ca is an option of TLS, and no URL is .tls"),
        ("reactive://h:1", "timeout", "publisher's name is missing: write reactive://host:port/"),
        ("reactive://h:0/p", "timeout", "reactive://h:0 has port 0"),
        ("reactive://h/p", "timeout", "needs a host and a port"),
        ("reactive://h:1/p,reactive://h:1/q", "timeout", "looks like more than one URL"),
        (URL, "goodbye", "goodbye is an option of reactive://, and receivers of lumberjack://"),
    ],
)
def test_options_that_reactive_does_not_use_are_refused(url: str, option: str, text: str) -> None:
    with pytest.raises(AcklineError, match=text):
        check_sink_options({"url": url, option: "1"})


def test_a_goodbye_that_acknowledges_has_a_reason() -> None:
    given = {"url": "reactive://h:1/p", "goodbye": " done "}
    assert dict(check_sink_options(given).native)["goodbye"] == "done"
    with pytest.raises(UsageError, match="it is empty, and a goodbye without a reason always does"):
        check_sink_options(given | {"goodbye": ""})


def test_files_of_tls_are_looked_at(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with pytest.raises(AcklineError, match=str(missing)):
        check_sink_options({"url": "lumberjack+tls://127.0.0.1:1", "ca": str(missing)})


def test_raw_and_metadata_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="payload=raw leaves events as they are"):
        sink_options({"url": URL, "payload": "raw", "metadata": "true"})


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("65536", 65536), ("2K", 2048), ("1.5 MiB", 3 << 19), ("10MB", 10_000_000), ("1g", 1 << 30)],
)
def test_sizes_are_those_of_the_command_line(text: str, bytes_: int) -> None:
    assert dict(sink_options({"url": URL, "batch_bytes": text}).native)["batch_bytes"] == bytes_
    assert values.size(text) == bytes_


def test_several_urls_are_separated_by_commas() -> None:
    check_sink_options({"url": f"{URL},lumberjack+unix:///run/x.sock,{URL},[::1]:5045"})
    with pytest.raises(AcklineError, match='no protocol "kafka"'):
        check_sink_options({"url": f"{URL},kafka://h:9092"})


def test_several_hosts_are_one_url() -> None:
    check_sink_options({"url": "lumberjack://127.0.0.1:5044,[::1]:5045,logs.example.org:5046"})


def test_rows_without_a_form_are_refused_by_their_path() -> None:
    options = sink_options({"url": URL, "metadata": "true"})
    check_rows(options, schema(a=StringType(), t=TimestampType(), l=ArrayType(LongType())))
    for columns, text in (
        (schema(v=VariantType()), "column v is variant"),
        (schema(a=ArrayType(schema(v=VariantType()))), r"column a\.element\.v is variant"),
        (schema(ackline=LongType()), "a column is named ackline"),
        (StructType([StructField("a", LongType())] * 2), "two columns are named a"),
        (StructType([]), "the frame has no columns"),
        (schema(a=ArrayType(MONTHS)), r"column a\.element is interval year to month, which Spark"),
        (schema(a=ArrayType(NullType(), containsNull=False)), r"column a\.element is void"),
        (schema(s=schema(m=MapType(NullType(), LongType()))), r"column s\.m\.key is void"),
    ):
        with pytest.raises(UsageError, match=text):
            check_rows(options, columns)


def test_raw_wants_one_column_of_text() -> None:
    options = sink_options({"url": URL, "payload": "raw"})
    for columns in (schema(payload=BinaryType()), schema(value=StringType())):
        check_rows(options, columns)
    for columns, text in (
        (schema(payload=LongType()), "column payload is Int64"),
        (schema(message=StringType()), "payload or value, as it is: the frame has message"),
        (schema(value=StringType(), key=StringType()), "the frame has value, key"),
    ):
        with pytest.raises(UsageError, match=text):
            check_rows(options, columns)


def test_overwrite_mode_is_refused() -> None:
    source = AcklineSource({"url": URL})
    with pytest.raises(UsageError, match=r"use \.mode\('append'\)"):
        source.writer(schema(a=LongType()), overwrite=True)
    # A stream in mode complete sends all of its rows in each batch.
    source.streamWriter(schema(a=LongType()), overwrite=True)


def test_rows_are_looked_at_on_the_driver() -> None:
    source = AcklineSource({"url": URL})
    for made in (source.writer, source.streamWriter):
        with pytest.raises(UsageError, match="column v is variant"):
            made(schema(v=VariantType()), overwrite=False)


def test_a_write_without_url_is_told_so() -> None:
    with pytest.raises(UsageError, match="the option url is missing"):
        AcklineSource({}).writer(schema(v=StringType()), overwrite=False)
    for option in ("metadata", "TIMEOUT", "compression"):
        with pytest.raises(UsageError, match="the option url is missing"):
            AcklineSource({option: "true" if option == "metadata" else "3"})
    with pytest.raises(UsageError, match="has no option 'timeout'"):
        AcklineSource({"spool": "/s", "timeout": "3"})


class Cluster:
    """A session whose master is elsewhere, as far as `register` looks."""

    version = "4.3.0"

    def __init__(self) -> None:
        self.registered: list[type] = []
        self.conf = {"spark.master": "spark://h:7077"}
        self.dataSource = self

    def register(self, source: type) -> None:
        self.registered.append(source)


def test_a_session_that_only_writes_may_have_any_master() -> None:
    cluster: Any = Cluster()
    with pytest.raises(UsageError, match="the master is spark://h:7077"):
        ackline.spark.register(cluster)
    assert cluster.registered == []
    ackline.spark.register(cluster, writes_only=True)
    (registered,) = cluster.registered
    assert issubclass(registered, AcklineSource)
