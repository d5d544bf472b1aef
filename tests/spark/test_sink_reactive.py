"""The sink to Reactive Streams on a real Spark: a stream for each partition, ended by a goodbye."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from harness import HOST, certificates, numbered, until
from queries import durable
from sinks import drain, events, ids, payloads, start, write

from ackline import reactive
from ackline.exceptions import AcklineError, StreamFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness import Receiver
    from pyspark.sql import DataFrame, SparkSession

    Receive = Callable[..., Receiver]
    Meet = Callable[[reactive.Connection], None]

pytestmark = pytest.mark.timeout(240)


def subscriber(receive: Receive, spool: Path, *arguments: str) -> Receiver:
    """A receiver that subscribes to the publisher `rows` of every client."""
    return receive(spool, scheme="reactive", place="/rows", arguments=arguments)


def url(receiver: Receiver, publisher: str = "rows") -> str:
    return f"reactive://{HOST}:{receiver.port}/{publisher}"


def large(spark: SparkSession, count: int) -> DataFrame:
    """One partition of rows of 20 kB."""
    return spark.range(0, count, 1, 1).selectExpr("id", "repeat('x', 20000) AS text")


@contextlib.contextmanager
def listening(meet: Meet) -> Iterator[str]:
    """Listen, and hand each connection to `meet` in a thread of its own; the URL of `rows`."""

    def one(connection: reactive.Connection) -> None:
        with contextlib.suppress(AcklineError):
            meet(connection)

    def accept() -> None:
        for connection in listener:
            threads.append(threading.Thread(target=one, args=[connection]))
            threads[-1].start()

    threads: list[threading.Thread] = []
    with reactive.listen(f"reactive://{HOST}:0") as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        yield f"{listener.url}/rows"
    accepting.join(60)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def taking(taken: list[bytes], reason: str) -> Meet:
    """A subscriber that takes every element and then says goodbye."""

    def meet(connection: reactive.Connection) -> None:
        subscription = connection.subscribe("rows")
        taken.extend(subscription)
        connection.shutdown(reason, timeout=30)

    return meet


def refused(spark: SparkSession, to: str, *, count: int = 100, **options: str) -> str:
    """Write rows in one partition to a sink that fails; the error's text."""
    with pytest.raises(Exception, match="is acknowledged") as error:
        write(spark.range(0, count, 1, 1), to, **options)
    return str(error.value)


