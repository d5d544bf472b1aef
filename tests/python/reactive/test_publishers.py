"""Publishers by name for threads and for asyncio: their sources, and what ends them."""

import asyncio
import itertools
import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.commands import wait_until
from support.reactive import TIME, URL, pair

from ackline import LinkClosed, StreamFailed, UsageError, reactive
from ackline.aio import reactive as aio


@contextmanager
def served(publishers: Any, **options: Any) -> Iterator[reactive.Connection]:
    """A connection to an end that serves these publishers in a thread."""
    with pair() as (near, far):
        serving = threading.Thread(target=lambda: far.serve(publishers, **options))
        serving.start()
        yield near
        near.shutdown(timeout=TIME)
        serving.join(TIME)
        assert not serving.is_alive()


def test_sources_become_elements(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 600)
    table = pa.table({"number": [1, 2, 3]})
    channel: queue.Queue[bytes | None] = queue.Queue()
    for item in [b"x", b"y", None]:
        channel.put(item)
    strings = pa.array(["ä", "b"])
    chosen: list[str] = []

    def function(name: str) -> list[bytes]:
        chosen.append(name)
        return [name.encode()]

    publishers = reactive.Publishers({"list": [b"1", b"2"], "text": ("one", "two"), "path": path})
    publishers.add("generator", lambda _: (b"%d" % one for one in range(3)))
    publishers.add("table", table)
    publishers.add("queue", channel)
    publishers.add("strings", strings)
    publishers.add("by/*", function)
    publishers.add("pairs", [b"aabb", b"cc"], element_size=2)
    with served(publishers) as near:
        for name, elements in [
            ("list", [b"1", b"2"]),
            ("generator", [b"0", b"1", b"2"]),
            ("queue", [b"x", b"y"]),
            ("strings", ["ä".encode(), b"b"]),
            ("by/name", [b"by/name"]),
            ("pairs", [b"aa", b"bb", b"cc"]),
            ("list", [b"1", b"2"]),
        ]:
            with near.subscribe(name, timeout=TIME) as subscription:
                assert list(subscription) == elements, name
        assert chosen == ["by/name"]
        with near.subscribe("path", timeout=TIME) as subscription:
            pieces = list(subscription)
        assert b"".join(pieces) == path.read_bytes()
        assert max(map(len, pieces)) == 64 << 10
        with near.subscribe("table", timeout=TIME) as subscription:
            batches = [pa.ipc.open_stream(one).read_all() for one in subscription]
        assert pa.concat_tables(batches) == table
        with near.subscribe("text", timeout=TIME) as subscription:
            assert list(subscription) == [b"one", b"two"]


def test_arrays_of_numbers_are_packed() -> None:
    floats = np.arange(200_000, dtype="<f8")
    publishers = {
        "floats": floats,
        "strided": floats[::2],
        "arrow": pa.array(range(10), pa.int32())[2:],
        "chunked": pa.chunked_array([[1.5], [], [2.5, 3.5]]),
    }
    with served(publishers) as near:
        for name, dtype, expected in [
            ("floats", "<f8", floats),
            ("strided", "<f8", floats[::2]),
            ("arrow", "<i4", np.arange(2, 10)),
            ("chunked", "<f8", [1.5, 2.5, 3.5]),
        ]:
            with near.subscribe(name, demand=10_000, timeout=TIME) as subscription:
                assert subscription.element_size == np.dtype(dtype).itemsize
                came = np.concatenate(list(subscription.arrays(dtype)))
            assert np.array_equal(came, expected), name


def test_the_values_of_a_fixed_size_list_are_one_element() -> None:
    three = pa.list_(pa.float64(), 3)
    lists = pa.array([[float(one)] * 3 for one in range(5)], three)
    pairs = pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int16(), 2), 2))
    publishers = reactive.Publishers({"lists": lists[1:], "pairs": pairs})
    publishers.add("chunks", pa.chunked_array([lists[:2], lists[4:]]), element_size=24)
    with served(publishers) as near:
        for name, expected in [("lists", [1, 2, 3, 4]), ("chunks", [0, 1, 4])]:
            with near.subscribe(name, timeout=TIME) as subscription:
                assert subscription.element_size == 24
                came = np.concatenate(list(subscription.arrays("(3,)<f8")))
            assert came[:, 0].tolist() == expected, name
        with near.subscribe("pairs", timeout=TIME) as subscription:
            assert list(subscription) == [np.array([1, 2, 3, 4], "<i2").tobytes()]


