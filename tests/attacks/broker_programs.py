"""Attacks on a broker, as those of `programs.py` on a receiver, and run as these are."""

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Sequence

import programs
import wire
from programs import Attack, begin_and_rest, micromsg_peer
from wire import MIB

PROGRAMS: dict[str, Callable[[Attack], object]] = {
    name: programs.PROGRAMS[name][1]
    for name in ("micromsg_small_fragments", "micromsg_slow_fragments", "micromsg_repeats")
}

PEERS = 20
"""Connections of most attacks."""

KIB = b"k" * 1_024

TOPICS = [b"topic%02d" % number for number in range(PEERS)]

QUEUES = [b"queue/%x" % number for number in range(16)]

SMALL = b"s" * 30

WHOLE = b"batch-ack;pub-sub"
"""The extensions that an end suggests by default."""

PROPERTIES = 65_535
"""The most bytes of the properties of a message."""

CONDITIONS = 64
"""The most conditions of a filter."""


def program(run: Callable[[Attack], object]) -> Callable[[Attack], object]:
    """Makes a function an attack on a broker."""
    PROGRAMS[run.__name__] = run
    return run


def _stall(it: Attack, topics: Sequence[bytes], extensions: bytes = b"json;pub-sub") -> None:
    """Adds a subscriber of each topic each second; they read nothing."""
    threading.Thread(target=_stalled, args=(it, topics, extensions), daemon=True).start()


def _stalled(it: Attack, topics: Sequence[bytes], extensions: bytes) -> None:
    # Nobody sees here which of them the broker has ended: its last bytes are not read either.
    peers = []
    while it.goes_on:
        for number, topic in enumerate(topics):
            peer = micromsg_peer(it, number, extensions)
            # A small buffer in the kernel: more of the messages wait in the broker.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            peer.sendall(wire.micromsg_subscribe(topic))
            peers.append(peer)
        time.sleep(1)


def _publish(it: Attack, count: int, messages: bytes, extensions: bytes = b"json") -> None:
    """Publishes messages without acknowledgements over connections, as fast as they go."""
    peers = [micromsg_peer(it, number, extensions) for number in range(count)]
    it.flood_all(peers, lambda: messages)


def _among(destinations: Sequence[bytes], other: bytes) -> bytes:
    """Small messages of one length: of sixteen, one to a destination and the others to another."""
    others = wire.micromsg_short(1, other, SMALL) * 15
    return b"".join(wire.micromsg_short(1, one, SMALL) + others for one in destinations)


@program
def stalled_subscribers(it: Attack) -> None:
    """Subscribers of twenty topics read nothing, and each topic gets 1 KiB messages."""
    _stall(it, TOPICS)
    _publish(it, 1, b"".join(wire.micromsg_short(1, topic, KIB) for topic in TOPICS) * 50)


@program
def stalled_subscribers_of_few_messages(it: Attack) -> None:
    """Subscribers read nothing, and of sixteen small messages one goes to one of them."""
    # Four of them may have all memory together.
    topics = TOPICS[:4]
    _stall(it, topics)
    _publish(it, 2, _among(topics, b"nowhere") * 100)


@program
def queue_without_worker(it: Attack) -> None:
    """Two publishers send 1 KiB messages to a queue without a worker."""
    _publish(it, 2, wire.micromsg_short(1, QUEUES[0], KIB) * 1_000)


@program
def queues_without_workers(it: Attack) -> None:
    """The same with sixteen queues."""
    _publish(it, 2, b"".join(wire.micromsg_short(1, queue, KIB) for queue in QUEUES) * 60)


@program
def queue_of_few_messages(it: Attack) -> None:
    """Small messages, of which one of sixteen goes to a queue without a worker."""
    _publish(it, 2, _among(QUEUES[:1], b"nowhere") * 1_000)


@program
def queues_of_few_messages(it: Attack) -> None:
    """The same with sixteen queues."""
    _publish(it, 2, _among(QUEUES, b"nowhere") * 100)


def _types(it: Attack, destination: bytes) -> None:
    """Empty messages, each of a type whose name has 1 MiB and differs from the one before."""
    message = wire.micromsg_short(1, destination, b"")
    types = [wire.micromsg_extension(1, letter * MIB) for letter in (b"a", b"b")]
    _publish(it, 1, b"".join(one + message for one in types), b"dotnet")


@program
def types_of_a_queue(it: Attack) -> None:
    """Long .NET types of empty messages to a queue without a worker."""
    _types(it, QUEUES[0])


