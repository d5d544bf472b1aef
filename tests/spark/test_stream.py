"""The data source in a real Spark, over spools that a real receiver fills."""

from __future__ import annotations

import json
import shutil
import threading
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import pytest
from harness import Receiver, numbered, until
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType
from queries import Flood, Query, durable, mark

import ackline.spark
from ackline import _core
from ackline.spark import TUNED_SETTINGS
from ackline.spark.columns import Columns
from ackline.spark.options import COLUMNS, stream_options
from ackline.spark.source import StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)
STARTS = ("committed", "earliest", "latest")


def test_tuned_sets_known_settings_of_spark(spark: SparkSession) -> None:
    for name, value in TUNED_SETTINGS.items():
        assert spark.conf.get(name) == value
    manager = TUNED_SETTINGS["spark.sql.streaming.checkpointFileManagerClass"]
    assert spark._jvm.java.lang.Class.forName(manager).getName() == manager


def test_stream_lands_every_event_byte_for_byte(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="table")
    events = numbered(0, 1000)
    running = query.start(processingTime="0 seconds")
    try:
        for first in range(0, 1000, 250):
            receiver.send(events[first : first + 250])
            running.processAllAvailable()
        until(lambda: mark(receiver.spool, "table") == 1000, "the mark follows the last commit")
    finally:
        running.stop()
    assert query.payloads() == events
    assert query.positions() == list(range(1000))
    row = query.rows().orderBy("position").first()
    assert row is not None
    assert row.asDict().keys() == set(COLUMNS)
    assert row.spool == _core.Spool(str(receiver.spool)).uuid
    assert row.protocol == "lumberjack"
    assert row.peer.startswith("127.0.0.1:")
    assert (row.sequence, row.stream, row.parts) == (1, None, None)


@pytest.mark.parametrize("start", STARTS)
def test_nothing_is_lost_when_the_spool_grows_while_the_query_starts(
    spark: SparkSession, receive: Receive, tmp_path: Path, start: str
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 100))
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c", startingPosition=start)
    before = durable(receiver.spool)
    with Flood(receiver):
        running = query.start(processingTime="0 seconds")
        until(lambda: len(query.offsets()) > 2, "three batches")
    running.processAllAvailable()
    running.stop()
    first = next(iter(query.offsets()[0].values()))["from"]
    assert query.positions() == list(range(first, durable(receiver.spool)))
    assert first >= before if start == "latest" else first == 0


@pytest.mark.parametrize("start", STARTS)
def test_batch_0_is_repeated_as_it_was_planned(
    spark: SparkSession, receive: Receive, tmp_path: Path, start: str
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 100))
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c", startingPosition=start)
    # A query that sees its first rows and dies before it commits them, while more come in.
    seen: list[list[int]] = []

    def die(frame: DataFrame, _: int) -> None:
        positions = sorted(row.position for row in frame.select("position").collect())
        if positions or start != "latest":
            seen.append(positions)
            raise RuntimeError("killed between offset and commit")

    dying = (
        query.frame()
        .writeStream.foreachBatch(die)
        .option("checkpointLocation", str(query.checkpoint))
        .start()
    )
    with Flood(receiver):
        until(lambda: not dying.isActive, "the first query dies")
    planned = query.offsets()
    assert seen[0] == range_of(planned[-1:])
    landed: dict[int, list[int]] = {}

    def keep(frame: DataFrame, number: int) -> None:
        landed[number] = sorted(row.position for row in frame.select("position").collect())

    again = (
        query.frame()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(query.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert again.awaitTermination(100)
    assert landed[len(planned) - 1] == seen[0]
    first = next(iter(planned[0].values()))["from"]
    assert sorted(chain.from_iterable(landed.values())) == list(
        range(first, durable(receiver.spool))
    )


def range_of(offsets: list[dict[str, dict[str, int]]]) -> list[int]:
    return [p for batch in offsets for s in batch.values() for p in range(s["from"], s["to"])]


def test_batch_0_without_its_commit_is_planned_again_from_its_offset(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 100))
    query = Query(spark, tmp_path, spool=str(receiver.spool), startingPosition="earliest")
    query.drain()
    for file in list((query.checkpoint / "commits").iterdir()):
        file.unlink()
    shutil.rmtree(query.table)
    receiver.send(numbered(100, 30))
    query.drain()
    assert query.positions() == list(range(130))
    assert [next(iter(batch.values())) for batch in query.offsets()] == [
        {"from": 0, "to": 100},
        {"from": 100, "to": 130},
    ]


def test_checkpoint_newer_than_the_spool_is_refused(
    spark: SparkSession,
    receive: Receive,
    tmp_path: Path,
    replaced: Callable[[Path, Path], None],
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 20))
    receiver.stop()
    shutil.copytree(receiver.spool, tmp_path / "older")
    receiver.start().send(numbered(20, 30))
    query = Query(spark, tmp_path, spool=str(receiver.spool))
    query.drain()
    receiver.stop()
    replaced(receiver.spool, tmp_path / "older")
    text = query.fail()
    assert "spool.behind_checkpoint: the checkpoint stands at position 50" in text
    assert "ends at 20" in text


