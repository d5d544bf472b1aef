"""Hostile peers of bpmux at a receiver, under the rules of `test_hostile.py`."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wire import connect, take, until_closed

from ackline import bpmux

Receive = Callable[..., Any]
URL = "bpmux://127.0.0.1:0"
TOP, OWN = 3, 0

# Types of chunks.
CLOSE_SINK, MSG, REQ, SINK, DUPLEX, HEARTBEAT, CREDIT, PARTIAL = 4, 6, 8, 10, 12, 13, 14, 15
CANCEL_REQ, CANCEL_STREAM = 0, 2
WIDTHS = (1, 2, 4, 8)


def number(value: int) -> tuple[int, bytes]:
    """The width code of a number, and its bytes."""
    code = next(code for code, width in enumerate(WIDTHS) if value < 1 << (8 * width))
    return code, value.to_bytes(WIDTHS[code], "big")


def chunk(kind: int, target: int | None, value: int, payload: bytes = b"") -> bytes:
    """A chunk about a target, or about the top-level, with a number and a payload."""
    first, at = (3, b"") if target is None else number(target)
    second, amount = number(value)
    return bytes([kind << 4 | first << 2 | second]) + at + amount + payload


def whole(kind: int, target: int | None, payload: bytes = b"") -> bytes:
    return chunk(kind, target, len(payload), payload)


def credit(amount: int, target: int | None = None) -> bytes:
    return chunk(CREDIT, target, amount)


def partial(total: int) -> bytes:
    return chunk(PARTIAL, None, total)


PING = bytes([HEARTBEAT << 4 | 3])
FIRST_CREDIT = credit(4 << 10)
"""The first chunk of a receiver: the credit of its top-level."""
MAX = (1 << 64) - 1

CASES = [
    ("credit above 2^64-1", credit(MAX) + credit(1), "credit_overflow"),
    ("more than credit in the first chunk", whole(MSG, None, bytes(4_097)), "credit_exceeded"),
    (
        "a message of a sink before its credit",
        whole(SINK, 1) + chunk(MSG, 1, 4_097),
        "credit_exceeded",
    ),
    ("a declared total of 2^64-1", partial(MAX), "limit_exceeded"),
    ("a message of 2^64-1 bytes", chunk(MSG, None, MAX), "limit_exceeded"),
    ("more than the total", partial(3) + whole(MSG, None, b"four"), "partial_violation"),
    ("an activation before no payload", partial(3) + credit(1), "partial_violation"),
    ("a second activation", partial(3) + partial(3), "partial_violation"),
    (
        "a close inside of a message",
        whole(SINK, 1) + partial(3) + whole(MSG, 1) + whole(CLOSE_SINK, 1),
        "partial_violation",
    ),
    ("an id twice", whole(SINK, 7) + whole(DUPLEX, 7), "id_in_use"),
    ("a message on nothing", whole(MSG, 0), "unknown_id"),
    (
        "a close twice",
        whole(SINK, 1) + whole(MSG, 1) + whole(CLOSE_SINK, 1) + whole(CLOSE_SINK, 1),
        "already_ended",
    ),
    ("an acknowledgement of nothing", bytes([SINK << 4 | 3 << 2, 5]), "unexpected_acknowledgement"),
    (
        "a message after the top-level's close",
        whole(CLOSE_SINK, None) + whole(MSG, None),
        "top_level_closed",
    ),
    ("no chunk", bytes([0xD7]) * 20, "invalid_chunk"),
    ("a client of HTTP", b"GET / HTTP/1.1\r\n\r\n" * 2, "link.http"),
    ("a client of TLS", bytes.fromhex("16030100f8010000f40303") + bytes(300), "tls.unexpected"),
]


def send_all(peer: socket.socket, data: bytes) -> None:
    """Send as much as the receiver takes: it may close in the middle."""
    with contextlib.suppress(ConnectionError):
        peer.sendall(data)


@pytest.fixture
def receiver(receive: Receive, tmp_path: Path) -> Any:
    return receive("--spool", str(tmp_path / "spool"), url=URL)


@contextlib.contextmanager
def others_go_on(receiver: Any) -> Iterator[None]:
    """Another peer is connected all the time, and is served at the end."""
    with bpmux.connect(receiver.url) as other:
        yield
        sink = other.open_sink(timeout=20)
        sink.send_many([b"meanwhile"] * 10, timeout=20)
        sink.close(b"10", timeout=20)


def test_each_is_refused_by_name_and_nobody_else_is_disturbed(receiver: Any) -> None:
    with others_go_on(receiver):
        for name, sent, code in CASES:
            with connect(receiver.port) as peer:
                assert take(peer, len(FIRST_CREDIT)) == FIRST_CREDIT
                address = "{}:{}".format(*peer.getsockname())
                send_all(peer, sent)
                until_closed(peer)
            line = receiver.wait("refused", lambda line, at=address: line["peer"] == at)
            assert line["protocol"] == "bpmux"
            assert line["code"] == (code if "." in code else f"bpmux.{code}"), name
            assert line["message"], name
    assert len(receiver.seen("refused")) == len(CASES)
    assert receiver.stop() == 0


def test_sinks_that_are_opened_and_closed_at_line_rate_are_bounded(receiver: Any) -> None:
    with others_go_on(receiver), connect(receiver.port) as peer:
        take(peer, len(FIRST_CREDIT))
        round_ = b"".join(whole(SINK, at) + whole(CLOSE_SINK, at) for at in range(1_000))
        reader = threading.Thread(target=until_closed, args=(peer,))
        reader.start()
        for _ in range(200):
            peer.sendall(round_)
        # Behind all of them.
        peer.sendall(whole(REQ, 9, b"last"))
        receiver.wait("stats", lambda line: line["acked_events"] >= 1, timeout=60)
        peer.shutdown(socket.SHUT_WR)
        reader.join(20)
        assert not reader.is_alive()
    assert receiver.stop() == 0


def test_ids_without_end_are_bounded(receiver: Any) -> None:
    """Each id once: open entities are limited, closed ones are not remembered for ever."""
    with others_go_on(receiver), connect(receiver.port) as peer:
        take(peer, len(FIRST_CREDIT))
        reader = threading.Thread(target=until_closed, args=(peer,))
        reader.start()
        for first in range(0, 300_000, 1_000):
            ids = (((first + at) * 2_654_435_761) % (1 << 32) for at in range(1_000))
            peer.sendall(b"".join(whole(SINK, at) + whole(CLOSE_SINK, at) for at in ids))
        # None of these is closed.
        for first in range(0, 70_000, 1_000):
            send_all(peer, b"".join(whole(SINK, first + at) for at in range(1_000)))
        line = receiver.wait("refused", timeout=60)
        assert line["code"] == "bpmux.limit_exceeded"
        assert line["option"] in {"--max-entities", "--memory"}
        reader.join(20)
        assert not reader.is_alive()
    assert receiver.stop() == 0


def test_payloads_that_are_never_finished_are_bounded(receiver: Any) -> None:
    """As much of each of many sinks as credit is given for, on several connections."""
    with others_go_on(receiver), contextlib.ExitStack() as peers:
        for _ in range(4):
            peer = peers.enter_context(connect(receiver.port))
            take(peer, len(FIRST_CREDIT))
            for first in range(0, 8_000, 1_000):
                ids = range(first, first + 1_000)
                send_all(peer, b"".join(whole(SINK, at) for at in ids))
                with contextlib.suppress(ConnectionError, AssertionError):
                    # The credit of each: a tag, its id, two bytes.
                    take(peer, sum(1 + len(number(at)[1]) + 2 for at in ids))
                parts = (partial(1 << 20) + whole(MSG, at, bytes(4_096)) for at in ids)
                threading.Thread(target=send_all, args=(peer, b"".join(parts)), daemon=True).start()
        # They keep their memory, or are ended for it; nobody waits for them.
        with bpmux.connect(receiver.url) as other:
            assert other.call(b"asked", timeout=60) == b""
    assert receiver.stop() == 0


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(PING, id="pings"),
        pytest.param(whole(CANCEL_REQ, 5), id="cancels of no request"),
        pytest.param(whole(SINK, 0) + whole(CLOSE_SINK, 0), id="closes"),
        pytest.param(whole(DUPLEX, 0) + whole(CANCEL_STREAM, 0), id="duplexes"),
        pytest.param(whole(REQ, 1) + whole(CANCEL_REQ, 1), id="requests given up"),
        pytest.param(credit(0), id="credit of nothing"),
        pytest.param(whole(MSG, None), id="empty messages"),
    ],
)
def test_a_flood_whose_answers_are_not_read_is_bounded(receiver: Any, flood: bytes) -> None:
    with others_go_on(receiver), connect(receiver.port) as peer:
        peer.settimeout(3)
        data = flood * (65_536 // len(flood))
        # It takes all of it, or stops reading, or ends the connection.
        with contextlib.suppress(OSError):
            for _ in range(100):
                peer.sendall(data)
    assert receiver.stop() == 0
