"""Messages through a broker from Python, beside nats-py: `run.py --only micromsg-python`.

A publisher, a broker and a subscriber, each a process of its own, over TCP on this machine. A
message has 256 bytes and no properties. The brokers are `ackline serve` and nats-server; all have
their defaults. The subscriber has every payload as `bytes`, and counts for some seconds after the
first messages.

NATS drops messages that a subscriber is too slow for, and our broker ends such a subscriber. So
both sides have the same limit: the subscriber publishes a *credit*, an empty message, after each
thousand messages, and the publisher is at most `AHEAD` thousands ahead of it.

* *topic*: a topic of ours, whose messages the broker acknowledges to the publisher, and the
  subscriber to the broker, beside publish and subscribe of NATS, which acknowledge nothing.
* *queue*: both brokers keep each message in memory until the subscriber has acknowledged it, and
  acknowledge it to the publisher: a queue of ours beside a work queue of JetStream.
* *direct*: our publisher connects to our subscriber without a broker, and the subscriber
  acknowledges. NATS has no such way.

Our sides send and take batches of a thousand; those named *each* send and take single messages, as
nats-py does.
"""

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processes import cpu_seconds, server
from relink import BATCH, Meter

BYTES = 256
"""Bytes of a message."""
OFTEN = 64
"""Messages after which a subscriber of single messages looks at the clock."""
AHEAD = 8
"""Batches that a publisher may be ahead of its subscriber."""
CREDIT = "credit"
DESTINATIONS = {"topic": "bench", "queue": "queue/bench", "direct": ""}
CASES: list[tuple[str, str, str, float | None]] = [
    ("topic", "sync", "nats", 5.0),
    ("topic", "asyncio", "nats", 5.0),
    ("topic", "sync-each", "nats", None),
    ("topic", "asyncio-each", "nats", None),
    ("queue", "sync", "jetstream", None),
    ("queue", "asyncio", "jetstream", None),
    ("direct", "direct", "nats", None),
]
"""Subject, our side, the other, and the goal: a multiple of the other's rate."""
JETSTREAM_PENDING = 1000
"""Messages that may wait for their acknowledgement, as many as our window has."""


