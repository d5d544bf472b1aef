"""Queries for the Spark tests, and senders that do not pause."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from harness import Receiver, numbered
from pyspark.errors import StreamingQueryException

from ackline import _core
from ackline.spark.source import AcklineSource
from ackline.spark.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

OF_PYTHON = "ackline_of_python"


class Query:
    """One query's options, checkpoint and Parquet table, to be run any number of times."""

    def __init__(
        self, spark: SparkSession, directory: Path, source: str = "ackline", **options: str
    ) -> None:
        self.spark = spark
        self.source = source
        self.table = directory / "table"
        self.checkpoint = directory / "checkpoint"
        self.options = options

    def frame(self) -> DataFrame:
        return self.spark.readStream.format(self.source).options(**self.options).load()

    def start(self, **trigger: Any) -> StreamingQuery:
        return (
            self.frame()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**trigger)
            .start(str(self.table))
        )

    def drain(self) -> None:
        """Take all that is there, in as many batches as the limits want."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(100), "the query drains"

    def fail(self) -> str:
        """Run and return the text with which the query ends."""
        query = self.start(availableNow=True)
        with pytest.raises(StreamingQueryException) as error:
            query.awaitTermination(100)
        return str(error.value)

    def rows(self) -> DataFrame:
        return self.spark.read.parquet(str(self.table))

    def positions(self) -> list[int]:
        return sorted(row.position for row in self.rows().select("position").collect())

    def payloads(self) -> list[bytes]:
        ordered = self.rows().select("payload").orderBy("position")
        return [bytes(row.payload) for row in ordered.collect()]

    def offsets(self) -> list[dict[str, dict[str, int]]]:
        """Return the spools' ranges of each batch, as the checkpoint has them."""
        files = sorted(self.checkpoint.glob("offsets/[0-9]*"), key=lambda path: int(path.name))
        spools = [json.loads(file.read_text().splitlines()[2])["spools"] for file in files]
        return [
            {uuid: {"from": s["from"], "to": s["to"]} for uuid, s in batch.items()}
            for batch in spools
        ]


def register_python(spark: SparkSession) -> None:
    """Register the source in Python by a name that the jar does not have."""

    # Spark's workers know no class of a test's module.
    class OfPython(AcklineSource):
        @classmethod
        def name(cls) -> str:
            return OF_PYTHON

    spark.dataSource.register(OfPython)


@contextmanager
def watched(spark: SparkSession) -> Iterator[None]:
    """Listen to the queries of a session, as `register` does without the jar."""
    listener = Watch()
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


def durable(spool: Path) -> int:
    return _core.Spool(str(spool)).durable()


def mark(spool: Path, consumer: str) -> int | None:
    marks = {name: committed for name, committed, _ in _core.Spool(str(spool)).consumers()}
    return marks.get(consumer)


class Flood:
    """Events sent without pause, so that a spool grows between any two calls of Spark."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        while not self._ended.is_set():
            self._receiver.send(numbered(0, 20), window=20)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
