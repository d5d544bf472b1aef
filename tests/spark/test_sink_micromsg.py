"""The sink to MicroMsg2 on a real Spark: messages with destinations and properties of columns."""

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from harness import HOST, certificates, numbered, until
from inbox import Inbox, Mute
from queries import durable
from sinks import drain, events, ids, start, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness import Receiver
    from pyspark.sql import DataFrame, SparkSession

    from ackline import micromsg

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)


def receiving(receive: Receive, spool: Path, *arguments: str) -> Receiver:
    return receive(spool, scheme="micromsg", arguments=arguments)


def url(receiver: Receiver, destination: str = "rows") -> str:
    return f"micromsg://{HOST}:{receiver.port}/{destination}"


def failed(frame: DataFrame, to: str, **options: Any) -> str:
    """Write to a sink that fails; the error's text."""
    with pytest.raises(Exception, match=r"LinkLost|UsageError") as error:
        write(frame, to, **options)
    return str(error.value)


def typed(spark: SparkSession) -> DataFrame:
    return spark.range(0, 1, 1, 1).selectExpr(
        "CAST(-8 AS TINYINT) AS byte",
        "9223372036854775807 AS long",
        "CAST(0.1 AS FLOAT) AS float",
        "2D AS double",
        "CAST('1234567890123.45' AS DECIMAL(20, 2)) AS decimal",
        "CAST(12 AS DECIMAL(9, 0)) AS units",
        "TIMESTAMP '2026-11-21 10:00:00.000001Z' AS `seen-at`",
        "DATE '1969-12-31' AS day",
        "'Grüße, ;:=%' AS text",
        "true AS flag",
        "CAST(NULL AS INT) AS nothing",
        "map('region', 'eu', 'zone', NULL, 'az', '') AS tags",
        "id",
    )


# ---- destinations and properties ----


def test_each_type_of_column_has_its_property(spark: SparkSession) -> None:
    frame = typed(spark)
    names = [name for name in frame.columns if name != "id"]
    with Inbox() as inbox:
        write(frame, f"{inbox.url}/rows", **{"micromsg.properties": ",".join(names)})
    (message,) = inbox.acknowledged
    assert (message.destination, message.payload) == ("rows", b'{"id":0}')
    assert message.raw_properties == (
        "byte:N-8;long:N9223372036854775807;float:N0.1;double:N2.0;decimal:N1234567890123.45;"
        "units:N12;seen-at:D1795255200.000001;day:D-86400.0;"
        "text:TGr%C3%BC%C3%9Fe%2C%20%3B%3A%3D%25;flag:Ttrue;region:Teu;az:T;"
    )
    assert message.properties["seen-at"] == datetime(2026, 11, 21, 10, 0, 0, 1, UTC)


def test_destinations_come_from_a_column_and_properties_have_other_names(
    spark: SparkSession,
) -> None:
    frame = spark.range(0, 6, 1, 2).selectExpr(
        "id", "concat('rooms/', id % 2) AS destination", "id % 3 AS `Log Level`"
    )
    with Inbox() as inbox:
        write(frame, inbox.url, **{"micromsg.properties": "log-level = `Log Level`"})
        chosen = {"micromsg.destination": "to", "micromsg.properties": "to,destination"}
        write(
            frame.withColumnRenamed("Log Level", "to").selectExpr(
                "id", "destination", "string(to) to"
            ),
            inbox.url,
            **chosen,
        )
    found = [
        (row["id"], m.destination, m.raw_properties)
        for row, m in zip(inbox.rows(), inbox.acknowledged, strict=True)
    ]
    named = [(n, f"rooms/{n % 2}", f"log-level:N{n % 3};") for n in range(6)]
    other = [(n, f"{n % 3}", f"to:T{n % 3};destination:Trooms%2F{n % 2};") for n in range(6)]
    assert sorted(found[:6]) == named
    assert sorted(found[6:]) == other
    assert {message.payload for message in inbox.acknowledged} == {
        b'{"id":%d}' % n for n in range(6)
    }


def test_rows_go_in_the_forms_of_the_other_sinks(spark: SparkSession) -> None:
    raw = spark.createDataFrame([(b"\xff\x00 no text", 7)], "value binary, level int")
    with Inbox() as inbox:
        write(raw, f"{inbox.url}/r", payload="raw", **{"micromsg.properties": "level"})
        plain = spark.range(1).selectExpr("id", "null AS n")
        write(plain, f"{inbox.url}/r", ignoreNullFields="false")
        write(spark.range(1), f"{inbox.url}/r", **{"micromsg.properties": "id"})
        write(spark.range(2).coalesce(1), f"{inbox.url}/r", metadata="true")
    found = [(message.raw_properties, message.payload) for message in inbox.acknowledged]
    assert found[:3] == [
        ("level:N7;", b"\xff\x00 no text"),
        ("", b'{"id":0,"n":null}'),
        ("id:N0;", b"{}"),
    ]
    stamps = [json.loads(payload)["ackline"] for _, payload in found[3:]]
    assert [(stamp["partition"], stamp["ordinal"]) for stamp in stamps] == [(0, 0), (0, 1)]
    # The peer adds subscriptions.
    of_raw, of_json = ["batch-ack", "ack", "pub-sub"], ["batch-ack", "ack", "json", "pub-sub"]
    assert inbox.extensions[:2] == [of_raw, of_json]


