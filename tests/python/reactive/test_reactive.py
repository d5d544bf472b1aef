"""Reactive Streams for threads: both ends in one process over real sockets."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.commands import wait_until
from support.reactive import NOW, TIME, URL, pair

from ackline import (
    LinkClosed,
    LinkTimeout,
    PeerCancelled,
    ProtocolError,
    StreamFailed,
    TransportError,
    UsageError,
    reactive,
)

Pair = tuple[reactive.Connection, reactive.Connection]


@pytest.fixture
def ends() -> Iterator[Pair]:
    with pair() as both:
        yield both


def stream(
    ends: Pair, size: int = 0, demand: int | None = 1024
) -> tuple[reactive.Subscription, reactive.Publication]:
    """A stream that the listener's end publishes to the connector's."""
    near, far = ends
    with ThreadPoolExecutor(1) as pool:
        subscribing = pool.submit(near.subscribe, "ticks", demand=demand, timeout=TIME)
        request = far.accept(timeout=TIME)
        assert request is not None
        publication = request.accept(size)
        return subscribing.result(TIME), publication


def test_elements_come_in_order_and_the_end_behind_them(ends: Pair) -> None:
    ticks, publication = stream(ends)
    assert (ticks.element_size, publication.element_size) == (0, 0)
    publication.send(b"one")
    publication.send_many([b"two", bytearray(b"three"), memoryview(b"")])
    publication.complete()
    assert ticks.receive(timeout=TIME) == b"one"
    assert list(ticks) == [b"two", b"three", b""]
    assert ticks.receive(timeout=TIME) is None
    assert ticks.try_receive_many() is None
    with pytest.raises(UsageError) as ended:
        publication.send(b"more", timeout=TIME)
    assert ended.value.code == "already_ended"


def test_a_request_tells_its_publisher_and_demand_and_is_answered_once(ends: Pair) -> None:
    near, far = ends
    with ThreadPoolExecutor(1) as pool:
        subscribing = pool.submit(near.subscribe, "a/b ü", demand=7, timeout=TIME)
        request = far.accept(timeout=TIME)
        assert request is not None
        assert (request.publisher, request.initial_demand) == ("a/b ü", 7)
        request.reject("not today")
        with pytest.raises(StreamFailed, match=r"^not today$"):
            subscribing.result(TIME)
        with pytest.raises(UsageError) as answered:
            request.accept()
        assert answered.value.code == "already_answered"


def test_the_publisher_waits_for_demand(ends: Pair) -> None:
    ticks, publication = stream(ends, demand=2)
    publication.send_many([b"1", b"2"])
    with pytest.raises(LinkTimeout, match="there was no demand within"):
        publication.send(b"3", timeout=NOW)
    assert (publication.room, ticks.requested) == (0, 0)
    assert ticks.receive(timeout=TIME) == b"1"
    publication.send(b"3", timeout=TIME)
    assert ticks.receive_many(1, timeout=TIME) == [b"2"]
    assert ticks.receive_many(timeout=TIME) == [b"3"]
    with pytest.raises(LinkTimeout, match="no element came within"):
        ticks.receive(timeout=NOW)


def test_demand_by_hand_and_without_bound(ends: Pair) -> None:
    near, far = ends
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(near.subscribe, "a", demand=0, automatic=False, timeout=TIME)
        request = far.accept(timeout=TIME)
        assert request is not None
        publication = request.accept()
        by_hand = asked.result(TIME)
        assert publication.room == 0
        by_hand.request(3)
        publication.send_many([b"1", b"2", b"3"], timeout=TIME)
        with pytest.raises(LinkTimeout):
            publication.send(b"4", timeout=NOW)
        asked = pool.submit(near.subscribe, "b", demand=None, timeout=TIME)
        request = far.accept(timeout=TIME)
        assert request is not None
        assert request.initial_demand == reactive.UNBOUNDED
        unanswered = request.accept()
        assert asked.result(TIME).requested == reactive.UNBOUNDED
        assert unanswered.room > 0
    for wrong, code in [
        ({"demand": -1, "automatic": False}, "invalid_demand"),
        ({"demand": 0}, "invalid_demand"),
        ({"demand": 1 << 63}, "invalid_demand"),
        ({"demand": 1 << 64}, "invalid_demand"),
        ({"demand": 5, "low_water": 5}, "invalid_low_water"),
        ({"demand": None, "low_water": 5}, "invalid_low_water"),
    ]:
        with pytest.raises(UsageError) as refused:
            near.subscribe("c", **wrong)
        assert refused.value.code == code
    for count in [-1, 0, 1 << 64]:
        with pytest.raises(UsageError) as refused:
            by_hand.request(count)
        assert refused.value.code == "invalid_demand"


def test_a_fixed_size_arrives_as_one_buffer(ends: Pair) -> None:
    ticks, publication = stream(ends, size=8, demand=100_000)
    numbers = np.arange(50_000, dtype="<f8")
    publication.send_packed(numbers, timeout=TIME)
    publication.complete()
    came = [next(ticks.arrays("<f8", 800))]
    assert len(came[0]) == 100
    whole = ticks.receive_packed(1 << 20, timeout=TIME)
    assert whole is not None
    column = pa.Array.from_buffers(pa.float64(), len(whole) // 8, [None, pa.py_buffer(whole)])
    assert column[0].as_py() == 100
    came += [np.frombuffer(whole), *ticks.arrays("<f8")]
    assert np.array_equal(np.concatenate(came), numbers)
    with pytest.raises(UsageError, match="dtype float32 has 4 bytes, and the elements have 8"):
        next(ticks.arrays("<f4"))


def test_a_wrong_size_is_refused_and_nothing_is_sent(ends: Pair) -> None:
    ticks, publication = stream(ends, size=4)
    for send in [
        lambda: publication.send(b"12345", timeout=TIME),
        lambda: publication.send_many([b"1234", b"1"], timeout=TIME),
        lambda: publication.send_packed(b"123456", timeout=TIME),
    ]:
        with pytest.raises(UsageError) as refused:
            send()
        assert refused.value.code == "wrong_element_size"
    publication.send(b"1234")
    assert ticks.receive_many(timeout=TIME) == [b"1234"]


def test_elements_of_any_size_are_no_buffer(ends: Pair) -> None:
    ticks, publication = stream(ends)
    publication.send(b"12345678")
    with pytest.raises(UsageError) as refused:
        ticks.receive_packed(timeout=TIME)
    assert refused.value.code == "not_fixed_size"
    assert ticks.receive(timeout=TIME) == b"12345678"


def test_parts_come_as_they_are_sent() -> None:
    with pair(parts=True) as ends:
        ticks, publication = stream(ends)
        publication.send(b"whole")
        publication.send(bytes(150_000))
        publication.complete()
        for receive in (ticks.receive, ticks.receive_many):
            with pytest.raises(UsageError) as refused:
                receive(timeout=TIME)
            assert refused.value.code == "in_parts"
        assert ticks.receive_part(timeout=TIME) == reactive.Part(None, b"whole", is_last=True)
        parts = []
        while (part := ticks.receive_part(timeout=TIME)) is not None:
            parts.append(part)
        assert sum(len(part.data) for part in parts) == 150_000
        assert [part.is_last for part in parts] == [False, False, True]
        assert len({part.element for part in parts} - {None}) == 1


def test_a_large_element_holds_up_no_other_stream(ends: Pair) -> None:
    large, first = stream(ends)
    small, second = stream(ends)
    first.send(bytes(8 << 20), timeout=TIME)
    second.send(b"small", timeout=TIME)
    assert small.receive(timeout=TIME) == b"small"
    assert large.receive(timeout=TIME) == bytes(8 << 20)


def test_a_cancel_reaches_a_publisher_that_waits(ends: Pair) -> None:
    ticks, publication = stream(ends, demand=1)
    publication.send(b"1")
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(publication.send, b"2", timeout=TIME)
        ticks.cancel()
        with pytest.raises(PeerCancelled, match="the subscriber has cancelled"):
            sending.result(TIME)
    publication.wait_cancelled(timeout=TIME)
    assert publication.cancelled
    ticks.cancel()
    for receive in (ticks.receive, ticks.receive_many, ticks.receive_packed, ticks.receive_part):
        with pytest.raises(UsageError, match="this end has cancelled") as cancelled:
            receive(timeout=TIME)
        assert cancelled.value.code == "cancelled"
    assert list(ticks) == [], "what was not taken is dropped"
    with pytest.raises(UsageError) as ended:
        ticks.request(1)
    assert ended.value.code == "already_ended"


def test_blocks_end_their_streams(ends: Pair) -> None:
    ticks, publication = stream(ends)
    with publication:
        publication.send(b"1")
    assert list(ticks) == [b"1"]
    ticks, publication = stream(ends)
    with pytest.raises(ZeroDivisionError), publication:
        _ = 1 // 0
    with pytest.raises(StreamFailed, match="the publisher has failed"):
        ticks.receive(timeout=TIME)
    ticks, publication = stream(ends)
    with ticks:
        pass
    publication.wait_cancelled(timeout=TIME)
    ticks, publication = stream(ends)
    publication.fail("the sensor is gone")
    with pytest.raises(StreamFailed, match=r"^the sensor is gone$"):
        list(ticks)
    ticks, publication = stream(ends)
    del publication
    with pytest.raises(StreamFailed, match="dropped"):
        ticks.receive(timeout=TIME)


def test_the_end_of_a_block_sends_everything_and_says_goodbye() -> None:
    with reactive.listen(URL) as listener:
        near = reactive.connect(listener.url)
        far = listener.accept(timeout=TIME)
    ticks, publication = stream((near, far))
    with ThreadPoolExecutor(1) as pool:
        with far:
            publication.send_many([bytes(1_000)] * 500, timeout=TIME)
            taking = pool.submit(lambda: ticks.receive_many(1, timeout=TIME))
        assert taking.result(TIME) == [bytes(1_000)]
    came = [b""]
    with pytest.raises(StreamFailed, match="the connection was closed"):
        came.extend(ticks)
    assert len(came) == 500
    assert near.goodbye_reason == "the connection was closed"
    assert near.accept(timeout=TIME) is None
    near.wait_ended(timeout=TIME)
    assert (near.is_ended, far.is_ended) == (True, True)
    with pytest.raises(StreamFailed, match="the connection was closed"):
        near.subscribe("more")


def test_a_lost_connection_is_no_error_of_the_publisher(ends: Pair) -> None:
    ticks, publication = stream(ends)
    publication.send(b"1")
    assert ticks.receive(timeout=TIME) == b"1"
    ends[1].abort()
    with pytest.raises((LinkClosed, TransportError)):
        ticks.receive(timeout=TIME)
    with pytest.raises((LinkClosed, TransportError)):
        ends[0].accept(timeout=TIME)


def test_the_end_that_listens_subscribes_too(ends: Pair) -> None:
    near, far = ends
    with ThreadPoolExecutor(1) as pool:
        subscribing = pool.submit(far.subscribe, "ticks", timeout=TIME)
        request = near.accept(timeout=TIME)
        assert request is not None
        request.accept().send(b"1")
        assert subscribing.result(TIME).receive(timeout=TIME) == b"1"


def test_a_subscription_that_nobody_answers_is_given_up(ends: Pair) -> None:
    near, far = ends
    with pytest.raises(LinkTimeout, match="the publisher did not accept within"):
        near.subscribe("ticks", timeout=NOW)
    assert near.stats()["subscriptions"] == 0, "it is cancelled"
    wait_until(lambda: far.stats()["publications"] == 0, "the publisher knows it")


def test_a_url_names_place_and_publisher() -> None:
    with reactive.listen(URL) as listener:
        serving = threading.Thread(target=lambda: listener.serve({"a/b ü": [b"1", b"2"]}))
        serving.start()
        url = f"{listener.url}/a/b%20%C3%BC?hello_timeout=5s"
        with reactive.subscribe(url, demand=1, low_water=0, memory="64MiB") as ticks:
            assert list(ticks) == [b"1", b"2"]
        with pytest.raises(StreamFailed, match="there is no publisher"):
            reactive.subscribe(f"{listener.url}/c")
        listener.close()
    serving.join(TIME)
    assert not serving.is_alive()
    for url, says in [
        ("reactive://127.0.0.1:1", "the publisher's name is missing"),
        ("bpmux://127.0.0.1:1/x", "of bpmux, not of reactive"),
    ]:
        with pytest.raises(UsageError, match=says) as wrong:
            reactive.subscribe(url)
        assert wrong.value.code == "url"


def test_wrong_options_and_urls_are_named() -> None:
    with pytest.raises(UsageError, match=r"did you mean hello_timeout\?"):
        reactive.connect("reactive://127.0.0.1:1", helo_timeout=5)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="max_subscriptions is 0") as wrong:
        reactive.listen("reactive://127.0.0.1:0?max_subscriptions=0")
    assert wrong.value.option == "max_subscriptions"
    with pytest.raises(TransportError):
        reactive.connect("reactive://127.0.0.1:1")


def test_a_peer_that_breaks_a_rule_is_named() -> None:
    with reactive.listen(URL) as listener:
        host, _, port = listener.url.partition("://")[2].partition(":")
        with socket.create_connection((host, int(port)), TIME) as raw:
            raw.sendall(b"\x01\x07\x00")
            far = listener.accept(timeout=TIME)
            with pytest.raises(ProtocolError, match="version 7 is not supported") as wrong:
                far.accept(timeout=TIME)
            assert wrong.value.code == "reactive.unsupported_version"


@pytest.mark.parametrize("is_late", [False, True])
def test_a_goodbye_in_place_of_a_hello_has_its_reason(is_late: bool) -> None:  # noqa: FBT001
    goodbye = b"\x0d\x07go away"
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        url = f"reactive://127.0.0.1:{server.getsockname()[1]}"
        with reactive.connect(url) as near, server.accept()[0] as peer:
            if not is_late:
                peer.sendall(goodbye)
                wait_until(lambda: near.goodbye_reason is not None, "the goodbye")
            subscribing = pool.submit(near.subscribe, "ticks", timeout=TIME)
            if is_late:
                peer.sendall(goodbye)
            with pytest.raises(StreamFailed, match=r"^go away$"):
                subscribing.result(TIME)
            # The peer closes with unread bytes.
            near.abort()
    with reactive.listen(URL) as listener:
        host, _, port = listener.url.partition("://")[2].partition(":")
        with socket.create_connection((host, int(port)), TIME) as peer:
            peer.sendall(goodbye)
            with listener.accept(timeout=TIME) as far:
                wait_until(lambda: far.goodbye_reason is not None, "the goodbye")
                with pytest.raises(StreamFailed, match=r"^go away$"):
                    far.subscribe("ticks", timeout=TIME)
                far.abort()


def test_unix_sockets_carry_streams(tmp_path: Path) -> None:
    with pair(url=f"reactive+unix://{tmp_path}/s") as ends:
        ticks, publication = stream(ends)
        publication.send(b"1")
        assert ticks.receive(timeout=TIME) == b"1"
        assert (ends[0].peer, ends[1].peer is not None) == (None, True)


def test_extensions_that_both_ends_support_have_messages() -> None:
    own = {7: {64: ["varint", "string", "bytes"]}, 9: {}}
    with pair({"extensions": {9: {}, 7: own[7]}}, extensions=own) as (near, far):
        assert near.wait_connected(timeout=TIME) == [7, 9]
        assert far.wait_connected(timeout=TIME) == [7, 9]
        near.send_extension(64, 1 << 40, "ü", b"\xff")
        assert far.receive_extension(timeout=TIME) == (64, [1 << 40, "ü", b"\xff"])
        with pytest.raises(UsageError) as refused:
            near.send_extension(64, "ü", "ü", b"")
        assert refused.value.code == "extension_not_active"
        with pytest.raises(LinkTimeout, match="no message of an extension came"):
            far.receive_extension(timeout=NOW)
        near.shutdown(timeout=TIME)
        assert far.receive_extension(timeout=TIME) is None
    with pair(extensions=own) as (near, _):
        assert near.wait_connected(timeout=TIME) == []
    with pytest.raises(UsageError, match='a field is "text"'):
        reactive.listen(URL, extensions={7: {64: ["text"]}})
    with pytest.raises(UsageError) as wrong:
        reactive.listen(URL, extensions={7: {63: []}})
    assert wrong.value.code == "invalid_message_type"


def test_what_a_subscriber_would_refuse_by_default_is_not_sent(ends: Pair) -> None:
    ticks, publication = stream(ends)
    with pytest.raises(UsageError) as refused:
        publication.send(bytes((16 << 20) + 1), timeout=TIME)
    assert refused.value.code == "element_too_large"
    publication.send(bytes(16 << 20), timeout=TIME)
    assert len(ticks.receive(timeout=TIME) or b"") == 16 << 20
    with pytest.raises(UsageError) as refused:
        ends[0].subscribe("x" * 65_537)
    assert refused.value.code == "name_too_long"
