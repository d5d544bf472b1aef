"""A listener of bpmux turns peers away, and slows them down, as its options say."""

import time

import pytest
from support.bpmux import OVER, TIME, URL, connected_to, is_ended, pair, turned_away
from support.commands import wait_until

from ackline import bpmux


def test_a_proxy_gives_the_address_of_the_client() -> None:
    with bpmux.listen(URL, proxy_from="127.0.0.1") as listener, connected_to(listener.url) as raw:
        raw.stream.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.1 1234 7000\r\n")
        far = listener.accept(timeout=TIME)
        assert far.peer is not None
        assert far.peer.name == "192.0.2.7:1234"
        with connected_to(listener.url) as other:
            other.stream.sendall(b"\x80\x01\x00")
            assert other.is_ended()
        assert turned_away(listener) == {"proxy.missing": 1}


def test_a_peer_that_is_not_allowed_is_turned_away() -> None:
    with (
        bpmux.listen(URL, allow="192.0.2.0/24") as listener,
        connected_to(listener.url) as raw,
    ):
        assert raw.is_ended()
        assert turned_away(listener) == {"link.not_allowed": 1}
    with pair({"allow": "127.0.0.0/8"}) as (near, far):
        near.sink.send(b"x")
        assert far.stream.receive(timeout=TIME) == b"x"


@pytest.mark.parametrize("option", ["max_connections", "max_connections_per_address"])
def test_so_many_connections_at_once(option: str) -> None:
    with bpmux.listen(URL, **{option: 1}) as listener:
        first = bpmux.connect(listener.url)
        far = listener.accept(timeout=TIME)
        with connected_to(listener.url) as raw:
            assert raw.is_ended()
        assert list(turned_away(listener).values()) == [1]
        first.abort()
        far.abort()
        again: list[bpmux.Connection] = []

        def is_admitted() -> bool:
            again.append(bpmux.connect(listener.url))
            try:
                again[-1].ping(timeout=TIME)
            except OVER:
                return False
            return True

        wait_until(is_admitted, "there is room again")


def test_a_connection_has_an_age() -> None:
    with pair({"max_connection_age": 2}) as (near, far):
        sink = near.open_sink(b"kept")
        opened = far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedSink)
        # It ends in good order: nothing new is begun, and open entities come to their end.
        assert near.accept(timeout=TIME) is None
        sink.send(b"last")
        sink.close(timeout=TIME)
        assert list(opened.stream) == [b"last"]
        near.shutdown(timeout=TIME)
        assert is_ended(far)


def test_so_many_are_accepted_in_a_second() -> None:
    with bpmux.listen(URL, accept_rate=10) as listener:
        begin = time.monotonic()
        ends = [bpmux.connect(listener.url) for _ in range(15)]
        for end in ends:
            end.ping(timeout=TIME)
        # Ten may come at once.
        assert time.monotonic() - begin > 0.3


def test_so_many_bytes_are_read_in_a_second() -> None:
    with pair({"max_bytes_per_second": 100_000}, send_bytes=1 << 20) as (near, far):
        begin = time.monotonic()
        near.sink.send_many([bytes(1000)] * 200)
        got = 0
        while got < 200:
            got += len(far.stream.receive_many(timeout=TIME))
        assert time.monotonic() - begin > 0.5
