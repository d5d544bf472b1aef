"""Bad input: the connection is closed with a line that names peer, rule, value and option.

Nobody else is disturbed, and memory stays under `--memory` and 64 MB over the idle process: the
fixture `receive` measures it at the end of every test.
"""

import contextlib
import socket
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pylogbeat
import pytest
from conftest import MEMORY, until
from wire import connect, until_closed

Receive = Callable[..., Any]


def window(count: int, version: bytes = b"2") -> bytes:
    return version + b"W" + struct.pack(">I", count)


def json_frame(sequence: int, payload: bytes = b'{"m":1}') -> bytes:
    return b"2J" + struct.pack(">II", sequence, len(payload)) + payload


def envelope(stream: bytes) -> bytes:
    return b"2C" + struct.pack(">I", len(stream)) + stream


def deflated_zeros(head: bytes, count: int) -> bytes:
    """Return the zlib stream of `head` and `count` zero bytes, made piece by piece."""
    deflate = zlib.compressobj(9)
    pieces = [deflate.compress(head)]
    block = bytes(1 << 20)
    pieces.extend(deflate.compress(block) for _ in range(count >> 20))
    return b"".join([*pieces, deflate.flush()])


def bad_adler(frames: bytes) -> bytes:
    stream = bytearray(zlib.compress(frames))
    stream[-1] ^= 1
    return envelope(bytes(stream))


def nested(depth: int) -> bytes:
    inner = json_frame(1)
    for _ in range(depth):
        inner = envelope(zlib.compress(inner))
    return inner


class Case(NamedTuple):
    name: str
    sent: bytes
    code: str
    offset: int | None
    value: int | None = None
    limit: int | None = None
    option: str | None = None
    answer: bytes = b""


MAX = 0xFFFFFFFF
ONE = json_frame(1)
CASES = [
    Case("unknown version", b"3W\0\0\0\1", "unknown_version", 0),
    Case("unknown type", b"2Z\0\0\0\1", "unknown_frame_type", 0),
    Case("http", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "link.http", None),
    Case(
        "tls hello",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        *("tls.unexpected", None),
        # An answer that a client of TLS cannot read tells it, and us, which side is wrong.
        answer=b"this port takes no TLS\r\n",
    ),
    Case(
        "proxy header",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 1\r\n",
        *("proxy.untrusted", None),
        option="--proxy-from",
    ),
    Case("ack from a writer", b"2A\0\0\0\1", "wrong_direction", 0),
    Case("window over-run", window(2) + envelope(zlib.compress(ONE * 3)), "overrun", 6),
    Case("premature window", window(2) + ONE + window(2), "premature_window", 6 + len(ONE)),
    Case("giant window", window(MAX), "window_too_large", 0, MAX, 65_536, "--max-window-events"),
    Case(
        "giant json",
        window(1) + b"2J" + struct.pack(">II", 1, MAX),
        *("frame_too_large", 6, MAX, 16 << 20, "--max-json-bytes"),
    ),
    Case(
        "giant envelope",
        window(1) + b"2C" + struct.pack(">I", MAX),
        *("frame_too_large", 6, MAX, 32 << 20, "--max-compressed-bytes"),
    ),
    Case(
        "pair bomb",
        window(1) + b"2D" + struct.pack(">II", 1, MAX),
        *("too_many_pairs", 6, MAX, 1024, "--max-pairs"),
    ),
    Case(
        "giant key",
        window(1) + b"2D" + struct.pack(">III", 1, 1, MAX),
        *("field_too_large", 6, MAX, 1 << 20, "--max-field-bytes"),
    ),
    Case(
        "pair bomb inside an envelope",
        window(1) + envelope(zlib.compress(b"2D" + struct.pack(">II", 1, MAX) + bytes(1 << 20))),
        *("too_many_pairs", 6, MAX, 1024, "--max-pairs"),
    ),
    Case(
        "nested envelope",
        window(1) + envelope(zlib.compress(envelope(zlib.compress(ONE)))),
        "nested_envelope",
        6,
    ),
    Case("a thousand envelopes in one", window(1) + nested(1_000), "nested_envelope", 6),
    Case("bad adler", window(1) + bad_adler(ONE), "zlib", 6),
    Case("no zlib", window(1) + envelope(b"nothing like it"), "zlib", 6),
    Case("trailing bytes", window(1) + envelope(zlib.compress(ONE) + b"x"), "trailing_bytes", 6),
    Case(
        "cut frame in an envelope",
        window(1) + envelope(zlib.compress(ONE[:-1])),
        "truncated_envelope",
        6,
    ),
    Case("empty json", window(1) + json_frame(1, b""), "empty_json", 6),
    Case("version mixed", window(1) + envelope(zlib.compress(b"1" + ONE[1:])), "version_mixed", 6),
]
BOMB = window(1) + envelope(deflated_zeros(b"2J" + struct.pack(">II", 1, 256 << 20), 256 << 20))


