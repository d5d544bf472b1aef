"""The attacks: each is a hostile peer in a process of its own, for a limited time.

Run as ``python programs.py NAME PORT SECONDS SEED``. The lines that it prints help to see why a
test failed.
"""

import contextlib
import itertools
import random
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import wire
from wire import MIB, connected


@dataclass
class Attack:
    """One run of a program."""

    port: int
    until: float
    chance: random.Random

    @property
    def goes_on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.until

    def flood(self, peer: socket.socket, pieces: Iterator[bytes]) -> int:
        """Sends until the time is over or the receiver ends; answers are not read."""
        sent = 0
        try:
            for piece in pieces:
                rest = memoryview(piece)
                while rest and self.goes_on:
                    _, writable, _ = select.select([], [peer], [], 0.2)
                    if writable:
                        done = peer.send(rest)
                        sent, rest = sent + done, rest[done:]
                if not self.goes_on:
                    break
        except OSError:
            pass
        return sent

    def flood_all(self, peers: list[socket.socket], pieces: Callable[[], bytes]) -> None:
        """Sends pieces over all of them at once until the time is over; answers are not read."""
        rest = {peer: memoryview(pieces()) for peer in peers}
        for peer in peers:
            peer.setblocking(False)
        while self.goes_on and rest:
            _, writable, _ = select.select([], list(rest), [], 0.2)
            for peer in writable:
                try:
                    done = peer.send(rest[peer])
                except OSError:
                    del rest[peer]
                    continue
                rest[peer] = rest[peer][done:] or memoryview(pieces())
        if rest:
            self.rest()

    def rest(self) -> None:
        """Keeps everything as it is until the time is over."""
        time.sleep(max(0.0, self.until - time.monotonic()))


WITHIN = {"reactive_elements": 0.5, "reactive_elements_of_many": 0.5, "reactive_parts": 0.2}
"""Seconds for the good sender's p99 in any case, where others deliver megabytes to its disk."""

PROGRAMS: dict[str, tuple[str, Callable[[Attack], object]]] = {}


def attack(scheme: str) -> Callable[[Callable[[Attack], object]], Callable[[Attack], object]]:
    """Makes a function an attack on a receiver of this protocol."""

    def register(run: Callable[[Attack], object]) -> Callable[[Attack], object]:
        PROGRAMS[run.__name__] = (scheme, run)
        return run

    return register


def address(number: int) -> str:
    """One of the addresses of the loopback network."""
    return f"127.0.{2 + number // 250}.{1 + number % 250}"


@attack("lumberjack")
def shared_envelopes(it: Attack) -> None:
    """Small envelopes of several windows that inflate to 15 MiB each."""
    body = b'"' + b"a" * (15 * MIB) + b'"'
    message = wire.c2((wire.w2(1) + wire.j2(1, body)) * 6)
    while it.goes_on:
        with connected(it.port) as peer:
            it.flood(peer, iter([message] * 20))


@attack("lumberjack")
def shared_envelopes_below_the_ratio(it: Attack) -> None:
    """Envelopes of several windows that inflate to 60 times their bytes, from eight addresses."""
    noise = it.chance.randbytes(17_000)
    body = b'"' + (noise.hex().encode() + b"a" * 1_000_000) + b'"'
    message = wire.c2((wire.w2(1) + wire.j2(1, body)) * 2)
    it.flood_all([connected(it.port, address(number)) for number in range(8)], lambda: message)


@attack("lumberjack")
def bombs(it: Attack) -> None:
    """Envelopes that inflate to a thousand times their bytes, one window each."""
    body = b'"' + b"a" * (15 * MIB) + b'"'
    message = wire.w2(3) + wire.c2(b"".join(wire.j2(n, body) for n in (1, 2, 3)))
    peers = [connected(it.port) for _ in range(8)]
    while it.goes_on:
        for peer in peers:
            it.flood(peer, iter([message]))


@attack("lumberjack")
def half_windows(it: Attack) -> None:
    """Six connections fill the memory with windows that never end, then drip."""
    _half_windows(it, lambda _: "127.0.0.2")


@attack("lumberjack")
def half_windows_of_many_addresses(it: Attack) -> None:
    """The same from six addresses, so that none of them has much."""
    _half_windows(it, address)