def test_each_partition_has_a_connection(spark: SparkSession) -> None:
    # Half of the partitions have no rows.
    with Inbox() as inbox:
        write(spark.range(0, 20_000, 1, 4).where("id < 10000"), f"{inbox.url}/rows")
    assert ids(inbox.rows()) == list(range(10_000))
    assert inbox.connections == 2, "a partition without rows makes no connection"


# ---- acknowledgements ----


def test_rows_that_are_not_acknowledged_are_sent_again(spark: SparkSession) -> None:
    # Each of the first three connections is cut when some of its messages are acknowledged.
    cuts: list[int] = []

    def look(messages: list[micromsg.Message]) -> bool:
        if len(cuts) < 3 and messages[0].position > 1:
            cuts.append(messages[0].position)
            return False
        return True

    with Inbox(look) as inbox:
        rows = spark.range(0, 20_000, 1, 1)
        write(rows, f"{inbox.url}/rows", **{"connect.window": "500"})
    came = [json.loads(message.payload)["id"] for message in inbox.messages]
    assert sorted(set(came)) == list(range(20_000))
    assert inbox.connections == 4
    # At most the window of each cut connection came twice, and nothing acknowledged did.
    assert len(came) - 20_000 <= 3 * 500
    acknowledged = [row["id"] for row in inbox.rows()]
    assert acknowledged == list(range(20_000)), "in order, and each once"


def test_a_peer_of_ack_has_one_row_at_a_time(spark: SparkSession) -> None:
    most: list[int] = []

    def look(messages: list[micromsg.Message]) -> bool:
        most.append(len(messages))
        return True

    with Inbox(look, required_extensions="ack") as inbox:
        write(spark.range(0, 200, 1, 1), f"{inbox.url}/rows")
    assert [row["id"] for row in inbox.rows()] == list(range(200))
    assert set(most) == {1}
    assert inbox.extensions[0][0] == "ack"


def test_a_peer_without_acknowledgements_is_refused(spark: SparkSession) -> None:
    with Mute() as mute:
        text = failed(spark.range(0, 100, 1, 1), f"{mute.url}/rows")
    assert "the peer agrees on no acknowledgements, neither batch-ack nor ack" in text
    assert "0 of the 100 rows of partition 0 that were read are acknowledged" in text


def test_a_peer_that_refuses_the_handshake_is_the_tasks_error(spark: SparkSession) -> None:
    with Inbox(required_extensions="x-trace") as inbox:
        text = failed(spark.range(0, 100, 1, 1), f"{inbox.url}/rows")
    assert "x-trace" in text
    assert "LinkLost" in text


def test_a_peer_that_acknowledges_nothing_more_is_given_up(spark: SparkSession) -> None:
    with Inbox(lambda messages: messages[-1].position <= 100 or None, window=100) as inbox:
        text = failed(spark.range(0, 5_000, 1, 1), f"{inbox.url}/rows", timeout="1")
    assert "no acknowledgement for 1 s; 100 of the 5000 rows of partition 0" in text
    assert len(inbox.messages) == 200


def test_nobody_there_is_waited_for(spark: SparkSession) -> None:
    text = failed(spark.range(0, 100, 1, 1), f"micromsg://{HOST}:1/rows", timeout="1")
    assert "Connection refused" in text
    assert "0 of the 100 rows of partition 0 that were read are acknowledged" in text


def test_large_rows_wait_for_acknowledgements_by_their_bytes(spark: SparkSession) -> None:
    rows = spark.range(0, 40, 1, 1).selectExpr("id", "repeat('x', 4000000) AS text")
    go = threading.Event()

    def look(_messages: list[micromsg.Message]) -> bool | None:
        # The window is 1,000 rows, and 64 MiB of rows are on their way at the most.
        if len(inbox.messages) >= 16:
            go.set()
        return go.is_set() or None

    with Inbox(look) as inbox:
        write(rows, f"{inbox.url}/rows", timeout="60")
    assert ids(
        inbox.rows()
        if len(inbox.acknowledged) == 40
        else [json.loads(message.payload) for message in inbox.messages]
    ) == list(range(40))


# ---- into a receiver ----


