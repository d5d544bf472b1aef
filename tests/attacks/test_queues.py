"""Queues of a broker with a spool, whose publishers come from several addresses."""

import socket
from pathlib import Path

import pytest
import wire

from ackline import micromsg

QUEUE = b"queue/jobs"
ROUNDS = 100
ACKS, TYPES = 1, 2
"""The numbers of the extensions, in the order in which they are offered."""


def typed(name: bytes) -> bytes:
    """Names the .NET type of the messages behind it."""
    return bytes([2, TYPES, len(name)]) + name


def jobs(numbers: range, first: int) -> bytes:
    """Messages, each of another type than the one before; their jobs begin behind this number."""
    frames = (
        typed(b"odd" if number % 2 else b"even")
        + wire.micromsg_message(number, QUEUE, b"%d" % (first + number))
        for number in numbers
    )
    return b"".join(frames)


def acknowledged(peer: socket.socket, last: int) -> None:
    """Waits for the acknowledgement of this message."""
    number = 0
    while number != last:
        frame = wire.received(peer, 5)
        assert frame[:3] == bytes([2, ACKS, 2])
        number = int.from_bytes(frame[3:])


@pytest.mark.timeout(120)
def test_jobs_of_two_addresses_in_one_commit_all_come(tmp_path: Path) -> None:
    """Each job that was acknowledged to its publisher comes to the worker, once."""
    with (
        micromsg.serve("micromsg://127.0.0.1:0", spool=tmp_path / "spool") as broker,
        micromsg.connect(broker.url) as worker,
    ):
        worker.subscribe(QUEUE.decode())
        port = int(broker.url.rsplit(":", 1)[1])
        sources = ("127.0.7.2", "127.0.7.3")
        peers = [wire.connected(port, source) for source in sources]
        for peer in peers:
            wire.micromsg_shake(peer, b"batch-ack;dotnet")
        came = []
        for turn in range(ROUNDS):
            numbers = range(4 * turn + 1, 4 * turn + 5)
            for at, peer in enumerate(peers):
                peer.sendall(jobs(numbers, 10_000 * at))
            for peer in peers:
                acknowledged(peer, numbers[-1])
            while len(came) < 8 * (turn + 1):
                came += [int(one.payload) for one in worker.receive_some(timeout=10)]
        for peer in peers:
            peer.close()
    wanted = [10_000 * at + number for at in range(2) for number in range(1, 4 * ROUNDS + 1)]
    assert sorted(came) == wanted