@program
def types_of_a_topic(it: Attack) -> None:
    """Long .NET types of empty messages to a subscriber that reads nothing."""
    _stall(it, TOPICS[:1], b"json;pub-sub;dotnet")
    _types(it, TOPICS[0])


def _keys(length: int) -> bytes:
    """As many properties with names of so many bytes as a message may have, all different."""
    names = (b"%0*d" % (length, number) for number in itertools.count())
    return b"".join(name + b":N1;" for name in itertools.islice(names, PROPERTIES // (length + 4)))


@program
def filters(it: Attack) -> None:
    """Subscriptions with long filters, and messages with long properties that none matches."""
    # All conditions but the last hold where the property is missing, so that all are looked at.
    conditions = [b"x%d!=N1" % number for number in range(CONDITIONS - 1)]
    wanted = b";".join([*conditions, b"y=N1"])
    peers = [micromsg_peer(it, number, b"json;pub-sub") for number in range(5 * PEERS)]
    # Each filter takes some 8 KiB, and those of all connections may take 16 MiB.
    topics = [TOPICS[0]] + [b"own%d" % number for number in range(12)]
    for peer in peers:
        peer.sendall(b"".join(wire.micromsg_subscribe(topic, wanted) for topic in topics))
    short = b"a:N1;" * (PROPERTIES // 5)
    _publish(it, 2, wire.micromsg_short(1, TOPICS[0], b"", short) * 16)


@program
def many_keys(it: Attack) -> None:
    """Messages with thousands of properties to subscribers with a filter of one condition."""
    peers = [micromsg_peer(it, number, b"json;pub-sub") for number in range(PEERS)]
    for peer in peers:
        peer.sendall(wire.micromsg_subscribe(TOPICS[0], b"absent=N1"))
    _publish(it, 4, wire.micromsg_short(1, TOPICS[0], b"", _keys(6)) * 16)


@program
def endless_fragments(it: Attack) -> None:
    """Fragments of messages that never end, over twenty connections."""
    part = wire.micromsg_message(1, b"d", b"x" * 60_000, continued=True)
    while it.goes_on:
        it.flood_all([micromsg_peer(it, number) for number in range(PEERS)], lambda: part)


@program
def churn(it: Attack) -> None:
    """Subscriptions that end at once, to topics and queues, and commands that nobody knows."""
    frames = b"".join(
        wire.micromsg_subscribe(topic, b"level>=N3")
        + wire.micromsg_unsubscribe(topic)
        + wire.micromsg_command(b"unknown;a=b")
        for topic in (*TOPICS, *(b"queue/" + topic for topic in TOPICS))
    )
    _publish(it, PEERS, frames * 20, WHOLE)


@program
def half_handshakes(it: Attack) -> int:
    """Thousands of connections that begin a handshake and send no more."""
    return begin_and_rest(it, 4_000, 8, b"\1")


@program
def unread_acknowledgements(it: Attack) -> None:
    """Messages to nobody over fifty connections, whose acknowledgements nobody reads."""
    peers = [micromsg_peer(it, number) for number in range(50)]
    for peer in peers:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    # One by one, so that each is acknowledged alone, and soon enough for the window.
    for number in itertools.cycle(range(1, 65_536)):
        message = wire.micromsg_short(number, b"d", b"")
        for peer in peers:
            peer.sendall(message)
        if not it.goes_on:
            return


@program
def windows_ignored(it: Attack) -> int:
    """Clients send beyond the window to a queue, and to themselves, before they read anything."""
    numbers = range(1, 20_000)
    to_queue = b"".join(wire.micromsg_short(number, QUEUES[0], KIB) for number in numbers)
    to_itself = b"".join(wire.micromsg_short(number, TOPICS[0], KIB) for number in numbers)
    for number in itertools.count():
        if not it.goes_on:
            return number
        with contextlib.suppress(OSError), micromsg_peer(it, number % PEERS, WHOLE) as peer:
            peer.sendall(wire.micromsg_subscribe(TOPICS[0]))
            it.flood(peer, iter([to_itself if number % 2 else to_queue]))
            while peer.recv(MIB):
                pass
    return 0


@program
def publishers_that_leave(it: Attack) -> int:
    """Publishers bring two megabytes to a full queue and leave, over and over."""
    messages = wire.micromsg_short(1, QUEUES[0], KIB) * 2_000
    for number in itertools.count():
        if not it.goes_on:
            return number
        with micromsg_peer(it, number % PEERS, b"json") as peer:
            it.flood(peer, iter([messages]))
    return 0


if __name__ == "__main__":
    programs.main(PROGRAMS)