def test_each_partition_is_a_stream_and_is_read_back(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = subscriber(receive, tmp_path / "spool")
    # Half of the partitions have no rows, and make no connection.
    write(spark.range(0, 20_000, 1, 4).where("id < 10000"), url(receiver), metadata="true")
    read = spark.read.format("ackline").option("spool", str(receiver.spool)).load()
    rows = read.selectExpr("link", "stream", "sequence", "CAST(payload AS STRING) AS p").collect()
    found = [(row, json.loads(row.p)) for row in rows]
    assert ids([event for _, event in found]) == list(range(10_000))
    assert {row.stream for row in rows} == {"rows"}
    assert len({row.link for row in rows}) == 2
    for row, event in found:
        assert row.sequence == event["ackline"]["ordinal"]
    completed = [line for line in receiver.lines if line.get("code") == "reactive.completed"]
    assert sorted(line["elements"] for line in completed) in ([], [5_000, 5_000])


def test_rows_go_in_the_forms_of_the_other_sinks(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = subscriber(receive, tmp_path / "spool")
    frame = spark.createDataFrame([(b"\xff\x00 no text",)], "value binary")
    write(frame, url(receiver), payload="raw")
    write(spark.range(1).selectExpr("id", "null AS n"), url(receiver), ignoreNullFields="false")
    assert payloads(receiver.spool) == [b"\xff\x00 no text", b'{"id":0,"n":null}']


def test_other_publishers_of_the_receiver_are_rejected(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    # The receiver subscribes to three publishers of every client.
    receiver = receive(tmp_path / "spool", scheme="reactive", place="/a")
    receiver.stop()
    base = f"reactive://{HOST}:{receiver.port}"
    receiver.arguments = (f"{base}/rows", f"{base}/z")
    receiver.start()
    write(spark.range(0, 5_000, 1, 2), url(receiver))
    assert ids(events(receiver.spool)) == list(range(5_000))


def test_more_rows_than_any_demand(spark: SparkSession, receive: Receive, tmp_path: Path) -> None:
    receiver = subscriber(receive, tmp_path / "spool", "--demand", "100")
    write(spark.range(0, 10_000, 1, 2), url(receiver))
    write(large(spark, 400), url(receiver))
    assert ids(events(receiver.spool)) == sorted([*range(10_000), *range(400)])


def test_mutual_tls(spark: SparkSession, receive: Receive, tmp_path: Path) -> None:
    ca, server, client = (str(path) for path in certificates(tmp_path))
    files = ("--ca", ca, "--cert", server, "--key", server, "--client-auth", "required")
    receiver = receive(tmp_path / "spool", scheme="reactive+tls", place="/rows", arguments=files)
    to = f"reactive+tls://{HOST}:{receiver.port}/rows"
    own = {"ca": ca, "cert": client, "key": client, "server_name": "logs.example.org"}
    write(spark.range(50), to, **own)
    assert "certificate" in refused(spark, to, ca=client, timeout="2")
    assert ids(events(receiver.spool)) == list(range(50))


def test_a_unix_socket_names_the_publisher_in_the_query(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    path = tmp_path / "x.sock"
    receiver = receive(tmp_path / "spool", scheme="lumberjack")
    receiver.stop()
    receiver.arguments = (f"reactive+unix://{path}?publisher=rows",)
    receiver.start()
    write(spark.range(50), f"reactive+unix://{path}?publisher=rows")
    assert ids(events(receiver.spool)) == list(range(50))


# ---- without an acknowledgement ----


def test_a_wrong_publisher_is_named_at_once(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = subscriber(receive, tmp_path / "spool")
    text = refused(spark, url(receiver, "orders"))
    assert 'has not subscribed to "orders"' in text
    assert 'the peer has subscribed to ["rows"]' in text
    assert "none of the 100 rows of partition 0 is acknowledged" in text


def test_nobody_there_is_waited_for(spark: SparkSession) -> None:
    assert "Connection refused" in refused(spark, f"reactive://{HOST}:1/rows", timeout="1")


@pytest.mark.parametrize(
    ("subscribes", "says"),
    [
        ((), 'no subscription to "rows" for 1 s;'),
        (("a", "b"), 'no subscription to "rows" for 1 s; the peer has subscribed to ["a", "b"]'),
    ],
)
def test_a_peer_that_does_not_subscribe_is_given_up(
    spark: SparkSession, subscribes: tuple[str, ...], says: str
) -> None:
    def meet(connection: reactive.Connection) -> None:
        for publisher in subscribes:
            with pytest.raises(StreamFailed, match='only "rows" is published here'):
                connection.subscribe(publisher)
        connection.wait_ended(timeout=60)

    with listening(meet) as to:
        assert says in refused(spark, to, timeout="1")


def test_a_subscriber_without_demand_is_given_up(spark: SparkSession) -> None:
    def meet(connection: reactive.Connection) -> None:
        subscription = connection.subscribe("rows", demand=10, automatic=False)
        connection.wait_ended(timeout=60)
        del subscription

    with listening(meet) as to:
        assert "no demand for 1 s" in refused(spark, to, timeout="1")


def test_a_cancel_is_the_tasks_error(spark: SparkSession) -> None:
    def meet(connection: reactive.Connection) -> None:
        subscription = connection.subscribe("rows", demand=10)
        subscription.receive(timeout=30)
        subscription.cancel()
        connection.wait_ended(timeout=60)

    with listening(meet) as to:
        text = refused(spark, to, count=10_000)
    assert "PeerCancelled" in text
    assert "the subscriber has cancelled the subscription; none of the 8192 rows" in text


def test_a_goodbye_in_the_middle_is_the_tasks_error(spark: SparkSession) -> None:
    def meet(connection: reactive.Connection) -> None:
        subscription = connection.subscribe("rows", demand=10)
        subscription.receive(timeout=30)
        connection.shutdown("out of paper", timeout=30)

    with listening(meet) as to:
        text = refused(spark, to)
    assert "LinkLost" in text
    assert 'said goodbye before the stream was complete: "out of paper"' in text


def test_a_connection_that_ends_without_a_goodbye_is_no_acknowledgement(
    spark: SparkSession,
) -> None:
    taken: list[bytes] = []

    def meet(connection: reactive.Connection) -> None:
        taken.extend(connection.subscribe("rows"))
        connection.abort()

    with listening(meet) as to:
        text = refused(spark, to)
    assert len(taken) == 100, "the stream was complete"
    assert "LinkLost" in text
    assert "the connection is over" in text


def test_a_subscriber_that_stays_is_no_acknowledgement(spark: SparkSession) -> None:
    def meet(connection: reactive.Connection) -> None:
        list(connection.subscribe("rows"))
        connection.wait_ended(timeout=60)

    with listening(meet) as to:
        text = refused(spark, to, timeout="1")
    assert "the stream is complete, and no goodbye for 1 s" in text


def test_the_reason_of_a_goodbye_decides(spark: SparkSession) -> None:
    taken: list[bytes] = []
    with listening(taking(taken, "all in the table")) as to:
        text = refused(spark, to)
        assert "goodbye does not say that the rows are kept: " in text
        assert "all in the table" in text
        write(spark.range(100), to, goodbye="all in the table")
    assert len(taken) == 200
    with listening(taking(taken, "")) as to:
        write(spark.range(100), to)


def test_a_receiver_that_finds_a_fault_has_acknowledged_nothing(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    # The whole partition is on its way before the receiver refuses its last row.
    receiver = subscriber(receive, tmp_path / "spool", "--max-element-bytes", "100")
    frame = spark.range(0, 100, 1, 1).selectExpr("id", "repeat('x', cast(id + 20 AS int)) AS text")
    with pytest.raises(Exception, match="none of the 100 rows of partition 0") as error:
        write(frame, url(receiver))
    assert "is above 100, which is the limit of this end" in str(error.value)


def test_rows_that_wait_for_a_commit_are_not_acknowledged(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = subscriber(receive, tmp_path / "spool", "--ack", "committed=late")
    text = refused(spark, url(receiver), timeout="2")
    assert "the stream is complete, and no goodbye for 2 s" in text
    assert durable(receiver.spool) == 100


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_receiver_that_ends_in_the_middle_fails_the_write(
    spark: SparkSession, receive: Receive, tmp_path: Path, end: str
) -> None:
    receiver = subscriber(receive, tmp_path / "spool", "--demand", "64")
    rows = spark.range(0, 100_000, 1, 1).selectExpr("id", "repeat('x', 1000) AS text")

    def end_it() -> None:
        until(lambda: durable(receiver.spool) > 100, "some are kept")
        getattr(receiver, end)()

    # Spark knows the sink in the thread that registered it.
    ending = threading.Thread(target=end_it)
    ending.start()
    with pytest.raises(Exception, match=r"LinkLost|PeerCancelled") as error:
        write(rows, url(receiver), timeout="60")
    ending.join(60)
    text = str(error.value)
    assert re.search(r"none of the \d+ rows of partition 0 is acknowledged", text)
    assert durable(receiver.spool) < 100_000


# ---- streams ----


def forwarding(spark: SparkSession, spool: Path) -> DataFrame:
    """The rows of a spool in micro-batches of 400."""
    read = spark.readStream.format("ackline")
    options = {"spool": str(spool), "consumer": "c", "maxRowsPerBatch": "400"}
    rows = read.options(**options, maxPartitions="2").load()
    return rows.selectExpr("position AS id", "repeat(cast(payload as string), 100) text")


def test_a_stream_goes_on_where_its_checkpoint_stands(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source = receive(tmp_path / "source")
    sink = subscriber(receive, tmp_path / "sink")
    for first, count in ((0, 1_000), (1_000, 300)):
        source.send(numbered(first, count))
        drain(forwarding(spark, source.spool), tmp_path / "checkpoint", url(sink))
    assert ids(events(sink.spool)) == list(range(1_300))


def test_a_batch_that_failed_comes_again_and_its_rows_are_recognised(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source = receive(tmp_path / "source")
    source.send(numbered(0, 1_000))
    came: list[dict[str, Any]] = []
    connections: list[int] = []

    def meet(connection: reactive.Connection) -> None:
        # The third connection is cut in the middle of its rows.
        connections.append(len(connections))
        is_cut = len(connections) == 3
        for element in connection.subscribe("rows", demand=50):
            came.append(json.loads(element))
            if is_cut and len(came) % 100 == 99:
                connection.abort()
        connection.shutdown("", timeout=30)

    with listening(meet) as to:
        frame = forwarding(spark, source.spool)
        query = start(frame, tmp_path / "checkpoint", to, metadata="true")
        with pytest.raises(Exception, match="is acknowledged"):
            query.awaitTermination(100)
        drain(frame, tmp_path / "checkpoint", to, metadata="true")
    assert len(came) > 1_000
    rows: dict[str, set[int]] = {}
    for event in came:
        rows.setdefault(json.dumps(event["ackline"]), set()).add(event["id"])
    assert all(len(found) == 1 for found in rows.values())
    assert sorted(next(iter(found)) for found in rows.values()) == list(range(1_000))
