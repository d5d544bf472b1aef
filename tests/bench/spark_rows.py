"""Rows per second of the stream source, against a Parquet file stream of the same rows.

Usage: spark_rows.py SPOOL DIRECTORY ROUNDS. Into noop and into Parquet files. Both sides with the
tuned settings on two cores, 500,000 rows in a batch. Rounds are interleaved and the side that goes
first changes; one round before them, which does not count, lets the JVM compile what both sides
use. The first batch of each query (processes start) and the small rest at the end are left out on
both sides.

On a busy machine the side with more processes gets more of the cores, so the CPU time of the whole
process tree per million rows, start of the query included, stands beside the rates.
"""

import os
import shutil
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import ackline
import ackline.spark

BATCH_ROWS = 500_000
TICK = os.sysconf("SC_CLK_TCK")
COUNTS = 10
"""Counts in a round."""


@dataclass(frozen=True)
class Shape:
    """The columns of a measurement: some or all of the spool's, or typed ones of a schema."""

    name: str
    columns: tuple[str, ...] | None = None
    schema: str | None = None

    def read(self, reader: Any) -> Any:
        """Return a reader of Spark's for these columns."""
        if self.columns is not None:
            reader = reader.option("columns", ",".join(self.columns))
        return reader if self.schema is None else reader.schema(self.schema)


SHAPES = [
    Shape("position, received_at, payload", columns=("position", "received_at", "payload")),
    Shape("all"),
    Shape(
        "ten typed columns",
        schema="position BIGINT, received_at TIMESTAMP, `@timestamp` TIMESTAMP, message STRING, "
        "log STRUCT<offset: BIGINT, file: STRUCT<path: STRING>>, input STRUCT<type: STRING>, "
        "ecs STRUCT<version: STRING>, agent STRUCT<id: STRING, name: STRING>, "
        "host STRUCT<name: STRING, os: STRUCT<family: STRING>>, `@metadata` STRUCT<beat: STRING>",
    ),
]


def write_parquet(spark: SparkSession, spool: Path, directory: Path, shape: Shape) -> None:
    """Write the spool's rows as zstd Parquet: two files, one for each core, to a batch."""
    half = BATCH_ROWS // 2
    directory.mkdir()
    for number, start in enumerate(range(0, rows_of(spool), half)):
        end = min(start + half, rows_of(spool))
        if shape.schema is not None:
            reader = spark.read.format("ackline").option("start", start).option("end", end)
            rows = shape.read(reader).load(str(spool)).coalesce(1)
            rows.write.option("compression", "zstd").mode("append").parquet(str(directory))
            continue
        columns = None if shape.columns is None else list(shape.columns)
        batches = list(ackline.Spool(str(spool)).read(start, end, columns=columns))
        table = pa.Table.from_batches(batches)
        pq.write_table(table, directory / f"{number:05}.parquet", compression="zstd")


def rows_of(spool: Path) -> int:
    """Return the number of a spool's events."""
    return ackline.Spool(str(spool)).durable()


