"""Messages in batches from Python, beside PUSH and PULL of pyzmq: `run.py --only relink-python`.

A sender and a receiver, each a process of its own, over TCP on this machine. The receiver has every
payload as `bytes`, consumes it, and counts for some seconds after the first message.
"""

import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH = 1000
"""Messages that a sender hands over at once."""
WINDOW = 65_536
"""Messages on their way: Relink's send window, ZeroMQ's high-water marks."""
WARM_SECONDS = 0.3
TICK = os.sysconf("SC_CLK_TCK")
CASES = [("sync", 16, 2.0), ("sync", 1024, 1.5), ("asyncio", 16, 15.0)]
"""The API, bytes of a message, and the goal as a multiple of pyzmq's rate."""


class Meter:
    """Counts messages for some seconds after the first ones."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun = 0.0
        self.counted = 0

    def saw(self, count: int) -> bool:
        """Count messages; at the end print rate and count, after a first line, and return True."""
        now = time.perf_counter()
        if not self.begun:
            self.begun = now + WARM_SECONDS
        if now < self.begun:
            return False
        if not self.counted:
            print("counting", flush=True)
        self.counted += count
        if now < self.begun + self.seconds:
            return False
        print(self.counted / (now - self.begun), self.counted, flush=True)
        return True


def relink_sync_receive(meter: Meter) -> None:
    """Receive over Relink, with a thread that waits."""
    from ackline import relink

    with relink.listen("relink://127.0.0.1:0/bench") as listener:
        print(listener.url, flush=True)
        link = listener.accept()
        while True:
            messages = link.receive_many(BATCH)
            payloads = [message.payload for message in messages]
            link.consume_many(messages)
            if meter.saw(len(payloads)):
                link.close(timeout=0)
                return


def relink_sync_send(url: str, size: int) -> None:
    """Send over Relink, with a thread that waits."""
    from ackline import relink

    link, batch = relink.connect(url), [bytes(size)] * BATCH
    while True:
        link.send_many(1, batch)


def zmq_sync_receive(meter: Meter) -> None:
    """Receive by PULL."""
    import zmq

    socket = zmq.Context().socket(zmq.PULL)
    socket.set_hwm(WINDOW)
    print(f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}", flush=True)
    receive = socket.recv
    while True:
        payloads = [receive() for _ in range(BATCH)]
        if meter.saw(len(payloads)):
            return


def zmq_sync_send(url: str, size: int) -> None:
    """Send by PUSH."""
    import zmq

    socket = zmq.Context().socket(zmq.PUSH)
    socket.set_hwm(WINDOW)
    socket.connect(url)
    data = bytes(size)
    while True:
        socket.send(data)


def relink_asyncio_receive(meter: Meter) -> None:
    """Receive over Relink, in an event loop."""
    from ackline.aio import relink

    async def receive() -> None:
        async with relink.listen("relink://127.0.0.1:0/bench") as listener:
            print(listener.url, flush=True)
            link = await listener.accept()
            while True:
                messages = await link.receive_many(BATCH)
                payloads = [message.payload for message in messages]
                link.consume_many(messages)
                if meter.saw(len(payloads)):
                    await link.close(timeout=0)
                    return

    asyncio.run(receive())


def relink_asyncio_send(url: str, size: int) -> None:
    """Send over Relink, in an event loop."""
    from ackline.aio import relink

    async def send() -> None:
        link, batch = await relink.connect(url), [bytes(size)] * BATCH
        while True:
            await link.send_many(1, batch)

    asyncio.run(send())


def zmq_asyncio_receive(meter: Meter) -> None:
    """Receive by PULL, in an event loop."""
    import zmq
    import zmq.asyncio

    async def receive() -> None:
        socket = zmq.asyncio.Context().socket(zmq.PULL)
        socket.set_hwm(WINDOW)
        print(f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}", flush=True)
        while True:
            payloads = [await socket.recv() for _ in range(BATCH)]
            if meter.saw(len(payloads)):
                return

    asyncio.run(receive())


def zmq_asyncio_send(url: str, size: int) -> None:
    """Send by PUSH, in an event loop."""
    import zmq
    import zmq.asyncio

    async def send() -> None:
        socket = zmq.asyncio.Context().socket(zmq.PUSH)
        socket.set_hwm(WINDOW)
        socket.connect(url)
        data = bytes(size)
        while True:
            await socket.send(data)

    asyncio.run(send())


RECEIVERS: dict[str, Callable[[Meter], None]] = {
    "relink-sync": relink_sync_receive,
    "zmq-sync": zmq_sync_receive,
    "relink-asyncio": relink_asyncio_receive,
    "zmq-asyncio": zmq_asyncio_receive,
}
SENDERS: dict[str, Callable[[str, int], None]] = {
    "relink-sync": relink_sync_send,
    "zmq-sync": zmq_sync_send,
    "relink-asyncio": relink_asyncio_send,
    "zmq-asyncio": zmq_asyncio_send,
}


def processor_seconds(*processes: subprocess.Popen[Any]) -> float:
    """Return user and system time of processes that run."""
    total = 0
    for process in processes:
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1]
        total += sum(int(ticks) for ticks in stat.split()[11:13])
    return total / TICK


def rate(kind: str, size: int, seconds: float) -> tuple[float, float]:
    """Return messages per second of one round, and nanoseconds of the processors for each."""
    me = [sys.executable, str(Path(__file__).resolve())]
    command = [*me, "receive", kind, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        if receiver.stdout is None:
            message = "no output"
            raise RuntimeError(message)
        url = receiver.stdout.readline().strip()
        with subprocess.Popen([*me, "send", kind, url, str(size)]) as sender:
            receiver.stdout.readline()
            before = processor_seconds(receiver, sender)
            measured, count = map(float, receiver.stdout.readline().split())
            spent = processor_seconds(receiver, sender) - before
            sender.send_signal(signal.SIGKILL)
        receiver.send_signal(signal.SIGKILL)
    return measured, 1e9 * spent / count


def measure(rounds: int, seconds: float) -> list[str]:
    """Return a table: both sides in interleaved rounds, and their ratio."""
    lines = [
        "| | Relink, messages/s | pyzmq's | ratio: median (range) | goal | CPU ns, Relink, pyzmq |",
        "|---|---|---|---|---|---|",
    ]
    for how, size, goal in CASES:
        sides = (f"relink-{how}", f"zmq-{how}")
        pairs = [[rate(side, size, seconds) for side in sides] for _ in range(rounds)]
        ours, theirs = (
            [statistics.median(column) for column in zip(*side, strict=True)]
            for side in zip(*pairs, strict=True)
        )
        ratios = sorted(one / other for (one, _), (other, _) in pairs)
        lines.append(
            f"| {how}, {size} B | {ours[0]:,.0f} | {theirs[0]:,.0f} | "
            f"{statistics.median(ratios):.1f} ({ratios[0]:.1f}-{ratios[-1]:.1f}) | {goal} | "
            f"{ours[1]:,.0f}, {theirs[1]:,.0f} |"
        )
    return lines


def main(arguments: list[str]) -> None:
    """Run one side."""
    with contextlib.suppress(KeyboardInterrupt):
        if arguments[0] == "receive":
            RECEIVERS[arguments[1]](Meter(float(arguments[2])))
        else:
            SENDERS[arguments[1]](arguments[2], int(arguments[3]))


if __name__ == "__main__":
    main(sys.argv[1:])
