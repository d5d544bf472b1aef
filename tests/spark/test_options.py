"""Accepted and refused values of the options; each refusal names its option."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from ackline.exceptions import UsageError
from ackline.spark import check_master, check_version
from ackline.spark.given import own_options
from ackline.spark.options import batch_options, check_options, stream_options
from ackline.spark.places import At
from ackline.spark.sink_options import check_sink_options
from ackline.spark.source import AcklineSource
from ackline.spark.tasks import TaskOptions

if TYPE_CHECKING:
    from collections.abc import Callable


def test_defaults_of_a_stream() -> None:
    options = stream_options({"spool": "/a"})
    assert options.spools == ("/a",)
    assert options.start == "committed"
    assert (options.consumer, options.max_rows, options.max_bytes) == (None, None, None)
    assert (options.tasks, options.columns) == (TaskOptions(), None)


def test_names_are_read_in_any_case_and_lists_with_blanks() -> None:
    options = stream_options(
        {
            "SPOOL": "/a, /b",
            "maxrowsperbatch": "10",
            "maxBytesPerBatch": "64 MiB",
            "STARTINGPOSITION": "Latest",
            "columns": "payload, position",
            "failOnDataLoss": "TRUE",
        }
    )
    assert options.spools == ("/a", "/b")
    assert (options.max_rows, options.max_bytes, options.start) == (10, 64 << 20, "latest")
    assert options.columns == ("payload", "position")


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("failOnDataLoss", "maybe", "failOnDataLoss must be true or false"),
        ("startingPosition", "timestamp:3", "committed, earliest or latest"),
        ("maxRowsPerBatch", "0", "maxRowsPerBatch must be a number from 1 to 1000000000000000"),
        ("maxBytesPerBatch", "64 XB", "maxBytesPerBatch must be a number of bytes"),
        ("maxPartitions", "-1", "maxPartitions must be"),
        ("minPartitions", "0", "minPartitions must be a number from 1 to 100000"),
        ("maxRecordsPerPartition", "x", "maxRecordsPerPartition must be"),
        ("readMemory", "much", "readMemory must be a number of bytes"),
        ("readMemory", "4095KiB", "readMemory must be at least 4194304 .4MiB., not 4193280"),
        ("columns", "payload,body", "no column 'body'"),
        ("columns", "payload,payload", "each once"),
        ("repeats", "drop", "repeats must be mark or skip"),
        ("digest", "16", "digest must be true or false"),
        ("consumer", "", "consumer must have a name"),
        ("spool", "", "the option spool is missing"),
        ("spool", "/a,/a", "twice"),
        ("spool", "s3://x", "a directory of this machine"),
        ("table", "rows", "table must be events or quarantine"),
        ("listen", "", "listen must name a URL"),
        ("connect", "", "connect must name a URL"),
        ("connect", "reactive://x:1/n", "connect needs exactly one spool, .* and a consumer"),
        ("listen", "lumberjack://x", "listen needs exactly one spool, .* and a consumer"),
        ("ack", "durable", "ack is for the receiver that the option listen or connect starts"),
        (
            "receiver.max_connections",
            "5",
            "is for the receiver that the option listen or connect starts",
        ),
        ("startingTimestamp", "yesterday", "startingTimestamp must be a time, such as"),
        ("startingTimestamp", "1700000000", "1700000000 milliseconds are the year 1970"),
        ("startingTimestamp", "2026-11-21 16:00:00", "startingTimestamp needs its zone"),
        ("startingTimestamp", "2026-13-21T16:00:00Z", "startingTimestamp: .* is no time"),
        ("endingTimestamp", "2026-11-21T16:00:00Z", "no option 'endingTimestamp'"),
    ],
)
def test_a_refusal_names_the_option(option: str, value: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        stream_options({"spool": "/s"} | {option: value})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("maxRows", "maxRowsPerBatch"),
        ("maxrowperbatch", "maxRowsPerBatch"),
        ("startingPositions", "startingPosition"),
        ("failOnDataLos", "failOnDataLoss"),
        ("spol", "spool"),
        ("consumers", "consumer"),
        ("rescuedDataColum", "rescuedDataColumn"),
    ],
)
def test_a_misspelt_option_is_answered_with_the_one_that_is_like_it(given: str, meant: str) -> None:
    text = rf"^readStream.format\('ackline'\) has no option '{given}' \(did you mean {meant}\?\), "
    with pytest.raises(UsageError, match=text):
        stream_options({"spool": "/s", given: "1"})


@pytest.mark.parametrize(
    ("read", "option", "value", "text"),
    [
        (stream_options, "startingOffsets", "newest", "committed, earliest, latest or a JSON obj"),
        (stream_options, "startingOffsets", "{}", "JSON object of spools such as"),
        (stream_options, "startingOffsets", "[1]", "JSON object of spools such as"),
        (stream_options, "startingOffsets", '{"/s":-3}', "startingOffsets of /s must be a pos"),
        (stream_options, "startingOffsets", '{"/s":true}', "startingOffsets of /s must be a pos"),
        (stream_options, "startingOffsets", '{"t":{"0":5}}', r"of t must be .*, not \{\"0\": 5\}"),
        (stream_options, "startingOffsets", '{"/s":1,"/s":2}', "names the spool '/s' twice"),
        (stream_options, "minPartitions", "100001", "minPartitions must be .* from 1 to 100000"),
        (stream_options, "maxRowsPerBatch", "9" * 17, "maxRowsPerBatch must be .* from 1 to 10"),
        (batch_options, "maxRecordsPerPartition", "9" * 5000, "maxRecordsPerPartition must be"),
        (batch_options, "startingOffsets", "committed", "must be earliest, latest or a JSON"),
        (batch_options, "endingOffsets", "earliest", "endingOffsets must be latest or a JSON"),
        (batch_options, "endingOffsets", '{"/s":-2}', "endingOffsets of /s must be a position"),
        (batch_options, "endingOffsetsByTimestamp", "latest", "must be a JSON object of spools"),
        (batch_options, "startingOffsetsByTimestamp", '{"/s":"noon"}', "of /s must be a time"),
        (batch_options, "startingOffsetsByTimestamp", '{"/s":-1}', "or milliseconds since 1970"),
    ],
)
def test_places_are_checked(
    read: Callable[[dict[str, str]], object], option: str, value: str, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        read({"spool": "/s", option: value})


def test_one_option_says_where_a_query_begins() -> None:
    starts = {
        "startingPosition": "latest",
        "startingTimestamp": "2026-11-21T16:00:00Z",
        "startingOffsets": '{"/s":5}',
        "startingOffsetsByTimestamp": '{"/s":5}',
    }
    for one, other in combinations(starts, 2):
        given = {"spool": "/s", one: starts[one], other: starts[other]}
        with pytest.raises(UsageError, match=f"{one} and {other} contradict each other"):
            stream_options(given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"minPartitions": "5", "maxPartitions": "4"},
            r"minPartitions \(5\) is above maxPartitions \(4\)",
        ),
        (
            {"maxRecordsPerPartition": "5", "maxPartitions": "4"},
            "maxRecordsPerPartition and maxPartitions contradict each other",
        ),
    ],
)
def test_numbers_of_tasks_that_contradict_each_other(given: dict[str, str], text: str) -> None:
    for read in (stream_options, batch_options):
        with pytest.raises(UsageError, match=text):
            read({"spool": "/s"} | given)


def test_a_path_is_the_spool_of_a_reader_and_the_url_of_a_writer() -> None:
    table = {"owner": "me", "provider": "ackline", "option.spool": "/s", "spool": "/s"}
    made = {"comment": "c", "external": "true", "collation": "X", "k": "v", "spool": "/other"}
    for given, own in [
        ({"path": "/s"}, {"spool": "/s"}),
        ({"path": "file:/a b", "start": "5"}, {"spool": "/a b", "start": "5"}),
        ({"paths": '["/a","file:///b"]'}, {"spool": "/a,/b"}),
        ({"path": "/s", "spool": "/s "}, {"spool": "/s "}),
        ({"path": "lumberjack://h:1"}, {"url": "lumberjack://h:1"}),
        (table | {"path": "file:/warehouse/t", "location": "file:/warehouse/t"}, {"spool": "/s"}),
        ({"provider": "ackline", "owner": "me", "path": "file:/s"}, {"spool": "/s"}),
        (table | made, {"spool": "/s"}),
        ({"path": "file:/a#b?c%20d"}, {"spool": "/a#b?c%20d"}),
        ({"path": "file:///a%23b"}, {"spool": "/a#b"}),
        ({"path": "file://host/a%20b"}, {"spool": "/a b"}),
    ]:
        assert own_options(given) == own
        assert AcklineSource(given).options == own
    for given, text in [
        ({"path": "/a", "spool": "/b"}, r"load\('/a'\) and the option spool='/b' contradict"),
        ({"path": "/a", "url": "lumberjack://h:1"}, r"save\('/a'\) and the option url="),
    ]:
        with pytest.raises(UsageError, match=text):
            AcklineSource(given)
    with pytest.raises(UsageError, match="has no option 'owner'"):
        AcklineSource({"spool": "/s", "owner": "me"})
    with pytest.raises(UsageError, match=r"keeps none of its options: .* WITH \(spool"):
        AcklineSource({}).schema()
    with pytest.raises(
        UsageError, match=r"no option 'batchEvents' \(did you mean batch_events\?\)"
    ):
        check_sink_options({"url": "lumberjack://h:1", "batchEvents": "5"})


def test_a_batch_takes_positions_and_refuses_options_of_a_stream() -> None:
    options = batch_options({"spool": "/a", "start": "5", "end": "latest"})
    assert (options.start.otherwise, options.end.otherwise) == (At(5), "latest")
    with pytest.raises(UsageError, match="no option 'consumer'"):
        batch_options({"spool": "/a", "consumer": "c"})
    with pytest.raises(UsageError, match="positions of one spool"):
        batch_options({"spool": "/a,/b", "end": "9"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bogus": "1"}, r"^format\('ackline'\) has no option 'bogus', only spool, .*endingTime"),
        ({"bogus": "1", "maxRowsPerBatch": "0"}, "no option 'bogus'"),
        (
            {"maxRowsPerBatch": "0"},
            "^maxRowsPerBatch must be a number from 1 to 1000000000000000, not '0'$",
        ),
        ({"startingPosition": "5"}, "^startingPosition must be committed, earliest or latest"),
        ({"start": "first"}, "^start must be a position or earliest, not 'first'$"),
        (
            {"pushFilters": "true"},
            "^there is no option pushFilters any more: .* start, end, .*columns",
        ),
        ({"table": "rows"}, "^table must be events or quarantine"),
        ({"columns": "body"}, "no column 'body'"),
        ({"spool": ""}, "the option spool is missing"),
        (
            {"maxRowsPerBatch": "5", "start": "5"},
            "^maxRowsPerBatch is an option of readStream alone, start of read alone$",
        ),
    ],
)
def test_an_option_of_neither_stream_nor_batch_is_refused_with_the_better_text(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        check_options({"spool": "/s"} | options)


def test_an_option_of_stream_or_batch_passes() -> None:
    for options in ({}, {"consumer": "c", "maxRowsPerBatch": "5"}, {"start": "5", "end": "7"}):
        check_options({"spool": "/s"} | options)


def test_old_spark_and_clusters_are_refused() -> None:
    check_version("4.2.0")
    with pytest.raises(UsageError, match=r"needs Spark 4\.2 or newer, this is 4\.1\.4"):
        check_version("4.1.4")
    for master in ("local", "local[4]", "local-cluster[2,1,1024]", None):
        check_master(master)
    with pytest.raises(UsageError, match="the master is spark://h:7077"):
        check_master("spark://h:7077")


def test_import_needs_no_pyspark() -> None:
    code = "import ackline.spark, sys; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