def test_a_source_is_asked_only_where_there_is_demand() -> None:
    made = itertools.count()
    with served({"numbers": lambda _: (b"%d" % one for one in made)}) as near:
        with near.subscribe("numbers", demand=5, timeout=TIME) as subscription:
            assert subscription.receive(timeout=TIME) == b"0"
            wait_until(lambda: subscription.requested == 0, "all that were requested came")
            assert int(repr(made)[6:-1]) <= 5
        near.shutdown(timeout=TIME)


def test_what_no_subscriber_could_read_is_refused() -> None:
    publishers = reactive.Publishers()
    objects = np.array(["a", None], dtype=object)
    for source, size, why in [
        ("text", None, "is a str"),
        ([], -1, "element_size"),
        ([], "4", "element_size"),
        ([], 1 << 70, "element_size"),
        (objects, None, "Python objects"),
        (b"12345678", None, "give element_size"),
        (b"12345", 4, "5 bytes has no elements of 4 bytes"),
        (np.arange(3), 0, "elements of 0 bytes"),
        (None, None, "source is NoneType: give an iterable"),
        (5, None, "source is int: give an iterable"),
        (range(3), None, "an element is of the type int"),
        ([1, 2], None, "an element is of the type int"),
        ([None], 4, "no buffer"),
        (pa.array([1, None]), None, "has nulls"),
        (pa.array(["a", None]), None, "has nulls"),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), None, "has nulls"),
        (pa.array([[1, None]], pa.list_(pa.int8(), 2)), None, "has nulls"),
        (pa.array([True, False]), None, "array of bool has no elements.*cast to uint8"),
        (pa.array([[1], [2, 3]]), None, "array of list.* has no elements"),
        (pa.array([[True]], pa.list_(pa.bool_(), 1)), None, "has no elements"),
        (pa.array([{"a": 1}]), None, "array of struct.* has no elements"),
        (pa.array([1, 2, 3], pa.int8()), 2, "has no elements of 2 bytes"),
        (pa.table({"a": [1]}), 8, "leave element_size out"),
    ]:
        with pytest.raises(UsageError, match=why):
            publishers.add("wrong", source, element_size=size)  # type: ignore[arg-type]
    publishers.add("wrong", [b"the name is free"])


def test_what_a_function_returns_wrongly_is_told_without_the_program(
    caplog: pytest.LogCaptureFixture,
) -> None:
    publishers = reactive.Publishers({"none": lambda _: None, "number": lambda _: 5})
    publishers.add("items", lambda _: iter([np.array([None])]), element_size=8)
    publishers.add("later", lambda _: [b"1", 2])
    publishers.add("async", lambda _: _async_numbers())
    publishers.add("bytes", lambda _: (_ for _ in ()).throw(ValueError("\udcff")))
    publishers.add("exit", lambda _: (_ for _ in ()).throw(SystemExit(3)))
    publishers.add("large", [b""], element_size=1 << 40)
    publishers.add("good", [b"1"])
    with served(publishers) as near:
        for name in ["none", "number"]:
            with pytest.raises(
                StreamFailed, match=r"^the function of this publisher returned no elements$"
            ):
                near.subscribe(name, timeout=TIME)
        for name, why in [
            ("items", "Python objects"),
            ("later", "neither bytes nor a str"),
            ("async", "another kind of program"),
        ]:
            with pytest.raises(StreamFailed, match=why):
                list(near.subscribe(name, timeout=TIME))
        for name in ["bytes", "exit", "large"]:
            with pytest.raises(StreamFailed):
                list(near.subscribe(name, timeout=TIME))
        assert list(near.subscribe("good", timeout=TIME)) == [b"1"]
    assert "source is NoneType" in caplog.text


async def _async_numbers() -> AsyncIterator[bytes]:
    yield b"1"