def _half_windows(it: Attack, source: Callable[[int], str]) -> None:
    event = b'{"m":"' + b"x" * 15_000 + b'"}'
    peers = []
    for number in range(6):
        peer = connected(it.port, source(number))
        peers.append(peer)
        peer.settimeout(0.3)
        try:
            peer.sendall(wire.w2(65_536))
            for sequence in range(1, 600):
                peer.sendall(wire.j2(sequence, event))
        except OSError:
            pass
    while it.goes_on:
        for peer in peers:
            try:
                peer.send(b"2")
            except OSError:
                continue
        time.sleep(1)


@attack("lumberjack")
def window_frames(it: Attack) -> None:
    """Nothing but window frames, as fast as they go, over four connections."""
    frames = b"1W\0\0\0\x01" * 10_000
    it.flood_all([connected(it.port) for _ in range(4)], lambda: frames)


@attack("lumberjack")
def coming_and_going(it: Attack) -> int:
    """One address connects, delivers an event and goes, over and over."""
    event = wire.window([b'{"n":%d}' % it.chance.randrange(1 << 30)])
    for number in count():
        if not it.goes_on:
            return number
        try:
            with connected(it.port) as peer:
                peer.sendall(event)
                wire.received(peer, 6)
        except (OSError, EOFError):
            time.sleep(0.01)
    return 0


@attack("lumberjack")
def resets(it: Attack) -> None:
    """One address connects and resets the connection, over and over."""
    while it.goes_on:
        with contextlib.suppress(OSError), connected(it.port, timeout=1) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@attack("lumberjack")
def resets_of_many(it: Attack) -> None:
    """Sixteen addresses connect and reset the connection, over and over."""
    for number in itertools.cycle(range(16)):
        if not it.goes_on:
            return
        source = f"127.0.8.{10 + number}"
        with contextlib.suppress(OSError), wire.connected(it.port, source, timeout=1) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@attack("lumberjack")
def windows_left_behind(it: Attack) -> None:
    """Connections bring a window below the free part and go before its acknowledgement."""
    event = b'{"m":"' + b"x" * 15_000 + b'"}'
    window = wire.window([event] * 4)
    while it.goes_on:
        try:
            with connected(it.port) as peer:
                peer.sendall(window)
        except OSError:
            time.sleep(0.01)


@attack("lumberjack")
def one_address_fills_the_spool(it: Attack) -> None:
    """One address delivers incompressible bytes, without an end."""
    peer = connected(it.port)
    window = wire.window([b'"' + it.chance.randbytes(100_000).hex().encode() + b'"'] * 4)
    while it.goes_on:
        it.flood(peer, iter([window] * 100))


def begin_and_rest(it: Attack, count: int, addresses: int, beginning: bytes) -> int:
    """Opens connections that send a beginning and no more; returns how many."""
    peers = []
    for number in range(count):
        if not it.goes_on:
            break
        try:
            peer = connected(it.port, address(number % addresses))
            peer.send(beginning)
            peers.append(peer)
        except OSError:
            time.sleep(0.05)
    it.rest()
    return len(peers)


@attack("lumberjack")
def slow_starts(it: Attack) -> None:
    """Many connections of one address that send one byte and no more."""
    begin_and_rest(it, 800, 1, b"2")


@attack("lumberjack")
def idle_connections(it: Attack) -> None:
    """Thousands of connections of eight addresses that begin a window and send no more."""
    begin_and_rest(it, 4_000, 8, wire.w2(10))


@attack("lumberjack+tls")
def half_handshakes(it: Attack) -> None:
    """Handshakes of TLS that stop in the middle, as fast as they are accepted."""
    hello = wire.client_hello()
    peers = []
    while it.goes_on and len(peers) < 5_000:
        try:
            peer = connected(it.port, address(len(peers) % 8))
            peer.sendall(hello[: it.chance.randrange(1, len(hello))])
            peers.append(peer)
        except OSError:
            time.sleep(0.01)
    it.rest()


@attack("lumberjack+tls")
def whole_handshakes(it: Attack) -> None:
    """Handshakes of TLS that are answered, each left at once, as fast as they are accepted."""
    hello = wire.client_hello()
    while it.goes_on:
        try:
            with connected(it.port) as peer:
                peer.sendall(hello)
                peer.recv(1)
        except OSError:
            time.sleep(0.01)


