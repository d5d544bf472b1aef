"""From a sender to a sink, one event every 10 ms: the stream source against Spark's socket source.

Usage: spark_latency.py DIRECTORY ROUNDS SECONDS. Both sides with the tuned settings on two cores,
trigger 0, into a `foreachBatch` that collects. Each event carries the time at which it was made;
sender and sink are one process and share its clock. Ours goes through a receiver, a spool with
fsync and an ack; Spark's socket source keeps and acknowledges nothing. Beside it stands what the
query costs while nothing arrives: with it less without it.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from spark_rows import cpu_seconds, session

from ackline import lumberjack

EVERY_SECONDS = 0.01
IDLE_SECONDS = 10.0
Send = Callable[[str], None]


@contextmanager
def to_receiver(directory: Path) -> Iterator[tuple[Path, Send]]:
    """Run a receiver; yield its spool and a function that sends one event and awaits its ack."""
    command = [str(Path(sys.executable).with_name("ackline")), "receive"]
    spool = directory / "spool"
    command += ["lumberjack://127.0.0.1:0", "--spool", str(spool), "--json"]
    receiver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    try:
        url = json.loads(receiver.stdout.readline())["urls"][0]
        threading.Thread(target=receiver.stdout.read, daemon=True).start()
        with lumberjack.connect(url) as writer:
            yield spool, lambda text: writer.send([text], timeout=30)
    finally:
        receiver.terminate()
        receiver.wait(30)


@contextmanager
def to_socket() -> Iterator[tuple[int, Send]]:
    """Serve Spark's socket source; yield the port and a function that sends one line."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peers: list[socket.socket] = []
        accepting = threading.Thread(target=lambda: peers.append(listener.accept()[0]))
        accepting.start()

        def send(text: str) -> None:
            accepting.join(60)
            peers[0].sendall(text.encode() + b"\n")

        try:
            yield listener.getsockname()[1], send
        finally:
            for peer in peers:
                peer.close()


def run(
    frame: Any, send: Send, directory: Path, seconds: float
) -> tuple[list[float], dict[str, float]]:
    """Return each event's milliseconds on the way, and the CPU while nothing arrives."""
    waits: list[float] = []

    def sink(batch: Any, _: int) -> None:
        made = [json.loads(each[0])["made"] for each in batch.collect()]
        now = time.monotonic()
        waits.extend(1000 * (now - each) for each in made)

    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(directory))
    query = writer.start()
    try:
        count = 0
        while not waits:  # until the query runs
            send(json.dumps({"made": time.monotonic()}))
            count += 1
            time.sleep(0.1)
        deadline = time.monotonic() + seconds
        warm = count + int(seconds / EVERY_SECONDS / 10)
        while time.monotonic() < deadline:
            begun = time.monotonic()
            send(json.dumps({"made": begun}))
            count += 1
            time.sleep(max(0.0, begun + EVERY_SECONDS - time.monotonic()))
        until = time.monotonic() + 60
        while len(waits) < count and time.monotonic() < until:
            time.sleep(0.05)
        assert len(waits) >= count, f"{count - len(waits)} events did not arrive"
        measured = waits[warm:]
        with_query = idle_percent()
    finally:
        query.stop()
    # The cost of the session and the receiver without a query is not the query's.
    return measured, {"idle": with_query - idle_percent()}


def idle_percent() -> float:
    """Return the share of a core that this process and its children take while nothing arrives."""
    # By then the work that the last batch began is over.
    time.sleep(2)
    before = cpu_seconds()
    time.sleep(IDLE_SECONDS)
    return 100 * (cpu_seconds() - before) / IDLE_SECONDS


def ours(spark: SparkSession, directory: Path, seconds: float) -> tuple[list[float], Any]:
    """Measure the way through receiver and spool."""
    with to_receiver(directory) as (spool, send):
        reader = spark.readStream.format("ackline").option("spool", str(spool))
        frame = reader.option("columns", "payload").load()
        return run(frame, send, directory / "checkpoint", seconds)


def plain(spark: SparkSession, directory: Path, seconds: float) -> tuple[list[float], Any]:
    """Measure Spark's socket source."""
    with to_socket() as (port, send):
        reader = spark.readStream.format("socket").option("host", "127.0.0.1")
        frame = reader.option("port", str(port)).load()
        return run(frame, send, directory / "checkpoint", seconds)


def main() -> None:
    """Measure both sides in turn; the first round does not count."""
    directory, rounds, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    spark = session()
    found: dict[str, tuple[list[float], ...]] = {}
    for number in range(rounds + 1):
        for name, side in (("ackline", ours), ("socket source", plain)):
            place = directory / f"{number}-{name.split()[0]}"
            place.mkdir(parents=True)
            waits, idle = side(spark, place, seconds)
            if number == 0:
                continue
            cuts = statistics.quantiles(waits, n=100)
            kept = found.setdefault(name, ([], [], [], []))
            figures = (cuts[49], cuts[94], cuts[98], idle["idle"])
            for values, value in zip(kept, figures, strict=True):
                values.append(value)
    sys.stdout.write("\n### Spark: one event from sender to sink, median of the rounds\n\n")
    heads = "source | p50 ms | p95 ms | p99 ms | idle, % of a core"
    sys.stdout.write(f"| {heads} |\n|---|---|---|---|---|\n")
    middle = {name: [statistics.median(each) for each in kept] for name, kept in found.items()}
    for name, (*waits, idle_cost) in middle.items():
        cells = [name, *(f"{each:.0f}" for each in waits), f"{idle_cost:.1f}"]
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
    ratios = [f"{one / other:.2f}" for one, other in zip(*middle.values(), strict=True)][:-1]
    sys.stdout.write(f"| ratio | {' | '.join(ratios)} | |\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parent))
    main()