def test_values_are_published_and_not_how_they_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    publishers = reactive.Publishers(
        {
            "dictionary": pa.array(["x", "y", "x"]).dictionary_encode(),
            "chunks": pa.chunked_array([["x"], ["z"]]).dictionary_encode(),
            "views": pa.array(["x"], pa.string_view()),
            "times": np.array(["1970-01-02"], dtype="datetime64[D]"),
        }
    )
    publishers.add("file", path, element_size=10)
    with served(publishers) as near:
        for name, elements in [
            ("dictionary", [b"x", b"y", b"x"]),
            ("chunks", [b"x", b"z"]),
            ("views", [b"x"]),
            ("times", [(1).to_bytes(8, "little")]),
            ("file", [bytes(10)] * 10),
        ]:
            assert list(near.subscribe(name, timeout=TIME)) == elements, name


@pytest.mark.parametrize("end", ["cancel", "abort", "shutdown"])
def test_a_source_is_not_asked_for_an_element_of_a_subscriber_that_leaves(end: str) -> None:
    numbers = itertools.count()
    with pair() as (near, far):
        serving = threading.Thread(
            target=lambda: far.serve({"numbers": lambda _: (b"%d" % one for one in numbers)})
        )
        serving.start()
        subscription = near.subscribe("numbers", demand=3, automatic=False, timeout=TIME)
        for _ in range(3):
            subscription.receive(timeout=TIME)
        if end == "cancel":
            subscription.cancel()
            near.shutdown(timeout=TIME)
        else:
            getattr(near, end)()
        serving.join(TIME)
        assert not serving.is_alive()
    assert next(numbers) == 3


@pytest.mark.parametrize("end", ["cancel", "abort"])
async def test_asyncio_asks_for_no_element_of_a_subscriber_that_leaves(end: str) -> None:
    channel: asyncio.Queue[bytes] = asyncio.Queue()
    for number in range(5):
        channel.put_nowait(b"%d" % number)
    async with aio.listen(URL) as listener:
        serving = asyncio.create_task(listener.serve({"queue": channel}))
        near = await aio.connect(listener.url)
        subscription = await near.subscribe("queue", demand=3, automatic=False, timeout=TIME)
        for _ in range(3):
            await subscription.receive(timeout=TIME)
        if end == "cancel":
            subscription.cancel()
            await near.shutdown(timeout=TIME)
        near.abort()
        await listener.close()
        await asyncio.wait_for(serving, TIME)
    assert channel.qsize() == 2


