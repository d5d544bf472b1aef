"""The limits of a transaction to Relink: announced before a row is sent, refused as a whole.

Both ends have all their defaults unless a test says otherwise.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from harness import LumberjackSender
from ledger import Ledger
from queries import durable
from sinks import events, ids, listening, url_of, write

from ackline import _core
from ackline.exceptions import LinkLost, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Receiver
    from pyspark.sql import SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)

OPTIONS: dict[str, Any] = {"timeout": 60}
MIB = 1 << 20
MOST = 32 * MIB + (16 << 10)
"""Undecided bytes of a link of a receiver with the default --memory of 256 MiB: an eighth."""


def texts(count: int, size: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(["x" * size] * count)})


def sink_to(url: str, **options: Any) -> _core.RelinkSink:
    return _core.RelinkSink(url, {"raw": True} | OPTIONS | options)


def prepared(sink: _core.RelinkSink) -> bytes:
    _, state = sink.finish()
    assert state is not None
    return state


def test_a_partition_with_all_defaults_is_committed_whole_or_refused_before_any_row_is_seen(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = listening(receive, tmp_path / "spool")
    frame = spark.range(0, 100_000, 1, 1).selectExpr("id", "repeat('x', 300) AS text")
    with pytest.raises(Exception, match=r"the receiver takes \d+ in one transaction") as raised:
        write(frame, url_of(receiver))
    text = str(raised.value)
    assert re.search(r"relink://127.0.0.1:\d+/t: the rows of partition 0 do not fit", text)
    assert f"takes {MOST} in one transaction, with 64 for each row" in text
    assert "None of them is committed: use more partitions" in text
    assert durable(receiver.spool) == 0
    write(frame.repartition(2), url_of(receiver))
    assert ids(events(receiver.spool)) == list(range(100_000))


def test_rows_far_above_a_window_are_one_transaction(receive: Receive, tmp_path: Path) -> None:
    receiver = listening(receive, tmp_path / "spool")
    sink = sink_to(url_of(receiver))
    sink.write(texts(300_000, 10))
    state = prepared(sink)
    assert durable(receiver.spool) == 0
    _core.RelinkSink.commit(url_of(receiver), OPTIONS, [(0, state)])
    assert durable(receiver.spool) == 300_000
    # One block: no reader sees a part of it.
    found = pa.table(_core.Spool(str(receiver.spool)).read(columns=["stream", "sequence"]))
    assert set(found["stream"].to_pylist()) == {"00000000"}
    assert found["sequence"].to_pylist() == list(range(300_000))


@pytest.mark.parametrize("above", [False, True])
def test_the_defaults_of_both_ends_fit_each_other_to_the_byte(
    receive: Receive, tmp_path: Path, *, above: bool
) -> None:
    receiver = listening(receive, tmp_path / "spool")
    sink = sink_to(url_of(receiver))
    rows, size = 32, (MOST // 32) - 64
    assert rows * (size + 64) == MOST
    sink.write(texts(rows - 1, size))
    if above:
        with pytest.raises(UsageError, match=f"takes {MOST} in one transaction"):
            sink.write(texts(1, size + 1))
        sink.abort()
        return
    sink.write(texts(1, size))
    _core.RelinkSink.commit(url_of(receiver), OPTIONS, [(0, prepared(sink))])
    assert durable(receiver.spool) == rows


def test_a_row_that_the_receiver_does_not_take_is_named_before_it_is_sent(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = listening(receive, tmp_path / "spool", "--max-message-bytes", "1000")
    sink = sink_to(url_of(receiver), partition=3)
    with pytest.raises(UsageError, match="row 5 of partition 3 is an event of 1001 bytes, and one"):
        sink.write(pa.record_batch({"value": ["x" * 1_000] * 5 + ["x" * 1_001]}))
    sink.abort()


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (("--receive-window", "10"), {}, "the receiver takes 10 in one transaction (its receive_w"),
        ((), {"batch_events": 10}, "a transaction has 10 at the most (batch_events)"),
        (("--receive-window", "9"), {"batch_events": 10}, "the receiver takes 9 in one transactio"),
        ((), {"batch_bytes": 100}, "a transaction has 100 at the most (batch_bytes)"),
        (("--memory", "1MiB"), {}, "the receiver takes 147456 in one transaction, with 64 for"),
    ],
)
def test_each_limit_is_told_by_its_name_and_no_row_is_seen(
    receive: Receive,
    tmp_path: Path,
    arguments: tuple[str, ...],
    options: dict[str, Any],
    text: str,
) -> None:
    receiver = listening(receive, tmp_path / "spool", *arguments)
    sink = sink_to(url_of(receiver), partition=7, **options)
    with pytest.raises(UsageError, match=re.escape(text)) as raised:
        sink.write(texts(20, 10_000))
    assert "the rows of partition 7 do not fit into one transaction" in str(raised.value)
    sink.abort()
    assert durable(receiver.spool) == 0


def test_a_listener_in_python_tells_its_window_too() -> None:
    with Ledger(receive_window=100) as ledger:
        sink = sink_to(ledger.url)
        sink.write(texts(100, 1))
        with pytest.raises(UsageError, match="the receiver takes 100 in one transaction"):
            sink.write(texts(1, 1))
        sink.abort()


@contextlib.contextmanager
def silent_listener() -> Iterator[str]:
    """A listener of another implementation: it answers one ping and announces no limit."""

    def serve() -> None:
        one, _ = server.accept()
        with one:
            stream = one.makefile("rb")
            assert len(stream.read(8)) == 8
            one.sendall(bytes(8))
            assert len(stream.read(24)) == 24
            one.sendall((1).to_bytes(8, "little") + (1).to_bytes(8, "little"))
            assert stream.read(8)[0] == 0x20, "a ping"
            one.sendall(b"\x40" + bytes(7))
            while stream.read1(65_536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = threading.Thread(target=serve)
        serving.start()
        yield f"relink://127.0.0.1:{server.getsockname()[1]}/t"
        serving.join(30)
        assert not serving.is_alive()


def test_a_receiver_that_tells_nothing_is_taken_to_have_the_default_window() -> None:
    with silent_listener() as url:
        sink = sink_to(url)
        sink.write(texts(65_536, 1))
        with pytest.raises(UsageError, match="65537 or more, and a transaction has 65536 at "):
            sink.write(texts(1, 1))
        sink.abort()


def test_oversized_transactions_pause_nobody_and_are_refused_at_once(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = listening(receive, tmp_path / "spool", "lumberjack://127.0.0.1:0")
    assert receiver.process is not None
    listens = next(line["urls"] for line in receiver.lines if line["event"] == "listening")
    port = int(next(url for url in listens if url.startswith("lumberjack")).rpartition(":")[2])
    states: list[bytes] = []
    refused: list[str] = []
    slowest = 0.0
    with LumberjackSender(port) as good:
        for _ in range(8):
            sink = sink_to(url_of(receiver))
            try:
                for _ in range(30):
                    sink.write(texts(1, MIB))
                states.append(prepared(sink))
            except LinkLost as error:
                refused.append(str(error))
                sink.abort()
            begin = time.monotonic()
            # Far above the bytes that a connection holds free of charge.
            good.send([b'{"message":"%s"}' % (b"x" * 20_000)] * 100)
            good.acknowledged()
            slowest = max(slowest, time.monotonic() - begin)
    assert (len(states), len(refused)) == (3, 5)
    assert slowest < 10, "a good peer is served as before"
    for text in refused:
        assert "the receiver does not take the transaction: messages that other links have" in text
        assert "all links may have half of the receiver's --memory" in text
        assert "none of the" in text
    _core.RelinkSink.commit(url_of(receiver), OPTIONS, list(enumerate(states)))
    assert durable(receiver.spool) == 800 + 3 * 30
    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{receiver.process.pid}/status").read_text())
    assert peak is not None
    assert int(peak[1]) << 10 < 450 * MIB
    # The refused transactions are rolled back: there is room again.
    sink = sink_to(url_of(receiver))
    sink.write(texts(30, MIB))
    assert _core.RelinkSink.roll_back(url_of(receiver), OPTIONS, [(0, prepared(sink))]) == 1
