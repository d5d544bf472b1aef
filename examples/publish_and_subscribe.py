"""A publisher and its subscribers, as docs/publishers-and-subscribers.md tells.

`python examples/publish_and_subscribe.py publish reactive://127.0.0.1:0` prints where it listens.
Its subscribers are `... fast URL`, `... slow URL/numbers`, `... both URL` and `... by-hand URL`.
crates/ackline/examples/publish_and_subscribe.rs is the same in Rust, and either talks to the other.
"""

import itertools
import math
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from ackline import StreamFailed, reactive

SOON = 10.0
NUMBERS = np.arange(1_000_000, dtype="<f8")
READING = np.dtype([("time", "<u8"), ("sensor", "<u2"), ("celsius", "<f4")])


def publish(url: str) -> None:
    """Listen, and publish to every subscriber until Ctrl-C."""
    publishers = reactive.Publishers({"numbers": NUMBERS})
    publishers.add("sensors/*", sensor, element_size=READING.itemsize)
    with suppress(KeyboardInterrupt), reactive.listen(url) as listener:
        print(listener.url, flush=True)
        listener.serve(publishers)


def sensor(name: str) -> Iterator[bytes]:
    """Return the readings of a sensor; the text of an exception rejects the subscription."""
    number = name.removeprefix("sensors/")
    if not number.isdecimal():
        raise LookupError(f"there is no sensor {number}")
    return readings(int(number))


def readings(number: int) -> Iterator[bytes]:
    """Yield a reading every 10 ms while the subscriber requests more."""
    while True:
        now = time.time_ns()
        yield struct.pack("<QHf", now, number, 20 + math.sin(now / 1e9))
        time.sleep(0.01)


def fast(url: str) -> None:
    """Subscribe with a demand of 1,000."""
    with reactive.connect(url) as connection:
        with connection.subscribe("sensors/7", demand=1_000) as live:
            batches = live.arrays(READING)
            first = next(batches)[0]
            print("sensor:", first["sensor"])
        with connection.subscribe("numbers", demand=1_000) as numbers:
            print("fast:", summed(numbers))
        try:
            connection.subscribe("sensors/none")
        except StreamFailed as failed:
            print("rejected:", failed)


def summed(numbers: reactive.Subscription) -> str:
    """Read a stream of doubles to its end."""
    count, total = 0, 0.0
    for array in numbers.arrays("<f8"):
        count += len(array)
        total += array.sum()
    return f"{count} elements, sum {total:.0f}"


def slow(url: str) -> None:
    """Subscribe with a demand of 10, and take ten elements a second."""
    with reactive.subscribe(url, demand=10) as numbers:
        for taken in itertools.count(1):
            if numbers.receive() is None:
                return
            print("slow:", taken, flush=True)
            time.sleep(0.1)


def both(url: str) -> None:
    """Leave a stream unread, and read another one on the same connection."""
    with reactive.connect(url) as connection:
        unread = connection.subscribe("numbers", demand=10)
        with connection.subscribe("numbers", demand=1_000) as numbers:
            print("fast:", summed(numbers))
        waiting = unread.receive_many(timeout=SOON)
        print("slow:", len(waiting), "elements wait")


def by_hand(url: str) -> None:
    """Request elements one by one."""
    with reactive.connect(url) as connection:
        numbers = connection.subscribe("numbers", demand=3, automatic=False)
        first = [numbers.receive(timeout=SOON) for _ in range(3)]
        print("first:", len(first), "and", numbers.requested, "requested")
        numbers.request(1)
        print("next:", *struct.unpack("<d", numbers.receive(timeout=SOON) or b""))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["publish", url]:
            publish(url)
        case ["fast", url]:
            fast(url)
        case ["slow", url]:
            slow(url)
        case ["both", url]:
            both(url)
        case ["by-hand", url]:
            by_hand(url)
        case _:
            sys.exit("usage: publish_and_subscribe.py publish|fast|slow|both|by-hand URL")
