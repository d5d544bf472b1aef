"""Peers of `ackline serve --echo` that take none of its responses."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

import harness
import pytest
import wire

from ackline import bpmux
from ackline.exceptions import AcklineError
from ackline.sansio import Machine
from ackline.sansio.types import BpmuxEndpointEvent

MESSAGE = 20_000
AHEAD = 300_000
"""Bytes that a peer has written and not yet sent."""


class Server(NamedTuple):
    """A server's process id, its URL and port, and its lines from then on."""

    pid: int
    url: str
    port: int
    output: Iterable[str]


@contextlib.contextmanager
def serving(*options: str) -> Iterator[Server]:
    """Starts one."""
    command = [sys.executable, "-m", "ackline.cli", "serve", "bpmux://127.0.0.1:0", "--echo"]
    with subprocess.Popen(
        [*command, "--json", *options], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            url = json.loads(process.stdout.readline())["urls"][0]
            port = urlsplit(url).port
            assert port is not None
            yield Server(process.pid, url, port, process.stdout)
        finally:
            process.kill()


def until_taken(output: Iterable[str]) -> None:
    """Reads until the server has taken sinks, and no more of them within a second."""
    before = 0
    for line in output:
        told = json.loads(line)
        if told["event"] == "stats":
            if told["sinks"] == before > 0:
                return
            before = told["sinks"]


class Peer:
    """Writes as far as the server gives credit, and gives none itself."""

    def __init__(self, port: int, source: str) -> None:
        """Connects."""
        self._socket = wire.connected(port, source)
        self._socket.setblocking(False)
        self._end = Machine("bpmux", "endpoint")
        self._out = b""
        self._given = self._sent = 0

    def opens(self, duplexes: int) -> list[int]:
        """Opens that many entities."""
        ids = []
        for _ in range(duplexes):
            ids.append(self._end.call(0, "free_id"))
            self._end.call(0, "open_duplex", id=ids[-1], payload=b"")
        return ids

    def turn(self, more: Callable[[Machine[BpmuxEndpointEvent]], int]) -> None:
        """Writes more as soon as earlier bytes have left."""
        with contextlib.suppress(BlockingIOError):
            self._end.receive(0, self._socket.recv(1 << 16))
        while self._end.poll_event():
            pass
        if self._given - self._sent < AHEAD:
            self._given += more(self._end)
        while data := self._end.poll_transmit(0):
            self._out += data
            self._sent += len(data)
        with contextlib.suppress(BlockingIOError):
            taken = self._socket.send(self._out[: 1 << 18])
            self._out = self._out[taken:]

    def is_ended(self) -> bool:
        """Whether the server ends the connection within ten seconds."""
        self._socket.settimeout(10)
        try:
            while self._socket.recv(1 << 16):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


def writes(duplexes: list[int]) -> Callable[[Machine[BpmuxEndpointEvent]], int]:
    """Sends a message on each entity."""

    def write(end: Machine[BpmuxEndpointEvent]) -> int:
        for one in duplexes:
            end.call(0, "send", target=("own", one), payload=b"x" * MESSAGE)
        return len(duplexes) * MESSAGE

    return write


def asks(end: Machine[BpmuxEndpointEvent]) -> int:
    """A megabyte that is to be answered."""
    end.call(0, "request", id=end.call(0, "free_request_id"), payload=b"x" * 1_000_000)
    return 1_000_000


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_echoes_that_nobody_takes_cost_a_quarter_of_the_memory() -> None:
    """400 peers have four duplexes each; another one is served meanwhile."""
    memory, count = 64 * harness.MIB, 400
    with serving("--memory", str(memory)) as (pid, url, port, _), contextlib.ExitStack() as stack:
        peers = []
        for at in range(count):
            peer = Peer(port, f"127.0.{1 + at // 200}.{10 + at % 200}")
            peers.append((peer, writes(peer.opens(4))))
            stack.callback(peer.close)
        good = stack.enter_context(bpmux.connect(url))
        peak, slowest, until = 0.0, 0.0, time.monotonic() + 7
        while time.monotonic() < until:
            for peer, more in peers:
                # It may have been ended.
                with contextlib.suppress(ConnectionError, AcklineError):
                    peer.turn(more)
            begun = time.monotonic()
            assert good.call(b"quick", timeout=10) == b"quick"
            slowest = max(slowest, time.monotonic() - begun)
            peak = max(peak, harness.resident(pid))
        echoes = memory / 4 / harness.MIB
        print(f"{peak:.0f} MiB, slowest call {slowest:.2f} s")
        assert peak <= harness.formula(memory, count) + echoes
        assert slowest < 2


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_payloads_that_open_streams_are_held_as_responses() -> None:
    """100 peers open streams with half a megabyte each, and give no credit for it to come back."""
    memory, count = 64 * harness.MIB, 100

    def opens(end: Machine[BpmuxEndpointEvent]) -> int:
        end.call(0, "open_stream", id=end.call(0, "free_id"), payload=b"x" * 500_000)
        return 500_000

    with serving("--memory", str(memory)) as (pid, url, port, _), contextlib.ExitStack() as stack:
        peers = [Peer(port, f"127.0.2.{10 + at}") for at in range(count)]
        for peer in peers:
            stack.callback(peer.close)
        good = stack.enter_context(bpmux.connect(url))
        duplex = stack.enter_context(good.open_duplex(b"", timeout=10))
        peak, slowest, until = 0.0, 0.0, time.monotonic() + 5
        while time.monotonic() < until:
            for peer in peers:
                with contextlib.suppress(ConnectionError, AcklineError):
                    peer.turn(opens)
            begun = time.monotonic()
            duplex.send(b"mine", timeout=10)
            assert duplex.receive(timeout=10) == b"mine"
            slowest = max(slowest, time.monotonic() - begun)
            peak = max(peak, harness.resident(pid))
        print(f"{peak:.0f} MiB, slowest echo {slowest:.2f} s")
        assert peak <= harness.formula(memory, count) + memory / 4 / harness.MIB
        assert slowest < 2


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_a_client_that_opens_thousands_over_and_over_costs_no_memory_and_delays_nobody() -> None:
    """Its connections end while their openings are still to be served."""
    end = Machine("bpmux", "endpoint")
    for _ in range(3_000):
        end.call(0, "open_duplex", id=end.call(0, "free_id"), payload=b"")
    opened = b"".join(iter(partial(end.poll_transmit, 0), b""))
    is_over = threading.Event()

    def storm(port: int) -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError), wire.connected(port, "127.0.0.9") as peer:
                peer.sendall(opened)

    with serving() as (pid, url, port, _), bpmux.connect(url) as good:
        good.call(b"quick", timeout=10)
        storms = [threading.Thread(target=storm, args=[port]) for _ in range(4)]
        for one in storms:
            one.start()
        peak, slowest, until = 0.0, 0.0, time.monotonic() + 7
        try:
            while time.monotonic() < until:
                begun = time.monotonic()
                assert good.call(b"quick", timeout=10) == b"quick"
                slowest = max(slowest, time.monotonic() - begun)
                peak = max(peak, harness.resident(pid))
        finally:
            is_over.set()
        for one in storms:
            one.join(10)
        print(f"{peak:.0f} MiB, slowest call {slowest:.2f} s")
        assert peak <= harness.formula(256 * harness.MIB, 100)
        assert slowest < 2


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_one_peer_that_opens_all_leaves_places_to_others() -> None:
    """It keeps thousands of sinks open and does nothing more."""
    with serving("--memory", "16MiB") as server, bpmux.connect(server.url) as greedy:
        held = [greedy.open_sink(b"", timeout=10) for _ in range(1_000)]
        until_taken(server.output)
        with bpmux.connect(server.url) as good:
            duplexes = [good.open_duplex(b"", timeout=10) for _ in range(50)]
            for duplex in duplexes:
                duplex.send(b"mine", timeout=10)
                assert duplex.receive(timeout=10) == b"mine"
            for duplex in duplexes:
                duplex.close(timeout=10)
        greedy.abort()
        assert len(held) == 1_000


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_a_peer_that_fills_the_room_slows_nobody_and_is_ended_at_twice_of_it() -> None:
    """It reads nothing: alone it waits, and when others bring more it is ended."""
    options = ("--memory", "4MiB", "--max-payload-bytes", "512KiB")
    with (
        serving(*options) as (_, url, port, _),
        contextlib.closing(Peer(port, "127.0.0.9")) as peer,
    ):
        more, until = writes(peer.opens(32)), time.monotonic() + 4
        while time.monotonic() < until:
            peer.turn(more)
            time.sleep(0.001)
        with bpmux.connect(url, credit="manual") as other, bpmux.connect(url) as good:
            with good.open_duplex(b"", timeout=10) as duplex:
                begun = time.monotonic()
                for _ in range(10):
                    duplex.send(b"mine", timeout=10)
                    assert duplex.receive(timeout=10) == b"mine"
                assert time.monotonic() - begun < 2
            for _ in range(3):
                other.open_duplex(b"", timeout=10).try_send(bytes(300_000))
            assert peer.is_ended()
            other.abort()


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_a_client_that_takes_short_answers_does_not_wait_for_those_that_take_none() -> None:
    """40 peers request a megabyte each, read nothing, and reconnect as soon as they are ended."""
    with serving("--memory", "64MiB") as (_, url, port, _), bpmux.connect(url) as good:
        for _ in range(10):
            good.call(b"quick", timeout=10)
        slowest = 0.0
        for _ in range(3):
            peers = [Peer(port, f"127.0.2.{10 + at}") for at in range(40)]
            until = time.monotonic() + 3
            while time.monotonic() < until:
                for peer in peers:
                    with contextlib.suppress(ConnectionError, AcklineError):
                        peer.turn(asks)
                begun = time.monotonic()
                assert good.call(b"quick", timeout=10) == b"quick"
                slowest = max(slowest, time.monotonic() - begun)
            for peer in peers:
                peer.close()
        print(f"slowest call {slowest:.2f} s")
        assert slowest < 1
