"""The sink to bpmux on a real Spark: a sink for each partition, closed with its count."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from harness import certificates, numbered, until
from queries import durable
from sinks import drain, ids, start, write
from tally import Opened, Tally

from ackline import _core

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness import Receiver
    from pyspark.sql import DataFrame, SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)


def large(spark: SparkSession) -> DataFrame:
    """One partition of more bytes than a reader gives credit for before it reads."""
    return spark.range(0, 400, 1, 1).selectExpr("id", "repeat('x', 20000) AS text")


def test_each_partition_is_a_sink_that_names_its_origin_and_closes_with_its_count(
    spark: SparkSession,
) -> None:
    # Half of the partitions have no rows.
    frame = spark.range(0, 20_000, 1, 4).where("id < 10000")
    with Tally() as tally:
        write(frame, tally.url)
    assert ids(tally.rows()) == list(range(10_000))
    assert tally.connections == 2, "a partition without rows makes no connection"
    assert sorted(opened.origin["partition"] for opened in tally.whole) == ["0", "1"]
    assert len({opened.origin["query"] for opened in tally.whole}) == 1
    for opened in tally.whole:
        assert list(opened.origin) == ["query", "batch", "partition"]
        assert (opened.origin["batch"], opened.closed) == ("0", b"5000")
        first = int(opened.origin["partition"]) * 5_000
        assert [json.loads(row)["id"] for row in opened.messages] == [*range(first, first + 5_000)]


def test_rows_go_in_the_forms_of_the_other_sinks(spark: SparkSession, tmp_path: Path) -> None:
    with Tally(url=f"bpmux+unix://{tmp_path}/x.sock") as tally:
        frame = spark.createDataFrame([(b"\xff\x00 no text",)], "value binary")
        write(frame, tally.url, payload="raw")
        write(spark.range(1).selectExpr("id", "null AS n"), tally.url, ignoreNullFields="false")
        write(spark.range(2).coalesce(1), tally.url, metadata="true")
    raw, plain, stamped = tally.whole
    assert raw.messages == [b"\xff\x00 no text"]
    assert plain.messages == [b'{"id":0,"n":null}']
    stamps = [json.loads(row)["ackline"] for row in stamped.messages]
    assert [stamp.pop("ordinal") for stamp in stamps] == [0, 1]
    assert [{name: str(value) for name, value in stamp.items()} for stamp in stamps] == [
        stamped.origin,
        stamped.origin,
    ]


def test_a_large_partition_is_more_than_any_credit(spark: SparkSession) -> None:
    with Tally() as tally:
        write(large(spark), tally.url)
    assert [opened.closed for opened in tally.sinks] == [b"400"]
    assert ids(tally.rows()) == list(range(400))


def test_mutual_tls(spark: SparkSession, tmp_path: Path) -> None:
    ca, server, client = (str(path) for path in certificates(tmp_path))
    files = {"ca": ca, "cert": server, "key": server, "client_auth": "required"}
    with Tally(url="bpmux+tls://127.0.0.1:0", **files) as tally:
        own = {"ca": ca, "cert": client, "key": client, "server_name": "logs.example.org"}
        write(spark.range(50), tally.url, **own)
        with pytest.raises(Exception, match="certificate"):
            write(spark.range(50), tally.url, ca=client, timeout="5")
    assert ids(tally.rows()) == list(range(50))


def test_the_receivers_reason_for_a_cancel_is_the_tasks_error(spark: SparkSession) -> None:
    refused = Tally(lambda _opened: b"no room for these")
    with refused as tally, pytest.raises(Exception, match="PeerCancelled") as error:
        write(large(spark), tally.url)
    text = str(error.value)
    assert f'{tally.url}: the peer has cancelled it: "no room for these"' in text
    assert re.search(r"none of the \d+ rows of partition 0 is acknowledged", text)
    assert tally.whole == []


def test_a_lost_connection_fails_the_task_with_the_unacknowledged_count(
    spark: SparkSession,
) -> None:
    broken = Tally(lambda _opened: False)
    with broken as tally, pytest.raises(Exception, match="LinkLost") as error:
        write(large(spark), tally.url, timeout="1")
    text = str(error.value)
    assert "the connection is over" in text
    assert re.search(r"none of the \d+ rows of partition 0 is acknowledged", text)
    assert tally.whole == []


def test_a_lost_connection_is_made_again_and_the_partition_comes_whole(spark: SparkSession) -> None:
    # The first three connections are cut in the middle of the rows.
    with Tally(lambda _opened: tally.connections > 3) as tally:
        write(large(spark), tally.url, timeout="60")
        (whole,) = tally.whole
        assert [json.loads(message)["id"] for message in whole.messages] == list(range(400))
        assert whole.closed == b"400"
        assert len(tally.sinks) == tally.connections == 4
        # A receiver recognises repeated rows.
        assert {opened.opening for opened in tally.sinks} == {whole.opening}


def test_a_partition_of_which_too_much_was_sent_is_not_sent_again(spark: SparkSession) -> None:
    # 100 MB, of which a connection is cut behind the first 66 MiB: the rest is not on its way then.
    rows = spark.range(0, 5_000, 1, 1).selectExpr("id", "repeat('x', 20000) AS text")
    cut = Tally(lambda opened: sum(map(len, opened.messages)) < 66 << 20)
    with cut as tally, pytest.raises(Exception, match="LinkLost") as error:
        write(rows, tally.url, timeout="60")
    text = str(error.value)
    assert "more than 64 MiB of rows were sent, which are not kept to be sent again" in text
    assert (tally.connections, tally.whole) == (1, [])


def test_nobody_there_is_waited_for_and_then_the_tasks_error(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="LinkLost") as error:
        write(spark.range(0, 100, 1, 1), "bpmux://127.0.0.1:1", timeout="1")
    assert "Connection refused" in str(error.value)
    assert "none of the 100 rows of partition 0 is acknowledged" in str(error.value)


def test_a_receiver_that_gives_no_credit_is_given_up_after_the_timeout(
    spark: SparkSession,
) -> None:
    with Tally(credit="manual") as tally, pytest.raises(Exception, match="LinkLost") as error:
        write(spark.range(0, 100, 1, 1), tally.url, timeout="1")
    assert "no credit and no acknowledgement for 1 s" in str(error.value)


# ---- streams ----


def forwarding(spark: SparkSession, spool: Path) -> DataFrame:
    """The rows of a spool in micro-batches of 400."""
    read = spark.readStream.format("ackline")
    options = {"spool": str(spool), "consumer": "c", "maxRowsPerBatch": "400"}
    rows = read.options(**options, maxPartitions="2").load()
    # More bytes in a partition than a reader gives credit for before it reads.
    return rows.selectExpr("position AS id", "repeat(cast(payload as string), 1000) text")


def test_a_stream_goes_on_where_its_checkpoint_stands(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source = receive(tmp_path / "source")
    with Tally() as tally:
        for first, count in ((0, 1_000), (1_000, 300)):
            source.send(numbered(first, count))
            drain(forwarding(spark, source.spool), tmp_path / "checkpoint", tally.url)
    assert ids(tally.rows()) == list(range(1_300))
    assert len(tally.whole) == len(tally.sinks)
    assert len({opened.opening for opened in tally.whole}) == len(tally.whole)
    assert len({opened.origin["query"] for opened in tally.whole}) == 1
    assert {opened.closed for opened in tally.whole} == {
        str(len(opened.messages)).encode() for opened in tally.whole
    }
    assert {int(opened.origin["batch"]) for opened in tally.whole} >= {0, 1, 2, 3}


def test_repeated_rows_are_recognised_by_opening_and_ordinal(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source = receive(tmp_path / "source")
    source.send(numbered(0, 1_000))
    broken: list[str] = []

    def look(opened: Opened) -> bytes | bool:
        # One partition of the second batch, in the middle of its rows.
        if opened.origin["batch"] != "1" or broken:
            return True
        broken.append(opened.opening)
        return b"not now"

    with Tally(look) as tally:
        query = start(forwarding(spark, source.spool), tmp_path / "checkpoint", tally.url)
        with pytest.raises(Exception, match="is acknowledged"):
            query.awaitTermination(100)
        drain(forwarding(spark, source.spool), tmp_path / "checkpoint", tally.url)
    assert len(broken) == 1
    came = [opened for opened in tally.sinks if opened.opening == broken[0]]
    assert len(came) >= 2
    assert [opened.closed is None for opened in came] == [True] * (len(came) - 1) + [False]
    # Every row is there, and is one row by opening and ordinal however often it came.
    rows: dict[tuple[str, int], set[bytes]] = {}
    for opened in tally.sinks:
        for ordinal, message in enumerate(opened.messages):
            rows.setdefault((opened.opening, ordinal), set()).add(message)
    assert all(len(found) == 1 for found in rows.values())
    once = [json.loads(next(iter(found))) for found in rows.values()]
    assert ids(once) == list(range(1_000))
    assert len(tally.rows()) > 1_000


# ---- into a receiver ----


def test_every_row_is_in_the_spool_of_a_receiver_under_its_ordinal(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool", scheme="bpmux")
    frame = spark.range(0, 20_000, 1, 2)
    write(frame, f"bpmux://127.0.0.1:{receiver.port}", metadata="true")
    view = pa.table(_core.Spool(str(receiver.spool)).read())
    found = view.select(["stream", "sequence", "payload", "attributes", "link"]).to_pylist()
    assert ids([json.loads(row["payload"]) for row in found]) == list(range(20_000))
    assert len({(row["link"], row["stream"]) for row in found}) == 2
    for row in found:
        origin = json.loads(row["payload"])["ackline"]
        assert row["sequence"] == origin.pop("ordinal")
        opening = dict(part.split("=") for part in dict(row["attributes"])["bpmux.opening"].split())
        assert opening == {name: str(value) for name, value in origin.items()}


def test_a_receiver_that_is_killed_in_a_batch_has_every_row_in_the_end(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source, sink = receive(tmp_path / "source"), receive(tmp_path / "sink", scheme="bpmux")
    source.send(numbered(0, 1_600))
    frame = forwarding(spark, source.spool)
    to = f"bpmux://127.0.0.1:{sink.port}"
    query = start(frame, tmp_path / "checkpoint", to, timeout="60")
    until(lambda: durable(sink.spool) > 400, "some are kept")
    sink.kill()
    sink.start()
    failed = ""
    try:
        query.awaitTermination(100)
    except Exception as error:  # noqa: BLE001 - whether a task was under way then is chance
        failed = str(error)
    if failed:
        assert "is acknowledged" in failed
        drain(frame, tmp_path / "checkpoint", to, timeout="60")
    columns = ["payload", "sequence", "attributes"]
    view = pa.table(_core.Spool(str(sink.spool)).read(columns=columns))
    rows: dict[tuple[str, int], set[int]] = {}
    for row in view.to_pylist():
        opening = dict(row["attributes"])["bpmux.opening"]
        found = rows.setdefault((opening, row["sequence"]), set())
        found.add(json.loads(row["payload"])["id"])
    # Repeated rows are one row by opening and ordinal.
    assert all(len(found) == 1 for found in rows.values())
    assert sorted(next(iter(found)) for found in rows.values()) == list(range(1_600))
