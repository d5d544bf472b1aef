"""Unpromised behaviour of Spark that the source relies on: run with the oldest and newest.

A mark moves when `latestOffset(start)` is called with an offset that a batch ended at. That is the
commit only if Spark never passes an offset there before it stands in its commit log.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from harness import Receiver, numbered, until
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow
from queries import Query, mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)


class Recorder(DataSource):
    """Counts up, and notes each call with the commits that stand in the checkpoint meanwhile."""

    @classmethod
    def name(cls) -> str:
        return "recorder"

    def schema(self) -> str:
        return "n long"

    def streamReader(self, schema: Any) -> RecorderReader:  # noqa: N802 - Spark's name
        del schema
        return RecorderReader(dict(self.options))


class RecorderReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Ends each batch one further, up to a bound."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def note(self, call: str, **offsets: Any) -> None:
        from pathlib import Path

        commits = Path(self.options["checkpoint"], "commits")
        found = sorted(int(file.name) for file in commits.glob("[0-9]*"))
        line = json.dumps({"call": call, "commits": found} | offsets)
        with Path(self.options["log"]).open("a") as log:
            log.write(line + "\n")

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self.note("prepare")

    def getDefaultReadLimit(self) -> ReadAllAvailable:  # noqa: N802 - Spark's name
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        self.note("initial")
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        del limit
        self.note("latest", start=start["n"])
        return {"n": min(start["n"] + 1, int(self.options["most"]))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        self.note("partitions", start=start["n"], end=end["n"])
        return [InputPartition(end["n"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


def calls(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.parametrize("fails_at", [None, 2])
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}])
def test_latest_offset_gets_a_start_only_after_it_was_committed(
    spark: SparkSession, tmp_path: Path, trigger: dict[str, Any], fails_at: int | None
) -> None:
    # Spark's processes cannot import a test.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    log, checkpoint = tmp_path / "calls.jsonl", tmp_path / "checkpoint"
    spark.dataSource.register(Recorder)
    failing = [fails_at]

    def write(frame: DataFrame, number: int) -> None:
        frame.collect()
        if failing[0] == number:
            failing[0] = None
            raise RuntimeError("fails once")

    def run(most: int) -> None:
        frame = spark.readStream.format("recorder").options(
            log=str(log), checkpoint=str(checkpoint), most=str(most)
        )
        query = (
            frame.load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(checkpoint))
            .trigger(**trigger)
            .start()
        )
        done = checkpoint / "commits" / str(most - 1)
        until(lambda: done.exists() or not query.isActive, "all batches, or a failure")
        query.stop()

    run(4)
    run(6)
    run(6)
    found = calls(log)
    assert {call["call"] for call in found} >= {"initial", "latest", "partitions"}
    for call in found:
        # Offset n ended batch n - 1; the initial offset is nobody's end.
        if call["call"] == "latest" and call["start"] > 0:
            assert call["start"] - 1 in call["commits"], f"{call} in Spark {pyspark.__version__}"
    assert max(call["start"] for call in found if call["call"] == "latest") >= 4


def test_the_source_works_with_this_spark(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 500), window=50)
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c", maxRowsPerBatch="200")
    query.drain()
    assert query.positions() == list(range(500))
    assert mark(receiver.spool, "c") == 500
    batch = spark.read.format("ackline").options(spool=str(receiver.spool), end="7").load()
    assert batch.count() == 7
