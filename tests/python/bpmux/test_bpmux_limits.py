"""Options of bpmux for each connection have their effect: credit, chunks, pings, limits, memory."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from support.bpmux import OVER, TIME, URL, Raw, connected_to, is_ended, pair, top_credit

from ackline import LinkTimeout, ProtocolError, bpmux


@contextmanager
def raw_pair(**options: Any) -> Iterator[tuple[bpmux.Connection, Raw]]:
    """A connector's end with these options, and a raw peer that listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIME)
        near = bpmux.connect(f"bpmux://127.0.0.1:{server.getsockname()[1]}", **options)
        stream, _ = server.accept()
        with stream:
            yield near, Raw(stream)
            near.abort()


PING, PONG = b"\xd3", b"\xdb"


def test_manual_credit_gives_none_and_the_floor_is_given_first() -> None:
    with raw_pair(credit="manual", ping_after=0.01, pong_timeout=None) as (near, raw):
        # Nothing comes before the first ping.
        assert raw.reads(1) == PING
        near.stream.grant_credit(7)
        raw.stream.sendall(PONG)
        assert raw.reads(2) == top_credit(7)
    with raw_pair(credit_floor=200) as (_, raw):
        assert raw.reads(2) == top_credit(200)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"credit_ceiling": 4096}, 4096),
        ({"credit_budget": 0}, 4096),
        ({"credit_floor": 1000, "credit_ceiling": 8000}, 8000),
        ({"credit_budget": 12_288}, 16_384),
    ],
)
def test_a_window_has_a_ceiling_and_a_budget(options: dict[str, int], most: int) -> None:
    """Messages that the peer may send before any is taken: all that come without a reader."""
    with pair(options) as (near, far):
        sink = near.open_sink()
        opened = far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedSink)
        # A reader that keeps up lets the window grow up to its limit.
        for _ in range(200):
            sink.send(bytes(most), timeout=TIME)
            assert opened.stream.receive(timeout=TIME) == bytes(most)
        before = far.stats()["bytes_received"]
        sink.send_many([bytes(100)] * 2000, timeout=TIME)
        with pytest.raises(LinkTimeout):
            sink.flush(timeout=0.2)
        assert far.stats()["bytes_received"] - before <= most


def test_chunks_have_their_size() -> None:
    with raw_pair(credit="manual", chunk_size=10) as (near, raw):
        raw.stream.sendall(top_credit(200))
        near.sink.send(b"x" * 25)
        # Its length, then parts of ten bytes and the rest.
        parts = b"\x6c\x0a" + b"x" * 10
        assert raw.reads(33) == b"\xfc\x19" + parts + parts + b"\x6c\x05" + b"x" * 5


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_so_many_bytes_may_wait_on_a_sink(side: str) -> None:
    own, manual = {"send_bytes": 100}, {"credit": "manual"}
    listens, connects = (manual, own) if side == "connect" else (own, manual)
    with pair(listens, **connects) as (near, far):
        sender = near if side == "connect" else far
        assert sender.sink.try_send(bytes(60))
        assert sender.sink.try_send(bytes(40))
        assert not sender.sink.try_send(b"x")


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_a_silent_peer_is_pinged_and_given_up(side: str) -> None:
    options = {"credit": "manual", "ping_after": 0.02, "pong_timeout": 0.02}
    if side == "connect":
        with raw_pair(**options) as (near, raw):
            assert raw.reads(1) == PING
            assert is_ended(near)
        return
    with bpmux.listen(URL, **options) as listener, connected_to(listener.url) as raw:
        far = listener.accept(timeout=TIME)
        assert raw.reads(1) == PING
        with pytest.raises(OVER) as told:
            far.accept(timeout=TIME)
        assert "pong" in str(told.value)


@pytest.mark.alone
def test_a_peer_that_answers_is_kept() -> None:
    with raw_pair(credit="manual", ping_after=0.02, pong_timeout=TIME) as (near, raw):
        begin = time.monotonic()
        for _ in range(5):
            assert raw.reads(1) == PING
            raw.stream.sendall(PONG)
        assert not near.is_ended
        # The default is eleven seconds for each.
        assert time.monotonic() - begin < 40


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_the_rest_of_a_chunk_must_come(side: str) -> None:
    options = {"chunk_receive_timeout": 0.05, "ping_after": None}
    if side == "connect":
        with raw_pair(**options) as (near, raw):
            raw.stream.sendall(b"\x80")
            assert raw.is_ended()
            assert is_ended(near)
        return
    with bpmux.listen(URL, **options) as listener, connected_to(listener.url) as raw:
        raw.stream.sendall(b"\x80")
        far = listener.accept(timeout=TIME)
        with pytest.raises(OVER) as told:
            far.accept(timeout=TIME)
        assert "chunk" in str(told.value)


