"""Peers of `bpmux.serve` that send requests and give no credit for the responses."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import harness
import pytest
import wire

from ackline import bpmux
from ackline.sansio import Machine

MEMORY = 64 * harness.MIB
RESPONSE = 1_000_000
PEERS = 12
CONCURRENCY = 4

SERVER = f"""
import threading

from ackline import bpmux


def serve(connection):
    connection.serve(on_request=lambda request: b"y" * {RESPONSE}, concurrency={CONCURRENCY})

with bpmux.listen("bpmux://127.0.0.1:0", memory={MEMORY}) as listener:
    print(listener.url, flush=True)
    for connection in listener:
        threading.Thread(target=serve, args=[connection], daemon=True).start()
"""


@contextlib.contextmanager
def served(memory: int = MEMORY) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that answers each request with a megabyte, and its URL."""
    command = [sys.executable, "-c", SERVER.replace(str(MEMORY), str(memory))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def asks_on(port: int, source: str, is_over: threading.Event) -> None:
    """Sends requests as fast as it may, and takes no response."""
    end = Machine("bpmux", "endpoint")
    with contextlib.closing(wire.connected(port, source)) as peer:
        peer.settimeout(0.05)
        while not is_over.is_set():
            for _ in range(20):
                end.call(0, "request", id=end.call(0, "free_request_id"), payload=b"ask")
            while data := end.poll_transmit(0):
                peer.sendall(data)
            with contextlib.suppress(TimeoutError):
                end.receive(0, peer.recv(1 << 16))
            while end.poll_event():
                pass


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_responses_that_nobody_takes_cost_the_memory_and_nothing_more() -> None:
    """Each peer has asked for hundreds of megabytes; another one is served meanwhile."""
    is_over = threading.Event()
    with served() as (process, url), bpmux.connect(url) as good:
        port = urlsplit(url).port
        assert port is not None
        peers = [
            threading.Thread(target=asks_on, args=[port, f"127.0.0.{10 + at}", is_over])
            for at in range(PEERS)
        ]
        for peer in peers:
            peer.start()
        peak, answered, until = 0.0, 0, time.monotonic() + 8
        while time.monotonic() < until:
            assert len(good.call(b"ask", timeout=10)) == RESPONSE
            answered += 1
            peak = max(peak, harness.resident(process.pid))
        is_over.set()
        for peer in peers:
            peer.join(10)
        at_work = PEERS * (CONCURRENCY + 1) * RESPONSE / harness.MIB
        print(f"{answered} answered, {peak:.0f} MiB, {process.pid}")
        assert answered > 20
        waiting = MEMORY / 8 / harness.MIB
        assert peak <= harness.formula(MEMORY, PEERS) + waiting + at_work


def is_over(peer: socket.socket) -> bool:
    """Whether the other end has ended; its bytes are dropped."""
    peer.setblocking(False)
    try:
        while data := peer.recv(1 << 16):
            assert data
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.alone
@pytest.mark.timeout(180)
def test_responses_of_many_peers_that_drip_stay_within_their_room() -> None:
    """Each of 500 peers asks and gives a byte of credit a second; another is served meanwhile."""
    memory, drip, ended = 32 * harness.MIB, encoded_credit(), set[int]()
    peers: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        process, url = stack.enter_context(served(memory))
        port = urlsplit(url).port
        assert port is not None
        for at in range(500):
            peer = wire.connected(port, f"127.0.{1 + at // 200}.{10 + at % 200}")
            peers.append(stack.enter_context(contextlib.closing(peer)))
        for peer in peers:
            # The first bytes are credit for requests.
            peer.settimeout(30)
            assert peer.recv(1 << 10)
        good = stack.enter_context(bpmux.connect(url))
        assert len(good.call(b"ask", timeout=10)) == RESPONSE
        before = harness.resident(process.pid)
        for peer in peers:
            end = Machine("bpmux", "endpoint")
            end.receive(0, b"\xec\x7f")
            for _ in range(CONCURRENCY):
                end.call(0, "request", id=end.call(0, "free_request_id"), payload=b"ask")
            peer.sendall(end.poll_transmit(0))
        peak, answered, until = 0.0, 0, time.monotonic() + 20
        next_drip = 0.0
        while time.monotonic() < until:
            assert len(good.call(b"ask", timeout=20)) == RESPONSE
            answered += 1
            peak = max(peak, harness.resident(process.pid))
            if time.monotonic() < next_drip:
                continue
            next_drip = time.monotonic() + 1
            for at, peer in enumerate(peers):
                if at not in ended and is_over(peer):
                    ended.add(at)
                if at not in ended:
                    with contextlib.suppress(ConnectionError):
                        peer.sendall(drip)
        print(f"{answered} answered, {len(ended)} ended, {before:.0f} to {peak:.0f} MiB")
        assert answered > 20
        at_work = (CONCURRENCY + 1) * 4 * RESPONSE / harness.MIB
        assert peak - before <= 64 + memory / 8 / harness.MIB + at_work


def encoded_credit() -> bytes:
    """The chunk that gives a byte of top-level credit."""
    end = Machine("bpmux", "endpoint")
    end.call(0, "grant_credit", target="top", amount=1)
    return end.poll_transmit(0)
