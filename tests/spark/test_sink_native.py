"""A task's sender and its receiver: resends, and replies that count as answers."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import pyarrow as pa
import pytest

from ackline import _core
from ackline.exceptions import LinkLost, UsageError

Serve = Callable[["Connection", int], None]


class Connection:
    """The receiver's end of one connection, event by event."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.file = stream.makefile("rb")

    def window(self) -> list[int]:
        """Read one window of plain frames; return its events' ids, nothing at the end."""
        head = self.file.read(6)
        if len(head) < 6:
            return []
        kind, count = struct.unpack(">2sI", head)
        assert kind == b"2W"
        return [self.event() for _ in range(count)]

    def event(self) -> int:
        kind, _, length = struct.unpack(">2sII", self.file.read(10))
        assert kind == b"2J"
        return int(json.loads(self.file.read(length))["id"])

    def ack(self, count: int) -> None:
        self.stream.sendall(struct.pack(">2sI", b"2A", count))


class Server:
    """Listens, and hands each connection with its number to `serve`, one after the other."""

    def __init__(self, serve: Serve) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._serve = serve
        self.url = f"lumberjack://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes a listener that waits.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)

    def _run(self) -> None:
        number = 0
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            # Some tests want a sender that gave up.
            with stream, contextlib.suppress(ConnectionError):
                self._serve(Connection(stream), number)
            number += 1


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(first, first + count), pa.int64())})


def sink(url: str, **options: Any) -> _core.LumberjackSink:
    plain = {"timeout": 20, "compression": None, "batch_events": 50}
    return _core.LumberjackSink(url, plain | options)


def send(sender: _core.LumberjackSink, count: int) -> tuple[int, int, int]:
    sender.write(rows(0, count))
    return sender.finish()


def test_only_unacknowledged_rows_are_sent_again() -> None:
    windows: list[list[list[int]]] = []

    def serve(peer: Connection, number: int) -> None:
        windows.append([])
        while ids := peer.window():
            windows[-1].append(ids)
            if number == 0 and len(windows[-1]) == 2:
                peer.ack(20)  # of the second window, then the connection ends
                return
            peer.ack(len(ids))

    with Server(serve) as server:
        # One window at a time: a third one may not be on its way when the connection ends.
        sender = sink(server.url, max_in_flight=1)
        sender.write(rows(0, 200))
        assert sender.finish() == (200, 30, 1)
    first, second = windows
    assert first == [list(range(50)), list(range(50, 100))]
    assert [n for ids in second for n in ids] == list(range(70, 200))


def test_silence_ends_the_task_with_host_and_counts() -> None:
    over = threading.Event()

    def serve(peer: Connection, _: int) -> None:
        peer.ack(len(peer.window()))
        over.wait(20)

    with Server(serve) as server:
        sender = sink(server.url, timeout=3, read_timeout=20)
        try:
            with pytest.raises(LinkLost) as error:
                send(sender, 120)
        finally:
            over.set()
    assert error.value.unacknowledged == 70
    assert str(error.value) == (
        f"no acknowledgement from {server.url} for 3 s: 50 rows are acknowledged, 70 of the 120 "
        "read so far are not"
    )


def test_keepalives_are_no_acknowledgements_and_late_ones_are() -> None:
    pace: list[float] = []

    def serve(peer: Connection, _: int) -> None:
        while ids := peer.window():
            # Longer than the timeout in all, but each part is acknowledged within it.
            for part in range(10, len(ids) + 1, 10):
                time.sleep(0.5)
                peer.ack(part)
            pace.append(time.monotonic())

    with Server(serve) as server:
        sender = sink(server.url, timeout=3, read_timeout=20, max_in_flight=1)
        before = time.monotonic()
        sender.write(rows(0, 100))
        assert sender.finish() == (100, 0, 0)
    assert pace[-1] - before > 4

    def only_alive(peer: Connection, _: int) -> None:
        peer.window()
        while True:
            peer.ack(0)
            time.sleep(0.1)

    with Server(only_alive) as server:
        sender = sink(server.url, timeout=0.5)
        with pytest.raises(LinkLost, match="0 rows are acknowledged, 50 of the 50 read"):
            send(sender, 50)


