"""Connections that do no work: silent, slow, half-open, half-closed, reset, too many.

The rules are those of `test_hostile.py`: nobody else is disturbed, and memory keeps to its ceiling,
which the fixture `receive` measures.
"""

import resource
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pylogbeat
import pytest
import wire
from conftest import MEMORY, until
from wire import ack, data_frame, json_frame, window

Receive = Callable[..., Any]
IDLE, HALF_OPEN = 10_000, 1_000


def still_served(port: int, payload: str = "served") -> None:
    with pylogbeat.PyLogBeatClient("127.0.0.1", port, timeout=30) as other:
        other.send([{payload: True}])


@pytest.fixture
def many_files() -> Iterator[int]:
    """Raise the limit of open files for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE + HALF_OPEN + 1_000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))  # root may raise it
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield wanted
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def fill_half(peer: socket.socket, head: bytes, body: memoryview) -> None:
    """Send the frame's head and as much of the body as is taken at once."""
    peer.setblocking(False)
    peer.send(head)
    try:
        peer.send(body)
    except BlockingIOError:
        return


@pytest.mark.usefixtures("many_files")
def test_ten_thousand_idle_and_a_thousand_half_open_share_one_budget(
    receive: Receive, spool: Path
) -> None:
    waits = ("--first-byte-timeout", "300", "--stall-timeout", "300")
    room = ("--max-connections", str(2 * IDLE))
    receiver = receive("--spool", str(spool), *room, *waits)
    before = receiver.rss()
    # A tenth of the connections may be of one address before their first byte.
    sources = [f"127.0.1.{1 + number % 100}" for number in range(IDLE)]
    peers = [wire.connect(receiver.port, source=source) for source in sources]
    until(lambda: receiver.newer_stats()["connections"] == IDLE, "10,000 connections", 60)
    for_idle = receiver.rss() - before
    assert for_idle < IDLE * (16 << 10)
    receiver.ceiling += for_idle

    # Each announces 1 MiB and sends a half of it: 500 MB in all.
    half = memoryview(bytes(512 << 10))
    head = window(1) + b"2J" + struct.pack(">II", 1, 1 << 20)
    for _ in range(HALF_OPEN):
        peers.append(wire.connect(receiver.port))
        fill_half(peers[-1], head, half)
    receiver.wait("paused", lambda line: line["reason"] == "memory", timeout=60)
    stats = until(
        lambda: (s := receiver.newer_stats())["connections"] == IDLE + HALF_OPEN and s,
        "11,000 connections",
        60,
    )
    assert stats["memory_bytes"] <= MEMORY
    still_served(receiver.port)
    peers[0].sendall(window(1) + json_frame(1))
    assert wire.take(peers[0], 6) == ack(1)

    for peer in peers:
        peer.close()
    until(lambda: receiver.newer_stats()["connections"] == 0, "all are gone", 60)
    assert receiver.newer_stats()["memory_bytes"] == 0
    still_served(receiver.port)
    assert receiver.stop() == 0


def test_out_of_file_descriptors_accepting_waits_and_goes_on(receive: Receive) -> None:
    receiver = receive("--discard")
    resource.prlimit(receiver.process.pid, resource.RLIMIT_NOFILE, (64, 64))
    peers = [wire.connect(receiver.port) for _ in range(100)]
    # Those that were accepted are served all the while.
    peers[0].sendall(window(1) + json_frame(1))
    assert wire.take(peers[0], 6) == ack(1)
    assert receiver.newer_stats()["connections"] < 64
    for peer in peers[:70]:
        peer.close()
    last = peers[-1]
    last.sendall(window(1) + json_frame(1))
    assert wire.take(last, 6) == ack(1)
    for peer in peers:
        peer.close()
    until(lambda: receiver.newer_stats()["connections"] == 0, "all are gone")
    assert receiver.stop() == 0


def test_whoever_sends_nothing_or_stops_in_a_frame_is_closed(receive: Receive) -> None:
    times = ("--first-byte-timeout", "3", "--stall-timeout", "0.5")
    receiver = receive("--discard", *times)
    cut = {
        "silent": b"",
        "one byte": b"2",
        "half a window frame": window(1)[:3],
        "half a head": window(1) + json_frame(1)[:5],
        "half a body": window(1) + json_frame(1)[:-1],
        "an empty window": window(1),
        "half a window": window(2) + json_frame(1),
    }
    peers = {name: wire.connect(receiver.port) for name in cut}
    for name, peer in peers.items():
        peer.sendall(cut[name])
    for name, peer in peers.items():
        assert wire.until_closed(peer) == b"", name
        peer.close()
    receiver.wait("refused", lambda line: line["code"] == "link.timeout")
    until(lambda: len(receiver.seen("refused")) >= len(cut) - 1, "each is told")
    codes = {line["code"] for line in receiver.seen("refused")}
    assert codes == {"link.timeout", "lumberjack.timeout"}
    still_served(receiver.port)
    assert receiver.stop() == 0


def test_one_byte_now_and_then_costs_next_to_nothing(receive: Receive) -> None:
    receiver = receive("--discard", "--stall-timeout", "20", memory=8 << 20)
    before = receiver.rss()
    session = window(2) + json_frame(1) + json_frame(2)
    peers = [wire.connect(receiver.port) for _ in range(200)]
    for byte in session[:-1]:
        for peer in peers:
            peer.sendall(bytes([byte]))
    still_served(receiver.port)
    assert receiver.peak_rss() - before < 200 * (16 << 10) + (8 << 20)
    for peer in peers:
        peer.sendall(session[-1:])
    for peer in peers:
        assert wire.take(peer, 6) == ack(2)
        peer.close()
    assert not receiver.seen("refused")