def test_positions_that_are_gone_end_the_query_with_a_gap(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    small = ("--segment-bytes", "64KiB", "--budget", "512KiB")
    receiver = receive(tmp_path / "spool", arguments=small)
    receiver.send(numbered(0, 20))
    query = Query(spark, tmp_path, spool=str(receiver.spool))
    query.drain()
    view = _core.Spool(str(receiver.spool))
    # Another consumer keeps pace, this query has none: the spool does not wait for it.
    while view.first_kept() <= 20:
        assert view.durable() < 100_000, "a segment is retired"
        receiver.send(numbered(view.durable(), 1000))
        view.commit_mark("other", view.durable())
    text = query.fail()
    assert "spool.gap: the query goes on at position 20 of spool" in text
    assert f"whose first kept position is {view.first_kept()}" in text
    assert query.positions() == list(range(20))


def test_replaced_spool_is_refused_at_start_and_while_the_query_runs(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 20))
    query = Query(spark, tmp_path, spool=str(receiver.spool))
    running = query.start(processingTime="0 seconds")
    running.processAllAvailable()
    receiver.stop()
    receive(tmp_path / "other").stop()
    (tmp_path / "spool").rename(tmp_path / "moved")
    (tmp_path / "other").rename(tmp_path / "spool")
    until(lambda: not running.isActive, "the query ends")
    assert running.exception() is not None
    # Between the two renames there is no spool at all, and the query may have looked then.
    assert "spool." in str(running.exception())
    assert "spool.replaced: the checkpoint counts positions of spool" in query.fail()


def test_available_now_with_limits_leaves_nothing(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 1000), window=30)
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c", maxRowsPerBatch="300")
    query.drain()
    assert query.positions() == list(range(1000))
    sizes = [s["to"] - s["from"] for batch in query.offsets() for s in batch.values()]
    assert len(sizes) >= 4
    assert max(sizes) <= 300
    assert mark(receiver.spool, "c") == 1000


def test_a_batch_may_be_limited_by_bytes(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 400), window=20)
    query = Query(spark, tmp_path, spool=str(receiver.spool), maxBytesPerBatch="8KiB")
    query.drain()
    assert query.positions() == list(range(400))
    assert len(query.offsets()) >= 3


def test_two_spools_are_one_stream(spark: SparkSession, receive: Receive, tmp_path: Path) -> None:
    one, two = receive(tmp_path / "one"), receive(tmp_path / "two")
    one.send(numbered(0, 120))
    two.send(numbered(1000, 80))
    query = Query(
        spark, tmp_path, spool=f"{one.spool},{two.spool}", consumer="c", maxRowsPerBatch="100"
    )
    query.drain()
    two.send(numbered(1080, 20))
    query.drain()
    found = {
        (row.spool, row.position) for row in query.rows().select("spool", "position").collect()
    }
    uuids = [_core.Spool(str(receiver.spool)).uuid for receiver in (one, two)]
    assert found == {(uuids[0], n) for n in range(120)} | {(uuids[1], n) for n in range(100)}
    assert query.rows().count() == 220
    assert [mark(receiver.spool, "c") for receiver in (one, two)] == [120, 100]


def test_columns_are_chosen_by_option_and_by_schema(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 50))

    def batch(**options: str) -> DataFrameReader:
        return spark.read.format("ackline").options(spool=str(receiver.spool), **options)

    chosen = batch(columns="payload, position").load()
    assert chosen.columns == ["payload", "position"]
    assert [row.position for row in chosen.collect()] == list(range(50))
    every = batch().load().schema
    schema = StructType([every["received_at"], every["attributes"]])
    other = batch().schema(schema).load()
    assert other.columns == ["received_at", "attributes"]
    assert all(row.received_at is not None for row in other.collect())
    for name in COLUMNS:
        assert batch(columns=name).load().count() == 50
    query = Query(spark, tmp_path, spool=str(receiver.spool), columns="position,payload")
    query.drain()
    assert query.rows().columns == ["position", "payload"]
    assert query.payloads() == numbered(0, 50)


def test_a_schema_with_another_type_of_payload_is_refused(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    reader = spark.read.format("ackline").option("spool", str(receiver.spool))
    with pytest.raises(Exception, match="payload is a nullable binary, not string"):
        reader.schema(StructType([StructField("payload", StringType())])).load().collect()


def test_batch_equals_stream(spark: SparkSession, receive: Receive, tmp_path: Path) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 300), window=7)
    query = Query(spark, tmp_path, spool=str(receiver.spool))
    query.drain()
    batch = spark.read.format("ackline").option("spool", str(receiver.spool))
    assert by_position(batch.load().collect()) == by_position(query.rows().collect())
    part = batch.options(start="13", end="200", maxPartitions="1").load()
    assert [row.position for row in part.select("position").collect()] == list(range(13, 200))
    assert batch.options(start="300", end="300").load().count() == 0
    with pytest.raises(Exception, match="positions 10 to 301 are not all in spool"):
        batch.options(start="10", end="301").load().count()