def test_a_host_that_is_down_is_left_to_the_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        dead = probe.getsockname()[1]
    got: list[int] = []

    def serve(peer: Connection, _: int) -> None:
        while ids := peer.window():
            got.extend(ids)
            peer.ack(len(ids))

    with Server(serve) as server:
        hosts = server.url.replace("://", f"://127.0.0.1:{dead},")
        urls = f"lumberjack://127.0.0.1:{dead},{server.url}"
        for url in (hosts, urls):
            sender = sink(url)
            sender.write(rows(0, 300))
            sender.write(rows(300, 300))
            assert sender.finish()[0] == 600
            assert sorted(got) == list(range(600))
            got.clear()


def test_a_silent_host_is_left_to_the_other_before_the_timeout() -> None:
    over, has_some = threading.Event(), threading.Event()
    arrived: list[int] = []

    def silent(peer: Connection, _: int) -> None:
        peer.window()
        has_some.set()
        over.wait(20)

    def serve(peer: Connection, _: int) -> None:
        # The host that is connected first gets everything: that must not be this one.
        if not has_some.is_set():
            return
        while ids := peer.window():
            arrived.extend(ids)
            peer.ack(len(ids))

    with Server(silent) as hole, Server(serve) as healthy:
        sender = sink(f"{hole.url},{healthy.url}", timeout=6)
        try:
            rows_sent, repeats, _ = send(sender, 500)
        finally:
            over.set()
    assert (rows_sent, sorted(set(arrived))) == (500, list(range(500)))
    assert has_some.is_set()
    assert repeats > 0


def test_a_row_above_the_limit_is_named() -> None:
    limit = 16 << 20

    def serve(peer: Connection, _: int) -> None:
        peer.file.read()

    with Server(serve) as server:
        sender = sink(server.url, raw=True, partition=7)
        texts = pa.array([b"{}", b"x" * limit, b"x" * (limit + 1)], pa.binary())
        with pytest.raises(UsageError) as error:
            sender.write(pa.record_batch({"value": texts}))
        sender.abort()
    assert str(error.value) == (
        f"row 2 of partition 7 is an event of {limit + 1} bytes, and one has {limit} at the most"
    )


def test_rows_whose_json_is_much_longer_than_their_columns_are_cut_into_windows() -> None:
    sizes: list[int] = []

    def serve(peer: Connection, _: int) -> None:
        while ids := peer.window():
            sizes.append(len(ids))
            peer.ack(len(ids))

    long = pa.record_batch({"id": range(1000), "x" * 20_000: pa.nulls(1000, pa.int8())})
    with Server(serve) as server:
        # 20 MB of names, which the sender's buffer could not hold at once.
        sender = sink(server.url, batch_bytes=100_000, batch_events=2048, keep_nulls=True)
        sender.write(long)
        assert sender.finish()[0] == 1000
    assert sum(sizes) == 1000
    assert max(sizes) == 4


def test_batches_of_another_schema_and_rows_without_a_form_are_refused() -> None:
    def serve(peer: Connection, _: int) -> None:
        while ids := peer.window():
            peer.ack(len(ids))

    with Server(serve) as server:
        sender = sink(server.url)
        sender.write(rows(0, 10))
        with pytest.raises(UsageError, match="another schema"):
            sender.write(pa.record_batch({"other": [1]}))
        sender.abort()
        interval = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
        with pytest.raises(UsageError, match=r"column i is Interval\(MonthDayNano\)"):
            sink(server.url).write(pa.record_batch({"i": interval}))


def test_invalid_native_options_are_refused() -> None:
    url = "lumberjack://127.0.0.1:1"
    for options, text in (
        ({"bogus": 1}, "bogus"),
        ({"timeout": None}, "timeout is missing"),
        ({"batch_events": 0}, "batch_events is 0; it is a whole number from 1"),
        ({"compression": 10}, "compression is 10"),
    ):
        with pytest.raises(UsageError, match=text):
            sink(url, **options)
