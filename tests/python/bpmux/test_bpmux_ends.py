"""The end of a connection of bpmux and of all that is open on it, by either end."""

import gc
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.bpmux import NOW, TIME, URL, manual
from support.commands import wait_until

from ackline import (
    LinkClosed,
    LinkTimeout,
    PeerCancelled,
    ProtocolError,
    RequestClosed,
    TransportError,
    UsageError,
    bpmux,
)


def test_dropped_handles_end_their_entities(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    duplex, opened = near.open_duplex(), far.accept(timeout=TIME)
    response, request = near.request(b""), far.accept(timeout=TIME)
    assert isinstance(opened, bpmux.OpenedDuplex)
    assert isinstance(request, bpmux.Request)
    del duplex, response
    gc.collect()
    assert opened.duplex.receive(timeout=TIME) is None
    assert opened.duplex.closed == b"dropped"
    assert opened.duplex.wait_cancelled(timeout=TIME) == b""
    assert request.wait_cancelled(timeout=TIME) == b""
    asked = near.request(b"")
    request = far.accept(timeout=TIME)
    del request
    gc.collect()
    with pytest.raises(RequestClosed) as closed:
        asked.response(timeout=TIME)
    assert closed.value.payload == b"dropped"


def test_a_shutdown_waits_for_open_entities(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    sink = near.open_sink()
    opened = far.accept(timeout=TIME)
    with pytest.raises(LinkTimeout):
        near.shutdown(timeout=NOW)
    assert not near.is_ended
    sink.close(timeout=TIME)
    near.shutdown(timeout=TIME)
    near.wait_ended(timeout=TIME)
    far.wait_ended(timeout=TIME)
    assert near.is_ended
    assert opened is not None
    with pytest.raises(LinkClosed):
        near.request(b"x")
    with pytest.raises(LinkClosed):
        near.ping(timeout=TIME)


def test_a_block_may_end_with_an_abort() -> None:
    with bpmux.listen(URL) as listener:
        for _ in range(50):
            with bpmux.connect(listener.url) as near:
                near.request(b"never answered")
                near.abort()


def test_an_abort_ends_every_waiter(pair: tuple[bpmux.Connection, bpmux.Connection]) -> None:
    near, far = pair
    response, stream = near.request(b"x"), near.open_stream()
    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(response.response), threads.submit(stream.receive)]
        far.abort()
        for wait in waits:
            with pytest.raises((LinkClosed, ProtocolError, TransportError)):
                wait.result(timeout=TIME)


def test_the_end_of_a_block_gives_a_request_up(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    with near.request(b"question") as response:
        request = far.accept(timeout=TIME)
    assert isinstance(request, bpmux.Request)
    assert request.wait_cancelled(timeout=TIME) == b""
    with pytest.raises(LinkClosed, match="request was ended here"):
        response.response(timeout=TIME)


def test_the_end_of_a_block_ends_the_connection() -> None:
    with bpmux.listen(URL) as listener:
        with bpmux.connect(listener.url) as near:
            far = listener.accept(timeout=TIME)
            near.sink.send(b"last")
        assert near.is_ended
        assert list(far.stream) == [b"last"]
        assert far.stream.closed == b""
        near = bpmux.connect(listener.url)
        far = listener.accept(timeout=TIME)
        sink = near.open_sink()
        near.__exit__(ValueError, ValueError(), None)
        near.wait_ended(timeout=TIME)
        far.wait_ended(timeout=TIME)
        with pytest.raises(LinkClosed):
            sink.send(b"x")


def raw_peer(listener: bpmux.Listener) -> socket.socket:
    host, port = listener.url.removeprefix("bpmux://").split(":")
    return socket.create_connection((host, int(port)), timeout=TIME)


def test_a_call_on_an_ending_connection_says_so() -> None:
    with bpmux.listen(URL) as listener, raw_peer(listener) as peer:
        connection = listener.accept(timeout=TIME)
        # The top-level's close and cancel, and no end of the transport.
        peer.sendall(b"\x4c\x03fin\x2c\x00")
        assert connection.accept(timeout=TIME) is None
        assert connection.sink.wait_cancelled(timeout=TIME) == b""
        for verb in (
            connection.open_sink,
            connection.open_stream,
            connection.open_duplex,
            connection.ping,
            connection.close,
            connection.cancel,
            lambda: connection.request(b""),
            lambda: connection.call(b""),
            lambda: connection.stream.grant_credit(1),
        ):
            with pytest.raises(LinkClosed):
                verb()
        connection.shutdown(timeout=TIME)
        # A peer that has closed its top-level has been heard.
        assert connection.stream.closed == b"fin"
        assert connection.sink.cancelled == b""


def test_why_the_peer_ended_something_stays(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    sink = near.open_sink()
    duplex = near.open_duplex()
    left = near.open_sink()
    opened, both, other = (far.accept(timeout=TIME) for _ in range(3))
    assert isinstance(opened, bpmux.OpenedSink)
    assert isinstance(both, bpmux.OpenedDuplex)
    assert isinstance(other, bpmux.OpenedSink)
    assert sink.cancelled is None
    opened.stream.cancel(b"enough", timeout=TIME)
    other.stream.cancel(b"too much", timeout=TIME)
    both.duplex.close(b"no more", timeout=TIME)
    for one, why in ((sink, b"enough"), (left, b"too much")):
        assert one.wait_cancelled(timeout=TIME) == why
    assert duplex.receive(timeout=TIME) is None
    with pytest.raises(PeerCancelled):
        sink.close(timeout=TIME)
    with pytest.raises(UsageError, match="closed"):
        duplex.cancel(timeout=TIME)
    with pytest.raises(RuntimeError), left:
        raise RuntimeError
    duplex.close(timeout=TIME)
    assert duplex.cancelled is None, "closed here, and never cancelled"

    def kept() -> None:
        assert (sink.cancelled, left.cancelled) == (b"enough", b"too much")
        assert duplex.closed == b"no more"

    kept()
    far.abort()
    near.wait_ended(timeout=TIME)
    kept()


def test_a_cancel_during_a_close_stays() -> None:
    with manual() as (near, far):
        far.stream.grant_credit(1000)
        sink = near.open_sink()
        sink.send(b"it waits for credit")
        opened = far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedSink)
        with ThreadPoolExecutor(1) as threads:
            closing = threads.submit(sink.close, timeout=TIME)
            wait_until(lambda: sink._sink.closed, "it is being closed")
            opened.stream.cancel(b"meanwhile", timeout=TIME)
            with pytest.raises(PeerCancelled):
                closing.result(timeout=TIME)
        assert sink.cancelled == b"meanwhile"


def test_why_a_request_was_given_up_stays(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    near, far = pair
    # The pong comes behind the credit of the top-level: requests are sent at once.
    near.ping(timeout=TIME)
    near.request(b"one").cancel(b"never mind")
    near.request(b"two").cancel(b"nor this")
    one, two = (far.accept(timeout=TIME) for _ in range(2))
    assert isinstance(one, bpmux.Request)
    assert isinstance(two, bpmux.Request)
    assert one.wait_cancelled(timeout=TIME) == b"never mind"
    assert two.wait_cancelled(timeout=TIME) == b"nor this"
    with pytest.raises(PeerCancelled):
        one.respond(b"")
    with pytest.raises(PeerCancelled):
        two.close(b"")
    assert (one.cancelled, two.cancelled) == (b"never mind", b"nor this")
