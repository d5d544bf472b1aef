"""The sink to Relink on a real Spark: one transaction for each partition and batch."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from harness import certificates, numbered, until
from ledger import TRANSACTIONS, Ledger
from queries import durable
from sinks import drain, events, ids, listening, start, url_of, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness import Receiver
    from pyspark.sql import DataFrame, SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)


def origins(found: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(event["ackline"].values()) for event in found)


def test_rows_of_all_partitions_are_there_once_with_their_origin(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = listening(receive, tmp_path / "spool")
    # Half of the partitions have no rows.
    frame = spark.range(0, 20_000, 1, 4).where("id < 10000")
    write(frame, url_of(receiver), metadata="true")
    found = events(receiver.spool)
    assert ids(found) == list(range(10_000))
    assert set(origins(found).values()) == {1}
    for event in found:
        origin = event["ackline"]
        assert (origin["batch"], origin["ordinal"]) == (0, event["id"] % 5_000)
        assert origin["partition"] == event["id"] // 5_000
    assert len({event["ackline"]["query"] for event in found}) == 1


def test_no_rows_are_no_link(spark: SparkSession) -> None:
    with Ledger() as ledger:
        write(spark.range(0), ledger.url)
        assert (ledger.links, ledger.rows()) == (0, [])


def test_of_a_write_that_fails_in_one_task_nothing_is_seen(
    spark: SparkSession, tmp_path: Path
) -> None:
    fuse = str(tmp_path / "fuse")

    def breaking(batches: Any) -> Any:
        import pathlib
        import time

        for batch in batches:
            yield batch
            deadline = time.monotonic() + 60
            while batch.column(0)[0].as_py() >= 500 and time.monotonic() < deadline:
                if pathlib.Path(fuse).exists():
                    raise RuntimeError("broken midway")
                time.sleep(0.02)

    def done() -> bool:
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numCompletedTasks == 1 for stage in stages)

    def light() -> None:
        until(done, "the other task is done")
        (tmp_path / "fuse").touch()

    frame = spark.range(0, 1_000, 1, 2).mapInArrow(breaking, "id long")
    with Ledger() as ledger:
        lighting = threading.Thread(target=light)
        lighting.start()
        with pytest.raises(Exception, match="broken midway"):
            write(frame, ledger.url)
        lighting.join(60)
        until(lambda: ledger.rolled_back == 500, "the driver rolls back what the other task sent")
        assert ledger.rows() == []


def test_raw_rows_go_over_a_unix_socket_byte_for_byte(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source = receive(tmp_path / "source")
    sent = [*numbered(0, 300), b'{ "a" : 1e2 }', b"\xff\x00 no text"]
    source.send(sent[:-1])
    read = spark.read.format("ackline").options(spool=str(source.spool), maxPartitions="1").load()
    frame = read.orderBy("position").select("payload").coalesce(1)
    with Ledger(url=f"relink+unix://{tmp_path}/x.sock?endpoint=raw") as ledger:
        write(frame, ledger.url, payload="raw")
        assert ledger.committed == sent[:-1]
        write(spark.createDataFrame([(sent[-1],)], "value binary"), ledger.url, payload="raw")
        assert ledger.committed == sent


def test_mutual_tls_and_links_that_belong_to_their_identity(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    ca, server, client = certificates(tmp_path)
    receiver = receive(
        tmp_path / "spool",
        scheme="relink+tls",
        place=f"/t{TRANSACTIONS}",
        arguments=("--cert", server, "--key", server, "--ca", ca, "--client-auth", "required"),
    )
    secure = f"relink+tls://127.0.0.1:{receiver.port}/t"
    frame = spark.range(0, 50, 1, 2)
    files = {"ca": str(ca), "cert": str(client), "key": str(client)}
    write(frame, secure, **files, server_name="logs.example.org")
    write(frame, f"{secure}?ca={ca}&cert={client}&key={client}&server_name=logs.example.org")
    assert Counter(ids(events(receiver.spool))) == dict.fromkeys(range(50), 2)
    with pytest.raises(Exception, match=r"no link: not connected within 5s .*certificate"):
        write(frame, secure, **files, timeout="5")
    assert durable(receiver.spool) == 100


def test_a_connection_that_is_refused_fails_the_task_with_its_place(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    gone = listening(receive, tmp_path / "gone")
    gone.kill()
    with pytest.raises(Exception, match=r"LinkLost: relink://127\.0\.0\.1:\d+/t: no link") as error:
        write(spark.range(0, 100, 1, 1), url_of(gone), timeout="1")
    text = str(error.value)
    assert "refused" in text
    assert "no row of partition 0 is committed" in text


def test_a_listener_without_transactions_is_told_apart(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool", scheme="relink", place="/t")
    with pytest.raises(Exception, match='no endpoint "t", or other channel id sizes or transact'):
        write(spark.range(0, 100, 1, 1), url_of(receiver), timeout="5")


# ---- streams ----


def forwarding(spark: SparkSession, spool: Path, partitions: int = 2) -> DataFrame:
    """The rows of a spool in micro-batches of 400."""
    read = spark.readStream.format("ackline")
    options = {"spool": str(spool), "consumer": "c", "maxRowsPerBatch": "400"}
    rows = read.options(**options, maxPartitions=str(partitions)).load()
    return rows.selectExpr("position AS id", "cast(payload as string) text")


def test_a_stream_goes_on_where_its_checkpoint_stands(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source, sink = receive(tmp_path / "source"), listening(receive, tmp_path / "sink")
    for first, count in ((0, 1_000), (1_000, 300)):
        source.send(numbered(first, count))
        frame = forwarding(spark, source.spool)
        drain(frame, tmp_path / "checkpoint", url_of(sink), metadata="true")
    found = events(sink.spool)
    assert ids(found) == list(range(1_300))
    assert set(origins(found).values()) == {1}
    assert len({event["ackline"]["batch"] for event in found}) >= 4


def test_a_batch_of_which_a_part_was_refused_comes_again_and_is_recognised(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source = receive(tmp_path / "source")
    source.send(numbered(0, 1_000))
    refused: list[int] = []

    def answer(link: int, _rows: list[bytes]) -> bool:
        # One partition of the second batch.
        if link == 4 and not refused:
            refused.append(link)
            return False
        return True

    with Ledger(answer) as ledger:
        # By the row's own number, from one partition: it gives the same ones again.
        frame = forwarding(spark, source.spool, 1).repartition(2, "id")
        query = start(frame, tmp_path / "checkpoint", ledger.url, metadata="true")
        with pytest.raises(Exception, match="was refused by the receiver"):
            query.awaitTermination(100)
        before = ledger.rows()
        assert len(refused) == 1
        assert 400 < len(before) < 800, "one batch, and a part of the next"
        drain(frame, tmp_path / "checkpoint", ledger.url, metadata="true")
        found = ledger.rows()
    assert {row["id"] for row in found} == set(range(1_000))
    assert len(found) == 1_000 + len(before) - 400
    twice = {origin for origin, count in origins(found).items() if count == 2}
    assert {origin[1] for origin in twice} == {1}, "of the batch that was refused in part"
    owners = {tuple(row["ackline"].values()): row["id"] for row in found}
    assert len(owners) == 1_000
    once = spark.createDataFrame(
        [(row["id"], *row["ackline"].values()) for row in found],
        "id long, query string, batch long, partition long, ordinal long",
    ).dropDuplicates(["query", "batch", "partition", "ordinal"])
    assert sorted(row.id for row in once.collect()) == list(range(1_000))