@pytest.mark.parametrize("side", ["connect", "listen"])
@pytest.mark.parametrize(
    ("option", "most"), [("max_payload_bytes", 10), ("max_entities", 1), ("max_requests", 1)]
)
def test_a_limit_of_the_peer_is_enforced(side: str, option: str, most: int) -> None:
    own = {option: most}
    with pair(own if side == "listen" else {}, **(own if side == "connect" else {})) as ends:
        limited, other = ends if side == "connect" else reversed(ends)
        within(other, option, most)
        KEPT.append(limited.accept(timeout=TIME))
        # It may be over before the call returns.
        with contextlib.suppress(*OVER):
            within(other, option, most + 1)
        with pytest.raises(ProtocolError) as broken:
            limited.accept(timeout=TIME)
        assert broken.value.code == "bpmux.limit_exceeded"
        assert f"{most + 1} is above {most} ({option})" in str(broken.value)


def within(end: bpmux.Connection, option: str, value: int) -> None:
    """Opens an entity of that size."""
    if option == "max_payload_bytes":
        KEPT.append(end.request(bytes(value)))
    elif option == "max_entities":
        KEPT.append(end.open_sink())
    else:
        KEPT.append(end.request(b""))


def keep(begin: Callable[[], object]) -> None:
    """Opens entities without an end, and keeps them."""
    while True:
        KEPT.append(begin())


KEPT: list[object] = []
"""A handle that is dropped ends its entity."""


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_memory_bounds_received_messages_that_are_not_taken(side: str) -> None:
    own = {"memory": 65_536, "credit": "manual"}
    queue = {"send_bytes": 9 << 20}
    connects, listens = (own, queue) if side == "connect" else (queue, own)
    with pair(listens, **connects) as ends:
        reader, writer = ends if side == "connect" else reversed(ends)
        reader.stream.grant_credit(8 << 20)
        writer.sink.send_many([bytes(1024)] * 8000, timeout=TIME)
        for taken in range(8000):
            # Above that come the bytes that are free of charge, and those of one read.
            assert reader.stats()["bytes_received"] - 1024 * taken < 512 << 10
            assert reader.stream.receive(timeout=TIME) == bytes(1024)


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_memory_bounds_the_open_entities_of_the_peer(side: str) -> None:
    # Entities may take a further quarter; one connection has half of that, and some free bytes.
    own, most = {"memory": 1 << 20}, (1 << 20) // 4 // 2 // 1024 + 64
    with pair(own if side == "listen" else {}, **(own if side == "connect" else {})) as ends:
        limited, other = ends if side == "connect" else reversed(ends)
        for _ in range(most):
            KEPT.append(other.open_sink())
            KEPT.append(limited.accept(timeout=TIME))
        with contextlib.suppress(*OVER):
            KEPT.append(other.open_sink())
        with pytest.raises(ProtocolError) as broken:
            limited.accept(timeout=TIME)
        assert broken.value.code == "bpmux.limit_exceeded"
        assert "take 132096 bytes, above 131072: half of the part" in str(broken.value)
        assert str(broken.value).split(" (")[0].endswith("of a quarter of memory")


def test_others_go_on_where_one_has_opened_too_much_and_its_memory_is_freed() -> None:
    with bpmux.listen(URL, memory=1 << 20) as listener:
        for _ in range(3):
            near = bpmux.connect(listener.url)
            far = listener.accept(timeout=TIME)
            healthy = bpmux.connect(listener.url)
            other = listener.accept(timeout=TIME)
            with pytest.raises(OVER):
                keep(near.open_sink)
            with pytest.raises(ProtocolError):
                keep(partial(far.accept, timeout=TIME))
            asked = healthy.request(b"still there?")
            incoming = other.accept(timeout=TIME)
            assert isinstance(incoming, bpmux.Request)
            incoming.respond(b"yes")
            assert asked.response(timeout=TIME) == b"yes"
            KEPT.clear()
            for one in (near, far, healthy, other):
                one.abort()


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_a_payload_has_an_eighth_of_the_memory(side: str) -> None:
    own = {"memory": 1 << 20}
    with pair(own if side == "listen" else {}, **(own if side == "connect" else {})) as ends:
        limited, other = ends if side == "connect" else reversed(ends)
        asked = other.request(bytes(1 << 17))
        incoming = limited.accept(timeout=TIME)
        assert isinstance(incoming, bpmux.Request)
        incoming.respond(b"")
        assert asked.response(timeout=TIME) == b""
        with contextlib.suppress(*OVER):
            KEPT.append(other.request(bytes((1 << 17) + 1)))
        with pytest.raises(ProtocolError) as broken:
            limited.accept(timeout=TIME)
        assert broken.value.code == "bpmux.limit_exceeded"
        assert "a payload would take 131073 bytes, above 131072: an eighth of memory" in str(
            broken.value
        )


def test_many_messages_end_behind_the_one_with_which_they_have_256_kib() -> None:
    sizes = [100 << 10, 100 << 10, 60 << 10, 1, 400 << 10, 2]
    with pair() as (near, far), near.open_sink(timeout=TIME) as sink:
        opened = far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedSink)
        opened.stream.grant_credit(1 << 20)
        for size in sizes:
            sink.send(bytes(size), timeout=TIME)
        sink.flush(timeout=TIME)
        near.ping(timeout=TIME)
        taken = [opened.stream.try_receive_many() for _ in range(3)]
        assert [[len(one) for one in many or ()] for many in taken] == [sizes[:3], sizes[3:5], [2]]
        assert len(opened.stream.try_receive_many() or ()) == 0
