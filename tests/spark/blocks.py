"""Drain a backlog of compressed blocks in bounded memory, in a Spark of its own.

    python tests/spark/blocks.py --events 2048 --event-bytes 1MiB --window 100

Sends `--events` events of `--event-bytes` in compressed windows, and lands them with
`maxBytesPerBatch` in workers whose address space ends at `--worker-bytes`.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from harness import HOST, LumberjackSender, Receiver

from ackline import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text: str) -> int:
    """Read a size such as 100MiB."""
    return int(text[:-3]) * UNITS[text[-3:]]


def window(first: int, count: int, event_bytes: int) -> bytes:
    """Make one compressed frame of events that inflate to `event_bytes` each."""
    squeeze = zlib.compressobj(1)
    parts = []
    for sequence in range(1, count + 1):
        head = b'{"n":%d,"pad":"' % (first + sequence - 1)
        event = head + b"x" * (event_bytes - len(head) - 2) + b'"}'
        frame = struct.pack(">2sII", b"2J", sequence, len(event)) + event
        parts.append(squeeze.compress(frame))
    parts.append(squeeze.flush())
    body = b"".join(parts)
    return struct.pack(">2sI2sI", b"2W", count, b"2C", len(body)) + body


def fill(receiver: Receiver, events: int, event_bytes: int, per_window: int) -> int:
    """Send all events; return how many bytes left this process."""
    sent = 0
    with LumberjackSender(receiver.port, timeout=60) as sender:
        for first in range(0, events, per_window):
            count = min(per_window, events - first)
            frames = window(first, count, event_bytes)
            sender.send_frames(frames, count)
            sent += len(frames)
            sender.acknowledged()
    return sent


def session(directory: Path, worker_bytes: int) -> SparkSession:
    """Make a session whose Python workers have that much address space."""
    from pyspark.sql import SparkSession

    import ackline.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = HOST
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
        .config("spark.executor.pyspark.memory", f"{worker_bytes >> 20}m")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    )
    spark: SparkSession = ackline.spark.tuned(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ackline.spark.register(spark)
    return spark


def address_space(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the limit of the worker in which this runs."""
    import resource

    import pyarrow as pa

    for _ in batches:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        yield pa.RecordBatch.from_pydict({"limit": [limit]})


def drain(spark: SparkSession, directory: Path, batch_bytes: int) -> list[tuple[int, int]]:
    """Land everything; return how many rows and bytes each batch had."""
    landed: list[tuple[int, int]] = []

    def count(frame: DataFrame, _: int) -> None:
        row = frame.selectExpr("count(position)", "coalesce(sum(length(payload)), 0)").first()
        if row is None:
            raise RuntimeError("an aggregate has a row")
        landed.append((row[0], row[1]))

    query = (
        spark.readStream.format("ackline")
        .options(spool=str(directory / "spool"), consumer="c", maxBytesPerBatch=str(batch_bytes))
        .load()
        .writeStream.foreachBatch(count)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return landed


def main() -> int:
    """Read the command line, fill, drain, and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=2048)
    parser.add_argument("--event-bytes", type=size, default=size("1MiB"))
    parser.add_argument("--window", type=int, default=16, help="events in a window")
    parser.add_argument("--batch-bytes", type=size, default=size("64MiB"))
    parser.add_argument("--worker-bytes", type=size, default=size("1GiB"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ackline-blocks-") as temporary:
        directory = Path(temporary)
        limits = ("--max-inflated-bytes", "256MiB", "--max-json-bytes", "64MiB")
        receiver = Receiver(
            directory / "spool",
            arguments=(*limits, "--max-window-bytes", "256MiB", "--memory", "1GiB"),
        ).start()
        try:
            sent = fill(receiver, given.events, given.event_bytes, given.window)
        finally:
            receiver.stop()
        blocks = list(_core.Spool(str(directory / "spool")).blocks())
        spark = session(directory, given.worker_bytes)
        limit = spark.range(1).mapInArrow(address_space, "limit long").first()
        landed = drain(spark, directory, given.batch_bytes)
        spark.stop()
    print(
        f"{given.events} events, {given.events * given.event_bytes >> 20} MiB inflated, "
        f"{sent >> 20} MiB sent; largest block {max(b['inflated_bytes'] for b in blocks) >> 20} "
        f"MiB; worker {limit[0] >> 20 if limit else None} MiB; {len(landed)} batches, largest "
        f"{max(size for _, size in landed) >> 20} MiB, {sum(rows for rows, _ in landed)} rows"
    )
    whole = sum(rows for rows, _ in landed) == given.events
    bounded = limit is not None and limit[0] == given.worker_bytes
    fits = max(size for _, size in landed) <= max(given.batch_bytes, given.event_bytes)
    return 0 if whole and bounded and fits else 1


if __name__ == "__main__":
    sys.exit(main())
