"""Each row of the table of `docs/spark-from-kafka.md`, tried in one session of a master.

Usage: kafka_rows.py MASTER DIRECTORY. It prints one line for each row as it passes, and ends with
the error of the first that does not. `ROWS` names a row by the first cell of the table.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import HOST, Receiver, numbered, until
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import ackline.spark
from ackline import Spool

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

EVENTS = 40
LATE = 4_102_444_800_000
"""The first day of the year 2100, in milliseconds since 1970."""


class Trial:
    """A session, and spools `a` and `b` of 40 events each.

    Args:
        master: The master of Spark.
        directory: An empty directory.
    """

    def __init__(self, master: str, directory: Path) -> None:
        self.directory = directory
        self.receivers: list[Receiver] = []
        self._count = 0
        builder = (
            SparkSession.builder.master(master)
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "600m")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        )
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")
        ackline.spark.register(self.spark)
        self.a, self.b = (self.filled(name).spool for name in ("a", "b"))

    def filled(self, name: str, arguments: tuple[str, ...] = ()) -> Receiver:
        """Start a receiver on a spool of its own with 40 events."""
        place = self.directory / "spools" / name
        place.parent.mkdir(exist_ok=True)
        receiver = Receiver(place, arguments=arguments).start()
        self.receivers.append(receiver)
        receiver.send(numbered(0, EVENTS))
        return receiver

    def end(self) -> None:
        """End what was started."""
        self.spark.stop()
        for receiver in self.receivers:
            receiver.kill()

    def path(self, kind: str) -> Path:
        """Return a new path below the directory."""
        self._count += 1
        return self.directory / f"{kind}{self._count}"

    def batch(self, **options: object) -> DataFrame:
        """Read spools; a dict among the options is JSON."""
        return self.spark.read.format("ackline").options(**_texts(options)).load()

    def stream(self, **options: object) -> DataFrame:
        """Read spools as a stream."""
        return self.spark.readStream.format("ackline").options(**_texts(options)).load()

    def running(
        self, frame: DataFrame, out: Path, checkpoint: Path, **trigger: Any
    ) -> StreamingQuery:
        """Start a query into Parquet."""
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start(str(out))

    def landed(self, **options: object) -> list[int]:
        """Run a stream to its end; return the positions in its table."""
        out = self.path("out")
        query = self.running(
            self.stream(**options), out, self.path("checkpoint"), availableNow=True
        )
        assert query.awaitTermination(120)
        return positions(self.spark.read.parquet(str(out)))


def _texts(options: dict[str, object]) -> dict[str, str]:
    return {
        name: json.dumps(value) if isinstance(value, dict) else str(value)
        for name, value in options.items()
    }


def positions(frame: DataFrame) -> list[int]:
    return sorted(row.position for row in frame.select("position").collect())


def entry(trial: Trial) -> None:
    frame = trial.batch(spool=trial.a)
    assert frame.count() == EVENTS
    trial.spark.sql(f"CREATE TABLE logs USING ackline OPTIONS (spool '{trial.a}')")
    assert trial.spark.sql("SELECT count(*) FROM logs").first()[0] == EVENTS
    frame.createOrReplaceTempView("view_of_logs")
    assert trial.spark.sql("SELECT max(position) FROM view_of_logs").first()[0] == EVENTS - 1


def no_servers(trial: Trial) -> None:
    with pytest.raises(PySparkException, match=r"kafka\.bootstrap\.servers"):
        trial.batch(**{"spool": trial.a, "kafka.bootstrap.servers": f"{HOST}:9092"}).count()


def several(trial: Trial) -> None:
    both = trial.batch(spool=f"{trial.a},{trial.b}")
    assert both.count() == 2 * EVENTS
    assert both.select("spool").distinct().count() == 2
    assert trial.spark.read.format("ackline").load(str(trial.a)).count() == EVENTS
    assert trial.landed(spool=f"{trial.a},{trial.b}") == sorted([*range(EVENTS)] * 2)


def pattern(trial: Trial) -> None:
    every = trial.directory / "spools" / "p*"
    trial.filled("p1")
    out = trial.path("out")
    frame = trial.stream(spool=every, consumer="pattern")
    query = trial.running(frame, out, trial.path("checkpoint"))
    query.processAllAvailable()
    trial.filled("p2")
    table = trial.spark.read.schema("position BIGINT")
    until(lambda: table.parquet(str(out)).count() == 2 * EVENTS, "the new spool is read", 120)
    query.stop()


def starting(trial: Trial) -> None:
    spools = f"{trial.a},{trial.b}"
    wanted = {str(trial.a): 5, str(trial.b): -1}
    assert positions(trial.batch(spool=spools, startingOffsets=wanted)) == [*range(5, EVENTS)]
    assert trial.landed(spool=spools, startingOffsets=wanted) == [*range(5, EVENTS)]
    assert trial.landed(spool=trial.a, startingOffsets="latest") == []
    assert trial.landed(spool=trial.a, startingOffsets="earliest") == [*range(EVENTS)]
    Spool(str(trial.a)).commit_mark("marked", 30)
    marked = {"spool": trial.a, "consumer": "marked", "startingOffsets": "committed"}
    assert trial.landed(**marked) == [*range(30, EVENTS)]


def starting_by_time(trial: Trial) -> None:
    for option in ("startingTimestamp", "startingOffsetsByTimestamp"):
        late = LATE if option == "startingTimestamp" else {str(trial.a): LATE}
        early = 0 if option == "startingTimestamp" else {str(trial.a): "1970-01-01T00:00:00Z"}
        for value, expected in ((late, []), (early, [*range(EVENTS)])):
            given = {"spool": trial.a, option: value}
            assert positions(trial.batch(**given)) == expected
            assert trial.landed(**given) == expected


def ending(trial: Trial) -> None:
    wanted = {str(trial.a): 5}
    assert positions(trial.batch(spool=trial.a, endingOffsets=wanted)) == [*range(5)]
    assert positions(trial.batch(spool=trial.a, endingOffsets="latest")) == [*range(EVENTS)]
    by_time = {str(trial.a): 0}
    assert positions(trial.batch(spool=trial.a, endingOffsetsByTimestamp=by_time)) == []
    assert positions(trial.batch(spool=trial.a, endingTimestamp=LATE)) == [*range(EVENTS)]


def losses(trial: Trial) -> None:
    receiver = trial.filled("replaced")
    out, checkpoint = trial.path("out"), trial.path("checkpoint")

    def run(**more: object) -> None:
        frame = trial.stream(spool=receiver.spool, **more)
        query = trial.running(frame, out, checkpoint, availableNow=True)
        assert query.awaitTermination(120)

    run()
    receiver.stop()
    shutil.rmtree(receiver.spool)
    receiver.start()
    receiver.send(numbered(0, 10))
    with pytest.raises(StreamingQueryException, match=r"spool\.replaced"):
        run()
    run(failOnDataLoss="false")
    assert positions(trial.spark.read.parquet(str(out))) == sorted([*range(EVENTS), *range(10)])


def most_rows(trial: Trial) -> None:
    for option, value in (("maxRowsPerBatch", 15), ("maxBytesPerBatch", 200)):
        out = trial.path("out")
        frame = trial.stream(**{"spool": trial.a, option: value})
        query = trial.running(frame, out, trial.path("checkpoint"), availableNow=True)
        assert query.awaitTermination(120)
        rows = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
        assert sum(rows) == EVENTS, rows
        assert len(rows) > 1, rows
        assert option != "maxRowsPerBatch" or max(rows) <= value, rows


def fewest_rows(trial: Trial) -> None:
    receiver = trial.filled("patient")
    out = trial.path("out")
    options = {"minRowsPerBatch": 50, "maxTriggerDelay": "1h"}
    frame = trial.stream(spool=receiver.spool, **options)
    query = trial.running(frame, out, trial.path("checkpoint"))

    def rows() -> list[int]:
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    until(lambda: rows() == [EVENTS], "the first batch does not wait", 120)
    receiver.send(numbered(EVENTS, 30))
    receiver.send(numbered(EVENTS + 30, 30))
    until(lambda: len(rows()) == 2, "60 events are enough", 120)
    assert rows()[1] >= 50, rows()
    query.stop()


def partitions(trial: Trial) -> None:
    assert trial.batch(spool=trial.a, minPartitions=8).rdd.getNumPartitions() == 8
    capped = trial.batch(spool=trial.a, minPartitions=1, maxPartitions=1)
    assert capped.rdd.getNumPartitions() == 1
    assert positions(trial.batch(spool=trial.a, minPartitions=8)) == [*range(EVENTS)]


def most_records(trial: Trial) -> None:
    frame = trial.batch(spool=trial.a, maxRecordsPerPartition=7)
    sizes = frame.rdd.glom().map(len).collect()
    assert sum(sizes) == EVENTS, sizes
    assert max(sizes) <= 7, sizes


def consumer(trial: Trial) -> None:
    assert trial.landed(spool=trial.a, consumer="group") == [*range(EVENTS)]
    marks = {each.name: each.committed for each in Spool(str(trial.a)).consumers()}
    assert marks["group"] == EVENTS, marks
    assert trial.landed(spool=trial.a, consumer="group", startingOffsets="committed") == []


def headers(trial: Trial) -> None:
    row = trial.batch(spool=trial.a).select("attributes").first()
    assert row is not None
    assert "receiver.url" in row.attributes, row


def no_fetching(trial: Trial) -> None:
    # Spark may hand over the names of options in lower case.
    with pytest.raises(PySparkException, match=r"(?i)fetchOffset\.numRetries"):
        trial.batch(**{"spool": trial.a, "fetchOffset.numRetries": 3}).count()


def payload(trial: Trial) -> None:
    rows = trial.batch(spool=trial.a).orderBy("position").select("payload").collect()
    assert [bytes(row.payload) for row in rows] == numbered(0, EVENTS)


def places(trial: Trial) -> None:
    row = trial.batch(spool=trial.a, end=1).select("stream", "spool", "position").first()
    assert row is not None
    assert row.spool == Spool(str(trial.a)).uuid
    assert row.position == 0


def listeners(trial: Trial) -> None:
    frame = trial.batch(spool=trial.a, columns="position, listener, endpoint")
    row = frame.first()
    assert row is not None
    assert row.listener == f"lumberjack://{HOST}:{trial.receivers[0].port}", row
    assert row.endpoint is None, row


def times(trial: Trial) -> None:
    frame = trial.batch(spool=trial.a)
    assert frame.where("received_at > current_timestamp() - INTERVAL 1 HOUR").count() == EVENTS


def typed(trial: Trial) -> None:
    reader = trial.spark.read.format("ackline").schema(
        "position BIGINT, message STRING, pad STRING"
    )
    rows = reader.load(str(trial.a)).orderBy("position").collect()
    expected = [json.loads(event) for event in numbered(0, EVENTS)]
    assert [row.message for row in rows] == [event["message"] for event in expected]
    assert [row.pad for row in rows] == [event["pad"] for event in expected]


def lag(trial: Trial) -> None:
    frame = trial.stream(spool=trial.a, consumer="lag", maxRowsPerBatch=10)
    query = trial.running(frame, trial.path("out"), trial.path("checkpoint"), availableNow=True)
    assert query.awaitTermination(120)
    behind = [each["sources"][0]["metrics"]["rows_behind"] for each in query.recentProgress]
    assert behind[0] == "30", behind
    assert behind[-1] == "0", behind
    assert ackline.spark.lag(query)[0].rows_behind == 0


def sink(trial: Trial) -> None:
    receiver = trial.filled("sink")
    url = f"lumberjack://{HOST}:{receiver.port}"
    frame = trial.batch(spool=trial.a).select("payload")
    frame.write.format("ackline").option("url", url).option("payload", "raw").mode("append").save()
    assert trial.batch(spool=receiver.spool).count() == 2 * EVENTS


ROWS: dict[str, Callable[[Trial], None]] = {
    "the package `spark-sql-kafka-0-10`": entry,
    "`kafka.bootstrap.servers`": no_servers,
    "`subscribe` = `a,b`": several,
    "`subscribePattern`": pattern,
    "`assign`": several,
    "`startingOffsets`": starting,
    "`startingOffsetsByTimestamp`, `startingTimestamp`": starting_by_time,
    "`endingOffsets`, `endingOffsetsByTimestamp`, `endingTimestamp`": ending,
    "`failOnDataLoss`": losses,
    "`maxOffsetsPerTrigger`": most_rows,
    "`minOffsetsPerTrigger`, `maxTriggerDelay`": fewest_rows,
    "`minPartitions`": partitions,
    "`maxRecordsPerPartition`": most_records,
    "`groupIdPrefix`, `kafka.group.id`": consumer,
    "`includeHeaders`": headers,
    "`fetchOffset.numRetries`, `kafkaConsumer.*`": no_fetching,
    "columns `key`, `value`": payload,
    "columns `topic`, `partition`, `offset`": places,
    "none": listeners,
    "column `timestamp`": times,
    "`from_json(value, schema)`": typed,
    "metrics `avgOffsetsBehindLatest`, …": lag,
    "sink: `topic`, `kafka.*`": sink,
}


def main() -> None:
    """Try all rows."""
    trial = Trial(sys.argv[1], Path(sys.argv[2]))
    try:
        for name, row in ROWS.items():
            row(trial)
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()
    finally:
        trial.end()


if __name__ == "__main__":
    main()