def test_rows_are_read_back_with_their_properties(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receiving(receive, tmp_path / "spool")
    frame = spark.range(0, 10_000, 1, 2).selectExpr(
        "id", "id % 7 AS level", "IF(id % 2 = 0, 'eu', NULL) AS region", "'x' AS note"
    )
    write(frame, url(receiver), **{"micromsg.properties": "level,region"})
    read = spark.read.format("ackline").option("spool", str(receiver.spool))
    found = read.schema("stream STRING, attributes MAP<STRING, STRING>, id BIGINT, note STRING")
    rows = found.load().orderBy("id").collect()
    assert [row.id for row in rows] == list(range(10_000))
    for row in rows:
        assert (row.stream, row.note) == ("rows", "x")
        assert row.attributes["level"] == str(row.id % 7)
        assert row.attributes.get("region") == ("eu" if row.id % 2 == 0 else None)


def test_mutual_tls(spark: SparkSession, receive: Receive, tmp_path: Path) -> None:
    ca, server, client = (str(path) for path in certificates(tmp_path))
    files = ("--ca", ca, "--cert", server, "--key", server, "--client-auth", "required")
    receiver = receive(tmp_path / "spool", scheme="micromsg+tls", arguments=files)
    to = f"micromsg+tls://{HOST}:{receiver.port}/rows"
    own = {"ca": ca, "cert": client, "key": client, "server_name": "logs.example.org"}
    write(spark.range(50), to, **own)
    assert "certificate" in failed(spark.range(50), to, ca=client, timeout="2")
    assert ids(events(receiver.spool)) == list(range(50))


def test_a_unix_socket_names_the_destination_in_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Inbox(url=f"micromsg+unix://{tmp_path}/x.sock") as inbox:
        write(spark.range(50), f"micromsg+unix://{tmp_path}/x.sock?topic=a%2Fb")
    assert ids(inbox.rows()) == list(range(50))
    assert {message.destination for message in inbox.acknowledged} == {"a/b"}


def test_a_receiver_that_is_killed_has_every_acknowledged_row_and_gets_the_others_again(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receiving(receive, tmp_path / "spool")
    rows = spark.range(0, 60_000, 1, 1).selectExpr("id", "repeat('x', 200) AS text")
    ended: list[str] = []

    def kill() -> None:
        for _ in range(3):
            kept = durable(receiver.spool)
            until(lambda kept=kept: durable(receiver.spool) > kept + 100, "some are kept")
            receiver.kill()
            receiver.start()
            ended.append("killed")

    # Spark knows the sink in the thread that registered it.
    killing = threading.Thread(target=kill)
    killing.start()
    write(rows, url(receiver), timeout="60")
    killing.join(60)
    assert ended
    assert sorted(set(ids(events(receiver.spool)))) == list(range(60_000))


def test_rows_that_wait_for_a_commit_are_not_acknowledged(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receiving(receive, tmp_path / "spool", "--ack", "committed=late")
    text = failed(spark.range(0, 100, 1, 1), url(receiver), timeout="2")
    assert "no acknowledgement for 2 s; 0 of the 100 rows" in text
    assert durable(receiver.spool) == 100


# ---- streams ----


def forwarding(spark: SparkSession, spool: Path) -> DataFrame:
    """The rows of a spool in micro-batches of 400."""
    read = spark.readStream.format("ackline")
    options = {"spool": str(spool), "consumer": "c", "maxRowsPerBatch": "400"}
    rows = read.options(**options, maxPartitions="2").load()
    return rows.selectExpr("position AS id", "position % 5 AS level", "payload AS text")


def test_a_stream_goes_on_where_its_checkpoint_stands(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source = receive(tmp_path / "source")
    sink = receiving(receive, tmp_path / "sink")
    own = {"micromsg.properties": "level"}
    for first, count in ((0, 1_000), (1_000, 300)):
        source.send(numbered(first, count))
        frame = forwarding(spark, source.spool)
        drain(frame, tmp_path / "checkpoint", url(sink), **own)
    assert ids(events(sink.spool)) == list(range(1_300))


def test_a_batch_that_failed_comes_again_and_its_rows_are_recognised(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source = receive(tmp_path / "source")
    source.send(numbered(0, 1_000))
    broken = threading.Event()

    def look(_messages: list[micromsg.Message]) -> bool | None:
        return None if broken.is_set() and len(inbox.acknowledged) >= 500 else True

    broken.set()
    with Inbox(look, window=50) as inbox:
        frame = forwarding(spark, source.spool)
        own = {"metadata": "true", "timeout": "2"}
        query = start(frame, tmp_path / "checkpoint", f"{inbox.url}/rows", **own)
        with pytest.raises(Exception, match="are acknowledged"):
            query.awaitTermination(100)
        broken.clear()
        drain(frame, tmp_path / "checkpoint", f"{inbox.url}/rows", **own)
    came = inbox.rows()
    assert len(came) > 1_000
    rows: dict[str, set[int]] = {}
    for event in came:
        rows.setdefault(json.dumps(event["ackline"]), set()).add(event["id"])
    assert all(len(found) == 1 for found in rows.values())
    assert sorted(next(iter(found)) for found in rows.values()) == list(range(1_000))


def test_a_row_that_cannot_be_sent_is_named(spark: SparkSession) -> None:
    frame = spark.range(0, 100, 1, 1).selectExpr("id", "IF(id = 70, 'ä', 'a') AS destination")
    with Inbox() as inbox:
        text = failed(frame, inbox.url)
    assert re.search(r'row 70 of partition 0: column destination is "ä": a destination has', text)