def cpu_seconds() -> float:
    """Return user and system time of this process and all that descend from it."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(path.parent.name)
        parents[pid], used[pid] = int(fields[1]), sum(int(each) for each in fields[11:15])
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(used[pid] for pid in family) / TICK


def rate(query: Any) -> float:
    """Return rows per second of the whole batches after the first."""
    query.awaitTermination(600)
    whole = 0.9 * BATCH_ROWS
    batches = [each for each in query.recentProgress if each["numInputRows"] > whole][1:]
    rows = sum(each["numInputRows"] for each in batches)
    return float(1000 * rows / sum(each["durationMs"]["triggerExecution"] for each in batches))


def drained(frame: Any, sink: str, directory: Path) -> float:
    """Stream everything into a sink; return rows per second."""
    writer = frame.writeStream.format(sink).trigger(availableNow=True)
    if sink == "parquet":
        writer = writer.option("path", str(directory / "table"))
    found = rate(writer.option("checkpointLocation", str(directory / "checkpoint")).start())
    shutil.rmtree(directory)
    return found


def ours(spark: SparkSession, spool: Path, shape: Shape, sink: str, directory: Path) -> float:
    """Stream the spool."""
    reader = spark.readStream.format("ackline").option("maxRowsPerBatch", BATCH_ROWS)
    return drained(shape.read(reader).load(str(spool)), sink, directory)


def parquet(spark: SparkSession, files: Path, sink: str, directory: Path) -> float:
    """Stream the Parquet files."""
    schema = spark.read.parquet(str(files)).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", "2").parquet(str(files))
    return drained(frame, sink, directory)


def files_of(directory: Path, shape: Shape) -> Path:
    """Return where the Parquet files with some columns are."""
    return directory / f"parquet-{SHAPES.index(shape)}"


def measured(
    spark: SparkSession,
    spool: Path,
    directory: Path,
    shape: Shape,
    sink: str,
    rounds: int,
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Return rate and CPU seconds per million rows of both sides, for each round."""
    files = files_of(directory, shape)
    if not files.exists():
        write_parquet(spark, spool, files, shape)
    left: list[tuple[float, float]] = []
    right: list[tuple[float, float]] = []
    millions = rows_of(spool) / 1e6

    def one(side: list[tuple[float, float]], place: Path) -> None:
        before = cpu_seconds()
        if side is left:
            found = ours(spark, spool, shape, sink, place)
        else:
            found = parquet(spark, files, sink, place)
        side.append((found, (cpu_seconds() - before) / millions))

    for number in range(rounds + 1):
        for side in (left, right) if number % 2 else (right, left):
            one(side, directory / "round")
    return left[1:], right[1:]


def counted(spark: SparkSession, spool: Path, files: Path, rounds: int) -> str:
    """Return the line of one table for `count()` of a frame with all columns."""
    sides: list[list[tuple[float, float]]] = [[], []]
    for number in range(rounds * COUNTS + 1):
        for side, (kind, place) in enumerate((("ackline", spool), ("parquet", files))):
            before, begun = cpu_seconds(), time.perf_counter()
            spark.read.format(kind).load(str(place)).count()
            took = time.perf_counter() - begun
            # The first of each is Spark's warming up.
            if number:
                sides[side].append((took, cpu_seconds() - before))
    times = [[each[0] * 1000 for each in side] for side in sides]
    cpu = [statistics.median(each[1] for each in side) for side in sides]
    ratio = statistics.median(times[0]) / statistics.median(times[1])
    return (
        f"| {spread(times[0])} | {spread(times[1])} | {ratio:.2f} | {cpu[0]:.2f}, {cpu[1]:.2f} |\n"
    )


def session() -> SparkSession:
    """Start Spark on two cores, the source registered."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
    )
    spark = ackline.spark.tuned(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    ackline.spark.register(spark)
    return spark


def spread(values: list[float], digits: int = 0) -> str:
    """Return median and range."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def row(name: str, left: list[tuple[float, float]], right: list[tuple[float, float]]) -> str:
    """Return the line of one table that holds both sides."""
    rates = [[each[0] for each in side] for side in (left, right)]
    cpu = [statistics.median(each[1] for each in side) for side in (left, right)]
    ratio = statistics.median(rates[0]) / statistics.median(rates[1])
    pairs = spread([one / other for one, other in zip(*rates, strict=True)], 2)
    cells = [name, *map(spread, rates), f"{ratio:.2f}", pairs, f"{cpu[0]:.2f}, {cpu[1]:.2f}"]
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    """Measure all sets of columns."""
    spool, directory, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    spark = session()
    for sink in ("noop", "parquet"):
        sys.stdout.write(f"\n### Spark: rows/s into {sink}, median (lowest-highest)\n\n")
        heads = "columns | ackline | Parquet zstd | ratio | of each round | CPU s per million rows"
        sys.stdout.write(f"| {heads} |\n|---|---|---|---|---|---|\n")
        for shape in SHAPES:
            left, right = measured(spark, spool, directory, shape, sink, rounds)
            sys.stdout.write(row(shape.name, left, right))
            sys.stdout.flush()
    sys.stdout.write("\n### Spark: count() of all columns, ms, median (lowest-highest)\n\n")
    sys.stdout.write("| ackline | Parquet zstd | ratio | CPU s |\n|---|---|---|---|\n")
    sys.stdout.write(counted(spark, spool, files_of(directory, SHAPES[1]), rounds))
    spark.stop()


if __name__ == "__main__":
    main()