def test_a_session_byte_by_byte_and_in_one_piece_gives_the_same(
    receive: Receive, spool: Path, events_of: Callable[[Path], list[dict[str, Any]]]
) -> None:
    receiver = receive("--spool", str(spool))
    frames = [json_frame(n + 1, b'{"n":%d}' % n) for n in range(20)]
    one = window(20) + wire.envelope(b"".join(frames))
    session = one + window(2, b"1") + data_frame(1) + data_frame(2)
    answer = ack(20) + ack(2, b"1")
    with wire.connect(receiver.port) as peer:
        peer.sendall(session)
        assert wire.take(peer, 12) == answer
    with wire.connect(receiver.port) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in session:
            peer.sendall(bytes([byte]))
        assert wire.take(peer, 12) == answer
    events = events_of(spool)
    seen = [(e["sequence"], e.get("payload"), e.get("parts")) for e in events]
    assert len(seen) == 44
    assert seen[:22] == seen[22:]


def test_whole_windows_of_a_half_closed_connection_are_acknowledged(
    receive: Receive, spool: Path
) -> None:
    receiver = receive("--spool", str(spool))
    with wire.connect(receiver.port) as peer:
        peer.sendall(window(2) + json_frame(1) + json_frame(2) + window(2) + json_frame(1))
        peer.shutdown(socket.SHUT_WR)
        assert wire.until_closed(peer) == ack(2)
    with wire.connect(receiver.port) as peer:
        peer.sendall(window(2) + json_frame(1))
        peer.shutdown(socket.SHUT_WR)
        assert wire.until_closed(peer) == b""
    stats = until(
        lambda: (s := receiver.newer_stats())["connections"] == 0 and s["durable"] == 2 and s,
        "the whole window is kept",
    )
    assert (stats["acked_events"], stats["landed_unacked"]) == (2, 0)
    assert stats["refused"] == 0
    assert receiver.stop() == 0


def test_resets_in_every_state_disturb_nobody(receive: Receive, spool: Path) -> None:
    receiver = receive("--spool", str(spool))
    session = window(2) + json_frame(1) + json_frame(2)
    for cut in range(len(session) + 1):
        peer = wire.connect(receiver.port)
        peer.sendall(session[:cut])
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    still_served(receiver.port)
    until(lambda: receiver.newer_stats()["connections"] == 0, "all are gone")
    stats = receiver.newer_stats()
    assert (stats["memory_bytes"], stats["refused"]) == (0, 0)
    assert receiver.stop() == 0


def test_acks_that_nobody_reads_cost_bounded_memory(receive: Receive) -> None:
    # Each empty window makes us answer six bytes; the peer sends 60 MB of them and reads nothing.
    receiver = receive("--discard", memory=16 << 20)
    with wire.connect(receiver.port) as peer:
        # Not so small that the kernel hands the rest over in pieces of a few bytes.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 10)
        peer.setblocking(False)
        block, sent = window(0) * 10_000, 0
        deadline = time.monotonic() + 30
        while sent < 60_000_000 and time.monotonic() < deadline:
            if not select.select([], [peer], [], 1)[1]:
                break  # it takes no more, as it was asked to
            sent += peer.send(block)
        assert sent < 60_000_000
        still_served(receiver.port)
        # A peer that reads at last gets each answer.
        peer.setblocking(True)
        peer.settimeout(20)
        whole = sent // 6
        assert wire.take(peer, 6 * whole) == ack(0) * whole
    assert receiver.stop() == 0


def test_a_sender_that_reads_nothing_before_all_is_sent_does_not_deadlock(
    receive: Receive, spool: Path
) -> None:
    receiver = receive("--spool", str(spool), "--max-unacked-windows", "4")
    windows = 2_000
    with wire.connect(receiver.port) as peer:
        peer.sendall((window(1) + json_frame(1, b"x" * 5000)) * windows)
        assert wire.take(peer, 6 * windows) == ack(1) * windows
    assert receiver.stop() == 0


def test_a_process_that_was_suspended_goes_on(receive: Receive, spool: Path) -> None:
    receiver = receive("--spool", str(spool), "--idle-timeout", "5", "--stall-timeout", "5")
    with wire.connect(receiver.port) as busy, wire.connect(receiver.port) as idle:
        idle.sendall(window(1) + json_frame(1))
        assert wire.take(idle, 6) == ack(1)
        busy.sendall(window(1) + json_frame(1)[:9])
        receiver.wait("stats", lambda stats: stats["connections"] == 2)
        receiver.process.send_signal(signal.SIGSTOP)
        # Its rest arrives while the process does not run, for longer than it may stall.
        busy.sendall(json_frame(1)[9:])
        time.sleep(6)  # the suspension itself, not a wait for something
        receiver.process.send_signal(signal.SIGCONT)
        assert wire.until_closed(idle) == b""
        # It may notice that it is late, and say so, before it reads the input.
        frames = wire.until_closed(busy)
        assert frames.replace(wire.KEEPALIVE, b"") in (ack(1), b"")
    still_served(receiver.port)
    assert receiver.stop() == 0


def test_a_thousand_keys_in_each_event_and_a_million_in_all(receive: Receive) -> None:
    receiver = receive("--discard")

    def event(number: int) -> bytes:
        stride = [(struct.pack(">Q", (number << 40) | (n << 10)), b"") for n in range(1024)]
        return data_frame(number + 1, stride)

    with wire.connect(receiver.port) as peer:
        for first in range(0, 1000, 100):
            frames = [event(number) for number in range(first, first + 100)]
            threading.Thread(
                target=peer.sendall, args=(window(100, b"1") + b"".join(frames),)
            ).start()
            assert wire.take(peer, 6) == ack(first + 100, b"1")
    assert receiver.newer_stats()["acked_events"] == 1000
    assert receiver.stop() == 0