def said(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


class Credits:
    """The credits that a subscriber owes its publisher."""

    def __init__(self) -> None:
        self.taken = 0

    def due(self, count: int) -> int:
        """Count messages, and return how many credits to send for them."""
        before, self.taken = self.taken // BATCH, self.taken + count
        return self.taken // BATCH - before


# ---- ours, with threads ----


def sync_publish(url: str, destination: str) -> None:
    """Publish batches."""
    from ackline import micromsg

    batch = [(bytes(BYTES), destination)] * BATCH
    with micromsg.connect(url) as connection:
        connection.subscribe(CREDIT)
        for number in range(sys.maxsize):
            if number >= AHEAD:
                connection.receive()
            connection.send_some(batch)


def sync_subscribe(url: str, destination: str, meter: Meter) -> None:
    """Take batches."""
    from ackline import micromsg

    credits_owed = Credits()
    with micromsg.connect(url) as connection:
        connection.subscribe(destination)
        said(url)
        while True:
            payloads = [message.payload for message in connection.receive_some(BATCH)]
            if meter.saw(len(payloads)):
                return
            for _ in range(credits_owed.due(len(payloads))):
                connection.send(b"", CREDIT)


def sync_each_publish(url: str, destination: str) -> None:
    """Publish single messages."""
    from ackline import micromsg

    payload = bytes(BYTES)
    with micromsg.connect(url) as connection:
        connection.subscribe(CREDIT)
        for number in range(sys.maxsize):
            if number >= AHEAD:
                connection.receive()
            for _ in range(BATCH):
                connection.send(payload, destination)


def sync_each_subscribe(url: str, destination: str, meter: Meter) -> None:
    """Take single messages."""
    from ackline import micromsg

    credits_owed = Credits()
    with micromsg.connect(url) as connection:
        connection.subscribe(destination)
        said(url)
        payloads = (message.payload for message in connection)
        for number, _ in enumerate(payloads, start=1):
            if number % OFTEN == 0:
                if meter.saw(OFTEN):
                    return
                for _ in range(credits_owed.due(OFTEN)):
                    connection.send(b"", CREDIT)


def direct_publish(url: str, destination: str) -> None:
    """Publish batches to a subscriber that listens; its acknowledgements are the limit."""
    from ackline import AcklineError, micromsg

    batch = [(bytes(BYTES), destination)] * BATCH
    connection = micromsg.connect(url)
    # The subscriber ends first.
    with contextlib.suppress(AcklineError):
        while True:
            connection.send_some(batch)


def direct_subscribe(_url: str, _destination: str, meter: Meter) -> None:
    """Listen, and take batches."""
    from ackline import micromsg

    with micromsg.listen("micromsg://127.0.0.1:0") as listener:
        said(listener.url)
        connection = listener.accept()
        while True:
            payloads = [message.payload for message in connection.receive_some(BATCH)]
            if meter.saw(len(payloads)):
                return


# ---- ours, in an event loop ----


def asyncio_publish(url: str, destination: str) -> None:
    """Publish batches."""
    from ackline.aio import micromsg

    async def publish() -> None:
        batch = [(bytes(BYTES), destination)] * BATCH
        async with micromsg.connect(url) as connection:
            await connection.subscribe(CREDIT)
            for number in range(sys.maxsize):
                if number >= AHEAD:
                    await connection.receive()
                await connection.send_some(batch)

    asyncio.run(publish())


def asyncio_subscribe(url: str, destination: str, meter: Meter) -> None:
    """Take batches."""
    from ackline.aio import micromsg

    async def take() -> None:
        credits_owed = Credits()
        async with micromsg.connect(url) as connection:
            await connection.subscribe(destination)
            said(url)
            while True:
                messages = await connection.receive_some(BATCH)
                payloads = [message.payload for message in messages]
                if meter.saw(len(payloads)):
                    return
                for _ in range(credits_owed.due(len(payloads))):
                    await connection.send(b"", CREDIT)

    asyncio.run(take())


def asyncio_each_publish(url: str, destination: str) -> None:
    """Publish single messages."""
    from ackline.aio import micromsg

    async def publish() -> None:
        payload = bytes(BYTES)
        async with micromsg.connect(url) as connection:
            await connection.subscribe(CREDIT)
            for number in range(sys.maxsize):
                if number >= AHEAD:
                    await connection.receive()
                for _ in range(BATCH):
                    await connection.send(payload, destination)

    asyncio.run(publish())


def asyncio_each_subscribe(url: str, destination: str, meter: Meter) -> None:
    """Take single messages."""
    from ackline.aio import micromsg

    async def take() -> None:
        credits_owed, number = Credits(), 0
        async with micromsg.connect(url) as connection:
            await connection.subscribe(destination)
            said(url)
            async for message in connection:
                _ = message.payload
                number += 1
                if number % OFTEN == 0:
                    if meter.saw(OFTEN):
                        return
                    for _ in range(credits_owed.due(OFTEN)):
                        await connection.send(b"", CREDIT)

    asyncio.run(take())


# ---- NATS, whose client has asyncio alone ----


def nats_publish(url: str, destination: str) -> None:
    """Publish single messages."""
    import nats

    async def publish() -> None:
        payload = bytes(BYTES)
        client = await nats.connect(url)
        credit = await client.subscribe(CREDIT)
        for number in range(sys.maxsize):
            if number >= AHEAD:
                await credit.next_msg(timeout=None)
            for _ in range(BATCH):
                await client.publish(destination, payload)

    asyncio.run(publish())


def nats_subscribe(url: str, destination: str, meter: Meter) -> None:
    """Take single messages by a callback, which is faster than the client's iterator."""
    import nats

    over = asyncio.Event()
    credits_owed, number = Credits(), 0

    async def take() -> None:
        client = await nats.connect(url)

        async def message_came(message: Any) -> None:
            nonlocal number
            _ = message.data
            number += 1
            if number % OFTEN == 0 and not over.is_set():
                if meter.saw(OFTEN):
                    over.set()
                for _ in range(credits_owed.due(OFTEN)):
                    await client.publish(CREDIT, b"")

        await client.subscribe(destination, cb=message_came)
        await client.flush()
        said(url)
        await over.wait()

    asyncio.run(take())


def jetstream_publish(url: str, destination: str) -> None:
    """Publish single messages, and go on before their acknowledgements come."""
    import nats

    async def publish() -> None:
        payload = bytes(BYTES)
        client = await nats.connect(url)
        stream = client.jetstream(publish_async_max_pending=JETSTREAM_PENDING)
        credit = await client.subscribe(CREDIT)
        for number in range(sys.maxsize):
            if number >= AHEAD:
                await credit.next_msg(timeout=None)
            for _ in range(BATCH):
                await stream.publish_async(destination, payload)

    asyncio.run(publish())


def jetstream_subscribe(url: str, destination: str, meter: Meter) -> None:
    """Make a work queue in memory, fetch batches from it, and acknowledge each message."""
    import nats
    from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType

    async def take() -> None:
        credits_owed = Credits()
        client = await nats.connect(url)
        stream = client.jetstream()
        await stream.add_stream(
            name="bench",
            subjects=[destination],
            storage=StorageType.MEMORY,
            retention=RetentionPolicy.WORK_QUEUE,
        )
        config = ConsumerConfig(max_ack_pending=AHEAD * BATCH)
        subscription = await stream.pull_subscribe(destination, "bench", config=config)
        said(url)
        while True:
            messages = await subscription.fetch(BATCH, timeout=30)
            payloads = [message.data for message in messages]
            for message in messages:
                await message.ack()
            if meter.saw(len(payloads)):
                return
            for _ in range(credits_owed.due(len(payloads))):
                await client.publish(CREDIT, b"")

    asyncio.run(take())


@contextmanager
def nats_server(program: Path) -> Iterator[tuple[int, str]]:
    """Run nats-server on a free port; yields its pid and its URL."""
    with tempfile.TemporaryDirectory(prefix="ackline-bench-") as name:
        command = [str(program), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", name]
        stream = ["-js", "-sd", str(Path(name) / "store")]
        process = subprocess.Popen([*command, *stream], stderr=subprocess.DEVNULL)
        try:
            yield process.pid, ports_file_url(Path(name), process)
        finally:
            process.terminate()
            process.wait(30)


def ports_file_url(directory: Path, process: subprocess.Popen[bytes]) -> str:
    """Wait for the file with the port that nats-server has chosen, and return its URL."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(StopIteration, json.JSONDecodeError):
            found = json.loads(next(directory.glob("*.ports")).read_text(encoding="utf-8"))
            return str(found["nats"][0])
        time.sleep(0.02)
    raise SystemExit(f"{process.args!r} did not listen")


@contextmanager
def ackline_serve() -> Iterator[tuple[int, str]]:
    """Run our broker; yields its pid and its URL."""
    ackline = str(Path(sys.executable).with_name("ackline"))
    with server([ackline, "serve", "micromsg://127.0.0.1:0", "--json"]) as (pid, address):
        yield pid, f"micromsg://{address}"


@contextmanager
def no_broker() -> Iterator[tuple[None, str]]:
    """Yield nothing to run, and no URL."""
    yield None, ""


PUBLISHERS: dict[str, Callable[[str, str], None]] = {
    "sync": sync_publish,
    "sync-each": sync_each_publish,
    "direct": direct_publish,
    "asyncio": asyncio_publish,
    "asyncio-each": asyncio_each_publish,
    "nats": nats_publish,
    "jetstream": jetstream_publish,
}
SUBSCRIBERS: dict[str, Callable[[str, str, Meter], None]] = {
    "sync": sync_subscribe,
    "sync-each": sync_each_subscribe,
    "direct": direct_subscribe,
    "asyncio": asyncio_subscribe,
    "asyncio-each": asyncio_each_subscribe,
    "nats": nats_subscribe,
    "jetstream": jetstream_subscribe,
}


def nats_program(directory: Path) -> Path:
    """Unpack Debian's nats-server into a directory; nothing is installed."""
    subprocess.run(["apt-get", "-q", "download", "nats-server"], cwd=directory, check=True)
    package = next(directory.glob("nats-server_*.deb"))
    subprocess.run(["dpkg-deb", "-x", str(package), str(directory)], check=True)
    return directory / "usr" / "sbin" / "nats-server"


@contextmanager
def child(command: list[str], seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Run a publisher or subscriber, and kill it at the end, or a minute after its time."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        late = threading.Timer(seconds + 60, process.kill)
        late.start()
        try:
            yield process
        finally:
            late.cancel()
            process.kill()


def rate(what: str, side: str, seconds: float, program: Path) -> list[float]:
    """Return messages per second, and CPU microseconds of publisher, broker, and subscriber."""
    me = [sys.executable, str(Path(__file__).resolve())]
    destination = DESTINATIONS["topic" if side == "nats" else what]
    if side in {"nats", "jetstream"}:
        broker: Any = nats_server(program)
    else:
        broker = no_broker() if side == "direct" else ackline_serve()
    with contextlib.ExitStack() as running:
        broker_pid, broker_url = running.enter_context(broker)
        command = [*me, "subscribe", side, broker_url, destination, str(seconds)]
        subscriber = running.enter_context(child(command, seconds))
        assert subscriber.stdout is not None
        url = subscriber.stdout.readline().strip()
        command = [*me, "publish", side, url, destination]
        publisher = running.enter_context(child(command, seconds))
        pids = [publisher.pid, broker_pid, subscriber.pid]
        subscriber.stdout.readline()
        before = [cpu_seconds(pid) if pid else 0.0 for pid in pids]
        measured, count = map(float, subscriber.stdout.readline().split())
        after = [cpu_seconds(pid) if pid else 0.0 for pid in pids]
    used = (1e6 * (end - start) / count for start, end in zip(before, after, strict=True))
    return [measured, *used]


def measure(rounds: int, seconds: float) -> list[str]:
    """Return a table: both sides in interleaved rounds, and their ratio."""
    lines = [
        "| | ours, messages/s (CPU us) | beside | its (CPU us) | ratio: median (range) | goal |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(prefix="ackline-bench-") as name:
        program = nats_program(Path(name))
        for what, side, other, goal in CASES:
            pairs = [
                [rate(what, each, seconds, program) for each in (side, other)]
                for _ in range(rounds)
            ]
            ratios = sorted(ours[0] / theirs[0] for ours, theirs in pairs)
            spread = f"{statistics.median(ratios):.1f} ({ratios[0]:.1f}-{ratios[-1]:.1f})"
            ours, theirs = (amount(list(column)) for column in zip(*pairs, strict=True))
            goal_text = f"{goal:.0f}" if goal else ""
            lines.append(
                f"| {what}, {side} | {ours} | {other} | {theirs} | {spread} | {goal_text} |"
            )
    return lines


def amount(found: list[list[float]]) -> str:
    """Return the medians of a rate and of the CPU time of publisher, broker, and subscriber."""
    each, *used = (statistics.median(values) for values in zip(*found, strict=True))
    return f"{each:,.0f} ({' + '.join(f'{one:.2f}' for one in used)})"


def main(arguments: list[str]) -> None:
    """Run one side."""
    role, side, url, destination, *seconds = arguments
    with contextlib.suppress(KeyboardInterrupt):
        if role == "subscribe":
            SUBSCRIBERS[side](url, destination, Meter(float(seconds[0])))
        else:
            PUBLISHERS[side](url, destination)


if __name__ == "__main__":
    main(sys.argv[1:])