@attack("lumberjack")
def garbage(it: Attack) -> None:
    """Random bytes, requests of HTTP and client hellos of TLS."""
    starts = [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01", b"2J", b"2C\xff\xff\xff\xff"]
    while it.goes_on:
        try:
            with connected(it.port, address(it.chance.randrange(200))) as peer:
                peer.sendall(it.chance.choice(starts) + it.chance.randbytes(5_000))
        except OSError:
            time.sleep(0.01)


def _links(it: Attack, number: int) -> list[socket.socket]:
    peers = []
    for at in range(number):
        peer = connected(it.port, address(at))
        wire.relink_shake(peer)
        peers.append(peer)
    return peers


def _flood_links(it: Attack, number: int, pieces: Callable[[], bytes]) -> None:
    it.flood_all(_links(it, number), pieces)


@attack("relink")
def multicasts(it: Attack) -> None:
    """Two links with packets of half a megabyte for 120 channels each."""
    packet = wire.relink_multicast(range(120), [b"m" * 500_000])
    _flood_links(it, 2, lambda: packet * 3)


@attack("relink")
def empty_parts(it: Attack) -> None:
    """Messages of 1,024 parts, all of them empty."""
    packet = wire.relink_message(7, [b""] * 1_024) * 16
    _flood_links(it, 4, lambda: packet)


@attack("relink")
def relink_pings(it: Attack) -> None:
    """Pings, whose pongs nobody reads."""
    _flood_links(it, 4, lambda: wire.RELINK_PING * 8_192)


@attack("relink")
def pinned_buffers(it: Attack) -> None:
    """Small messages, each between a quarter of a megabyte of nothing."""
    packet = wire.relink_message(7, [b"p" * 1_100]) + wire.RELINK_NOP * 32_768
    _flood_links(it, 4, lambda: packet)


@attack("relink")
def many_channels(it: Attack) -> None:
    """An empty message on each of as many channels as there may be."""
    numbers = count()
    _flood_links(
        it,
        4,
        lambda: b"".join(wire.relink_message(next(numbers), []) for _ in range(1_024)),
    )


@attack("relink")
def links_left_behind(it: Attack) -> int:
    """New links, each left at once, as fast as they are accepted."""
    for number in count():
        if not it.goes_on:
            return number
        try:
            with connected(it.port, address(number % 2)) as peer:
                wire.relink_shake(peer)
                peer.sendall(wire.relink_message(1, [b"x"]))
        except (OSError, EOFError):
            time.sleep(0.01)
    return 0


@attack("bpmux")
def bpmux_pings(it: Attack) -> None:
    """Pings over fifty connections, whose pongs nobody reads."""
    peers = [connected(it.port, address(number)) for number in range(50)]
    frames = wire.BPMUX_PING * 65_536
    for peer in peers:
        peer.setblocking(False)
    while it.goes_on:
        for peer in peers:
            try:
                peer.send(frames)
            except OSError:
                continue
        select.select([], peers, [], 0.2)


@attack("bpmux")
def bpmux_openings(it: Attack) -> None:
    """Sinks over twenty connections, opened without an end and never closed."""
    numbers = count()
    _flood_bpmux(it, lambda: b"".join(wire.bpmux_sink(next(numbers)) for _ in range(1_024)))


@attack("bpmux")
def bpmux_requests(it: Attack) -> None:
    """Empty requests over twenty connections, whose responses nobody reads."""
    numbers = count()
    _flood_bpmux(it, lambda: b"".join(wire.bpmux_request(next(numbers)) for _ in range(1_024)))


def _flood_bpmux(it: Attack, pieces: Callable[[], bytes]) -> None:
    while it.goes_on:
        it.flood_all([connected(it.port, address(number)) for number in range(20)], pieces)


def _flood_reactive(
    it: Attack, pieces: Callable[[], bytes], source: Callable[[int], str] = address
) -> None:
    while it.goes_on:
        peers = [connected(it.port, source(number)) for number in range(20)]
        for peer in peers:
            wire.reactive_shake(peer)
        it.flood_all(peers, pieces)


@attack("reactive")
def reactive_elements(it: Attack) -> None:
    """Elements of 16 MiB over twenty connections of one address, as many as were requested."""
    element = wire.reactive_element(16 * MIB)
    _flood_reactive(it, lambda: element, lambda _: "127.0.0.2")


@attack("reactive")
def reactive_elements_of_many(it: Attack) -> None:
    """The same from twenty addresses."""
    element = wire.reactive_element(16 * MIB)
    _flood_reactive(it, lambda: element)


@attack("reactive")
def reactive_parts(it: Attack) -> None:
    """Parts of a thousand elements that never end, over twenty connections."""
    numbers = count()
    _flood_reactive(it, lambda: wire.reactive_part(next(numbers) % 1_000, 60_000))


@attack("reactive")
def reactive_small_parts(it: Attack) -> None:
    """Parts of one byte of a thousand elements, over twenty connections."""
    parts = b"".join(wire.reactive_part(number, 1) for number in range(1_000))
    _flood_reactive(it, lambda: parts)


@attack("reactive")
def reactive_subscriptions(it: Attack) -> None:
    """Subscriptions over twenty connections, whose rejections nobody reads."""
    numbers = count()
    _flood_reactive(
        it, lambda: b"".join(wire.reactive_subscribe(next(numbers)) for _ in range(1_024))
    )


def micromsg_peer(it: Attack, number: int, extensions: bytes = b"batch-ack") -> socket.socket:
    """Connects, and agrees on extensions."""
    peer = connected(it.port, address(number))
    wire.micromsg_shake(peer, extensions)
    return peer


@attack("micromsg")
def micromsg_slow_fragments(it: Attack) -> None:
    """Eight addresses fill the memory with messages in fragments that never end, then drip."""
    part = wire.micromsg_message(1, b"d", b"x" * 60_000, continued=True)
    while it.goes_on:
        peers = [micromsg_peer(it, number) for number in range(8)]
        for peer in peers:
            peer.settimeout(0.3)
            with contextlib.suppress(OSError):
                for _ in range(200):
                    peer.sendall(part)
        while it.goes_on and peers:
            for peer in list(peers):
                try:
                    peer.send(part[:1])
                except TimeoutError:
                    continue
                except OSError:
                    peers.remove(peer)
            time.sleep(0.5)


@attack("micromsg")
def micromsg_small_fragments(it: Attack) -> None:
    """Fragments of one byte of messages that never end, over twenty connections."""
    parts = wire.micromsg_message(1, b"d", b"x", continued=True) * 4_096
    while it.goes_on:
        it.flood_all([micromsg_peer(it, number) for number in range(20)], lambda: parts)


@attack("micromsg")
def micromsg_extensions(it: Attack) -> None:
    """Handshakes with lists of a thousand extensions, each connection left at its reply."""
    names = (b"x-%d:a=%%41%%42" % it.chance.randrange(1 << 30) for _ in count())
    lists = [b";".join(itertools.islice(names, 1_020)) for _ in range(4)]
    lists += [b"x" * 65_535, b";" * 65_535, b"batch-ack:" + b"a=1," * 16_000]
    for number in count():
        if not it.goes_on:
            return
        with contextlib.suppress(OSError), connected(it.port, address(number % 8)) as peer:
            peer.sendall(wire.micromsg_hello(optional=lists[number % len(lists)]))
            peer.recv(1)


@attack("micromsg")
def micromsg_destinations(it: Attack) -> None:
    """Messages without acknowledgements over twenty connections, each to another destination."""
    numbers = count()

    def messages() -> bytes:
        names = (b"%d-" % number + b"d" * 240 for number in itertools.islice(numbers, 1_024))
        return b"".join(wire.micromsg_message(1, name[:255], b"") for name in names)

    while it.goes_on:
        it.flood_all([micromsg_peer(it, number, b"json") for number in range(20)], messages)


@attack("micromsg")
def micromsg_repeats(it: Attack) -> None:
    """Messages that were acknowledged, over twenty connections, whose answers nobody reads."""
    message = wire.micromsg_message(1, b"d", b"")
    peers = [micromsg_peer(it, number) for number in range(20)]
    for peer in peers:
        peer.sendall(message)
        # Its acknowledgement: an extension frame of five bytes.
        wire.received(peer, 5)
    it.flood_all(peers, lambda: message * 4_096)


def main(programs: Mapping[str, Callable[[Attack], object]]) -> None:
    """Runs the one of these programs that the command line names."""
    name, port, seconds, seed = sys.argv[1:]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    it = Attack(int(port), time.monotonic() + float(seconds), random.Random(int(seed)))
    try:
        print(f"{name}: {programs[name](it)}", flush=True)
    except (OSError, EOFError) as error:
        print(f"{name}: ended by {error!r}", flush=True)


if __name__ == "__main__":
    main({name: run for name, (_, run) in PROGRAMS.items()})