def by_position(rows: Iterable[Any]) -> list[Any]:
    return sorted((tuple(row) for row in rows), key=lambda row: row[COLUMNS.index("position")])


def test_mark_moves_only_after_the_commit(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 100))
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c")
    gate = threading.Event()
    during: list[int | None] = []

    def wait(_: DataFrame, __: int) -> None:
        during.append(mark(receiver.spool, "c"))
        assert gate.wait(60)

    running = (
        query.frame()
        .writeStream.foreachBatch(wait)
        .option("checkpointLocation", str(query.checkpoint))
        .start()
    )
    until(lambda: during, "the batch is being worked on")
    receiver.send(numbered(100, 10))
    assert during == [0]
    assert mark(receiver.spool, "c") == 0
    gate.set()
    until(lambda: mark(receiver.spool, "c") == 110, "the mark moves")
    assert during == [0, 100]
    running.stop()


def test_committed_begins_at_the_mark_of_the_consumer(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 50))
    Query(spark, tmp_path / "first", spool=str(receiver.spool), consumer="c").drain()
    receiver.send(numbered(50, 25))
    second = Query(
        spark,
        tmp_path / "second",
        spool=str(receiver.spool),
        consumer="c",
        startingPosition="committed",
    )
    second.drain()
    assert second.positions() == list(range(50, 75))
    other = Query(spark, tmp_path / "other", spool=str(receiver.spool), consumer="d")
    other.drain()
    assert other.positions() == list(range(75))


def test_without_a_consumer_no_mark_is_written(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 50))
    Query(spark, tmp_path, spool=str(receiver.spool)).drain()
    assert list(_core.Spool(str(receiver.spool)).consumers()) == []


def test_a_stream_without_a_consumer_says_so_once(
    receive: Receive, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = receive(tmp_path / "spool")
    reader = StreamReader(stream_options({"spool": str(receiver.spool)}), Columns(("position",)))
    offset = reader.initialOffset()
    for _ in range(3):
        offset = reader.latestOffset(offset, ReadAllAvailable())
    assert caplog.text.count("has no option consumer") == 1


def test_progress_reports_the_latest_offset(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 50))
    running = Query(spark, tmp_path, spool=str(receiver.spool)).start(processingTime="0 seconds")
    running.processAllAvailable()
    running.stop()
    sources = [source for progress in running.recentProgress for source in progress["sources"]]
    latest = sources[0]["latestOffset"]
    offset = json.loads(latest) if isinstance(latest, str) else latest
    (held,) = offset["spools"].values()
    assert held == {
        "from": 0,
        "to": 50,
        "path": str(receiver.spool),
        "rows_behind": 0,
        "seconds_behind": 0,
    }


def test_async_progress_tracking_is_refused(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c")
    with Flood(receiver):
        running = (
            query.frame()
            .writeStream.format("noop")
            .option("checkpointLocation", str(query.checkpoint))
            .option("asyncProgressTrackingEnabled", "true")
            .start()
        )
        until(lambda: not running.isActive, "the query is refused")
    assert "does not work with asyncProgressTrackingEnabled" in str(running.exception())


def test_continuous_is_refused(spark: SparkSession, receive: Receive, tmp_path: Path) -> None:
    receiver = receive(tmp_path / "spool")
    frame = Query(spark, tmp_path, spool=str(receiver.spool)).frame()
    writer = frame.writeStream.format("noop").trigger(continuous="1 second")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=r"(?i)continuous"):
        writer.start().awaitTermination(60)


def test_a_stream_without_rows_resolves_latest_once(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 40))
    query = Query(spark, tmp_path, spool=str(receiver.spool), startingPosition="latest")
    query.drain()
    receiver.send(numbered(40, 10))
    query.drain()
    assert query.positions() == list(range(40, 50))


def test_tasks_follow_the_options_and_the_cores_of_the_session(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 900), window=900)

    def sizes(**options: str) -> list[int]:
        read = spark.read.format("ackline").options(spool=str(receiver.spool), **options).load()
        return sorted(row["count"] for row in read.groupBy(spark_partition_id()).count().collect())

    assert sizes() == [900]
    assert sizes(minPartitions="3") == [300] * 3
    assert sizes(maxRecordsPerPartition="500") == [450] * 2
    assert ackline.spark.cores_of(spark) == 2


@pytest.mark.parametrize(
    ("master", "cores"), [("local-cluster[3, 2,1024]", 6), ("local-cluster[1,1,512]", 1)]
)
def test_the_cores_of_a_cluster_are_known_before_its_executors_are_there(
    master: str, cores: int
) -> None:
    class Conf:
        def get(self, name: str) -> str:
            assert name == "spark.master"
            return master

    class Session:
        conf = Conf()

    assert ackline.spark.cores_of(cast("SparkSession", Session())) == cores