def send_all(peer: socket.socket, data: bytes) -> None:
    """Send as much as the receiver takes: it may close in the middle."""
    with contextlib.suppress(ConnectionError):
        peer.sendall(data)


@pytest.fixture(params=["spool", "discard"])
def receiver(request: pytest.FixtureRequest, receive: Receive, spool: Path) -> Any:
    kept = ["--spool", str(spool)] if request.param == "spool" else ["--discard"]
    return receive(*kept)


def test_each_is_refused_by_name_and_nobody_else_is_disturbed(receiver: Any) -> None:
    told: list[dict[str, Any]] = []
    with pylogbeat.PyLogBeatClient("127.0.0.1", receiver.port, timeout=10) as other:
        other.send([{"before": True}])
        for case in CASES:
            with connect(receiver.port) as peer:
                name = "{}:{}".format(*peer.getsockname())
                send_all(peer, case.sent)
                answer = until_closed(peer)
            # Also the window that is complete before the over-run: both are seen at once, and a
            # connection that has broken a rule is acknowledged nothing more.
            assert answer == case.answer, case.name

            # A later connection may have the port of an earlier one.
            def is_new(line: dict[str, Any], name: str = name) -> bool:
                return bool(line["peer"] == name) and line not in told

            line = receiver.wait("refused", is_new)
            told.append(line)
            expected = {
                "protocol": "lumberjack",
                "code": case.code if "." in case.code else f"lumberjack.{case.code}",
                "offset": case.offset,
                "value": case.value,
                "limit": case.limit,
                "option": case.option,
            }
            assert {key: line[key] for key in expected} == expected, case.name
            assert line["message"]
            other.send([{"after": case.name}])
    assert len(receiver.seen("refused")) == len(CASES)
    stats = receiver.newer_stats()
    assert stats["refused"] == len(CASES)
    assert stats["acked_events"] == len(CASES) + 1
    assert receiver.stop() == 0


def test_eight_zlib_bombs_at_once_are_refused_in_bounded_memory(receiver: Any) -> None:
    assert len(BOMB) < 270_000
    peers = [connect(receiver.port) for _ in range(8)]
    threads = [threading.Thread(target=send_all, args=(peer, BOMB)) for peer in peers]
    for thread in threads:
        thread.start()
    with pylogbeat.PyLogBeatClient("127.0.0.1", receiver.port, timeout=20) as other:
        other.send([{"meanwhile": True}] * 100)
    for peer, thread in zip(peers, threads, strict=True):
        thread.join(20)
        assert until_closed(peer) == b""
        peer.close()
    lines = until(
        lambda: len(receiver.seen("refused")) == 8 and receiver.seen("refused"), "8 refusals"
    )
    for line in lines:
        assert line["code"] == "lumberjack.inflated_too_large"
        assert (line["limit"], line["option"]) == (100 << 20, "--max-inflated-bytes")
        assert line["value"] > line["limit"]
        assert line["offset"] == 6
    assert receiver.stop() == 0


def test_many_half_sent_frames_stay_inside_the_memory_budget(receiver: Any) -> None:
    # Each announces 8 MiB and sends all but its last byte: 40 of them are 320 MiB.
    size = 8 << 20
    head = window(1) + b"2J" + struct.pack(">II", 1, size)
    peers = [connect(receiver.port) for _ in range(40)]
    threads = [
        threading.Thread(target=send_all, args=(peer, head + b" " * (size - 1))) for peer in peers
    ]
    for thread in threads:
        thread.start()
    receiver.wait("paused", lambda line: line["reason"] == "memory")
    with pylogbeat.PyLogBeatClient("127.0.0.1", receiver.port, timeout=20) as other:
        other.send([{"small": "passes"}])
    assert receiver.newer_stats()["memory_bytes"] <= MEMORY
    for peer in peers:
        peer.shutdown(socket.SHUT_RDWR)
    for peer, thread in zip(peers, threads, strict=True):
        thread.join(20)
        peer.close()
    until(lambda: receiver.newer_stats()["memory_bytes"] == 0, "the budget is free again", 30)
    with pylogbeat.PyLogBeatClient("127.0.0.1", receiver.port, timeout=20) as other:
        other.send([{"again": "x" * (4 << 20)}])
    assert receiver.stop() == 0


def test_silent_connections_cost_little(receiver: Any) -> None:
    idle = receiver.rss()
    peers = [connect(receiver.port) for _ in range(500)]
    until(lambda: receiver.newer_stats()["connections"] == 500, "500 connections")
    with pylogbeat.PyLogBeatClient("127.0.0.1", receiver.port, timeout=10) as other:
        other.send([{"still": "served"}])
    assert receiver.rss() - idle < 500 * (16 << 10) + (8 << 20)
    for peer in peers:
        peer.close()
    assert receiver.stop() == 0