def test_what_is_at_hand_ends_its_stream_without_further_demand(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    publishers = {"empty": [], "list": [b"a", b"b"], "array": np.arange(3), "file": file}
    with served(publishers) as near:
        for name, count in [("empty", 0), ("list", 2), ("array", 3), ("file", 1)]:
            with near.subscribe(name, demand=count, automatic=False, timeout=TIME) as subscription:
                assert len(list(subscription)) == count, name


def test_a_long_name_is_rejected_and_ends_nothing_else() -> None:
    with served({"list": [b"a"]}) as near:
        with pytest.raises(StreamFailed, match="there is no publisher"):
            near.subscribe("n" * 65_536, timeout=TIME)
        assert list(near.subscribe("list", timeout=TIME)) == [b"a"]


def test_a_failing_source_tells_the_subscriber_and_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def breaks(_: str) -> Iterator[bytes]:
        yield b"1"
        raise ValueError("the sensor is gone")

    def refuses(name: str) -> Iterator[bytes]:
        raise PermissionError(f"{name} is private")

    caplog.set_level(logging.ERROR, "ackline.reactive")
    with served({"breaks": breaks, "refuses": refuses}) as near:
        with near.subscribe("breaks", timeout=TIME) as subscription:
            assert subscription.receive(timeout=TIME) == b"1"
            with pytest.raises(StreamFailed, match=r"^the sensor is gone$"):
                subscription.receive(timeout=TIME)
        with pytest.raises(StreamFailed, match=r"^refuses is private$"):
            near.subscribe("refuses", timeout=TIME)
    assert "a publisher failed code=reactive.publisher_failed" in caplog.text


def test_a_generator_is_closed_when_its_subscriber_leaves() -> None:
    closed = threading.Event()

    def endless(_: str) -> Iterator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            closed.set()

    with served({"endless": endless}) as near:
        with near.subscribe("endless", demand=2, timeout=TIME) as subscription:
            assert subscription.receive(timeout=TIME) == b"x"
        assert closed.wait(TIME)


def test_subscriptions_without_demand_take_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    """Ten times as many as there are threads, of every kind of source."""
    many = 250
    numbers = itertools.count()
    publishers = {
        "list": [b"a", b"b"],
        "array": np.arange(2),
        "generator": lambda _: (b"%d" % one for one in numbers),
        "queue": lambda _: queue.Queue(),
    }
    with served(publishers, concurrency=4) as near:
        idle = [
            near.subscribe(list(publishers)[at % 4], demand=0, automatic=False, timeout=TIME)
            for at in range(many)
        ]
        with pytest.raises(StreamFailed, match="there is no publisher"):
            near.subscribe("unknown", timeout=TIME)
        assert threading.active_count() < 20
        assert list(near.subscribe("list", timeout=TIME)) == [b"a", b"b"]
        for subscription in idle[2::4]:
            subscription.request(2)
        came = [subscription.receive_many(timeout=TIME) for subscription in idle[2::4]]
        assert sum(map(len, came)) >= len(came)
        for subscription in idle:
            subscription.cancel()
    assert not caplog.records


def test_sources_that_wait_leave_unknown_names_their_answer_and_reject_others_in_time() -> None:
    go = threading.Event()

    def waits(_: str) -> Iterator[bytes]:
        go.wait(TIME)
        yield b"x"

    with served({"waits": waits}, concurrency=1) as near:
        first = near.subscribe("waits", timeout=TIME)
        with pytest.raises(StreamFailed, match="there is no publisher 'other'"):
            near.subscribe("other", timeout=TIME)
        with pytest.raises(StreamFailed, match=r"runs 1 sources at once \(concurrency\)"):
            near.subscribe("waits", timeout=TIME)
        go.set()
        assert list(first) == [b"x"]
        assert list(near.subscribe("waits", timeout=TIME)) == [b"x"]
    with pair() as (_, far), pytest.raises(UsageError, match="concurrency is 0"):
        far.serve({}, concurrency=0)


def test_queues_that_are_empty_leave_others_their_turns() -> None:
    channels = {f"queue/{at}": queue.Queue[bytes | None]() for at in range(6)}
    with served(channels, concurrency=2) as near:
        streams = {name: near.subscribe(name, timeout=TIME) for name in channels}
        for name, channel in reversed(channels.items()):
            channel.put(name.encode())
            assert streams[name].receive(timeout=TIME) == name.encode()
        for channel in channels.values():
            channel.put(None)
        assert all(stream.receive(timeout=TIME) is None for stream in streams.values())


def test_names_are_taken_once() -> None:
    publishers = reactive.Publishers({"a": [], "a/*": []})
    for name in ["a", "a/*"]:
        with pytest.raises(UsageError) as taken:
            publishers.add(name, [])
        assert taken.value.code == "publisher_exists"


def test_a_listener_serves_until_it_is_closed() -> None:
    with reactive.listen(URL) as listener:
        serving = threading.Thread(target=lambda: listener.serve({"a": [b"1"]}))
        serving.start()
        for _ in range(3):
            with reactive.subscribe(f"{listener.url}/a") as subscription:
                assert list(subscription) == [b"1"]
        listener.close()
        serving.join(TIME)
        assert not serving.is_alive()


async def _aio_served(
    publishers: Any, use: Callable[[aio.Connection], Any], **options: Any
) -> None:
    async with aio.listen(URL) as listener:
        serving = asyncio.create_task(listener.serve(publishers, **options))
        async with aio.connect(listener.url) as near:
            await use(near)
        await listener.close()
        await asyncio.wait_for(serving, TIME)


async def test_asyncio_serves_iterables_queues_and_async_iterators() -> None:
    channel: asyncio.Queue[bytes | None] = asyncio.Queue()
    for item in [b"x", None]:
        channel.put_nowait(item)

    async def numbers(_: str) -> AsyncIterator[bytes]:
        for one in range(3):
            await asyncio.sleep(0)
            yield b"%d" % one

    async def breaks() -> AsyncIterator[bytes]:
        yield b"1"
        raise ValueError("gone")

    async def use(near: aio.Connection) -> None:
        for name, elements in [
            ("numbers", [b"0", b"1", b"2"]),
            ("queue", [b"x"]),
            ("list", [b"a"] * 1_000),
            ("generator", [b"y"] * 300),
        ]:
            async with near.subscribe(name, demand=10, timeout=TIME) as subscription:
                assert [one async for one in subscription] == elements, name
        async with near.subscribe("breaks", timeout=TIME) as subscription:
            assert await subscription.receive(timeout=TIME) == b"1"
            with pytest.raises(StreamFailed, match="gone"):
                await subscription.receive(timeout=TIME)
        empty = await near.subscribe("empty", demand=0, automatic=False, timeout=TIME)
        assert await empty.receive(timeout=TIME) is None
        with pytest.raises(StreamFailed, match="there is no publisher 'other'"):
            await near.subscribe("other", timeout=TIME)

    publishers = {
        "empty": [],
        "numbers": numbers,
        "queue": channel,
        "list": [b"a"] * 1_000,
        "generator": lambda _: itertools.repeat(b"y", 300),
        "breaks": lambda _: breaks(),
    }
    await _aio_served(publishers, use)


async def test_an_async_source_that_waits_is_cancelled_when_its_subscriber_leaves() -> None:
    cancelled = asyncio.Event()

    async def waits(_: str) -> AsyncIterator[bytes]:
        try:
            yield b"1"
            await asyncio.sleep(3_600)
        finally:
            cancelled.set()

    async def use(near: aio.Connection) -> None:
        async with near.subscribe("waits", timeout=TIME) as subscription:
            assert await subscription.receive(timeout=TIME) == b"1"
        await asyncio.wait_for(cancelled.wait(), TIME)

    await _aio_served({"waits": waits}, use)


async def test_an_endless_source_leaves_the_loop_its_turns() -> None:
    async def use(near: aio.Connection) -> None:
        async with near.subscribe("endless", demand=None, timeout=TIME) as subscription:
            for _ in range(50):
                assert await subscription.receive(timeout=TIME) == b"x"
                await asyncio.wait_for(asyncio.sleep(0), 1)

    await asyncio.wait_for(_aio_served({"endless": lambda _: itertools.repeat(b"x")}, use), TIME)


async def test_asyncio_serves_any_number_of_idle_subscriptions() -> None:
    async def use(near: aio.Connection) -> None:
        for _ in range(300):
            await near.subscribe("list", demand=0, automatic=False, timeout=TIME)
        async with near.subscribe("list", timeout=TIME) as subscription:
            assert [one async for one in subscription] == [b"x"]

    await _aio_served({"list": [b"x"]}, use)


async def test_asyncio_rejects_more_streams_than_the_concurrency() -> None:
    async def use(near: aio.Connection) -> None:
        first = await near.subscribe("list", demand=0, automatic=False, timeout=TIME)
        with pytest.raises(StreamFailed, match=r"1 streams of a connection at once \(concurr"):
            await near.subscribe("list", timeout=TIME)
        first.request(1)
        assert [one async for one in first] == [b"x"]

    await _aio_served({"list": [b"x"]}, use, concurrency=1)


async def test_serve_ends_with_its_cancellation() -> None:
    async with aio.listen(URL) as listener:
        serving = asyncio.create_task(listener.serve({"waits": lambda _: asyncio.Queue()}))
        near = await aio.connect(listener.url)
        subscription = await near.subscribe("waits", timeout=TIME)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        with pytest.raises((StreamFailed, LinkClosed)):
            await subscription.receive(timeout=TIME)
        near.abort()


async def test_a_cancelled_wait_takes_nothing() -> None:
    async with aio.listen(URL) as listener:
        near = await aio.connect(listener.url)
        far = await listener.accept(timeout=TIME)

        async def subscribe() -> aio.Subscription:
            return await near.subscribe("ticks", timeout=TIME)

        subscribing = asyncio.create_task(subscribe())
        request = await far.accept(timeout=TIME)
        assert request is not None
        publication = request.accept()
        subscription = await subscribing
        for _ in range(20):
            waiting = asyncio.create_task(subscription.receive())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await publication.send(b"1")
        assert await subscription.receive(timeout=TIME) == b"1"
        near.abort()
        far.abort()
