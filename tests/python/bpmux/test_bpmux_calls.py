"""Handlers of bpmux's `serve` and their peer: refusals, failures, acknowledgements, given-up calls.

Where threads and tasks promise the same, a test runs against both.
"""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from support.serving import NOW, TIME, URL, URLS, Serve, adapted, both, by_tasks, by_threads

from ackline import LinkClosed, LinkTimeout, PeerCancelled, RequestClosed, bpmux
from ackline.aio import bpmux as aio


def drain(serve: Serve, then: Callable[[], object]) -> Callable[..., Any]:
    """A handler that reads to the end and then calls `then`, which may wait."""
    if serve is by_threads:

        def reading(stream: bpmux.Stream, _: bytes) -> None:
            for _ in stream:
                pass
            then()

        return reading

    async def reading_in_a_task(stream: aio.Stream, _: bytes) -> None:
        async for _ in stream:
            pass
        await asyncio.to_thread(then)

    return reading_in_a_task


@contextmanager
def at_end(then: Callable[[], object]) -> Iterator[None]:
    """Releases handlers also when a test fails."""
    try:
        yield
    finally:
        then()


def send_and_close(sink: bpmux.Sink | bpmux.Duplex) -> None:
    """Either call may raise the refusal of the sink."""
    sink.send(b"message")
    sink.close(timeout=TIME)


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + TIME
    while not what():
        assert time.monotonic() < until
        time.sleep(0.005)


@both
def test_every_opening_without_a_handler_is_refused(serve: Serve) -> None:
    with serve() as near:
        for _ in range(200):
            sink = near.open_sink(b"log")
            with pytest.raises(PeerCancelled) as refused:
                send_and_close(sink)
            assert refused.value.payload == b"no handler"
        for _ in range(50):
            duplex = near.open_duplex(b"echo")
            with pytest.raises(PeerCancelled) as refused:
                send_and_close(duplex)
            assert refused.value.payload == b"no handler"
            stream = near.open_stream(b"numbers")
            assert (stream.receive(timeout=TIME), stream.closed) == (None, b"no handler")


@both
@pytest.mark.parametrize("reads", [False, True], ids=["at once", "at the end"])
def test_a_failure_is_told_and_logged_once(
    serve: Serve, caplog: pytest.LogCaptureFixture, *, reads: bool
) -> None:
    def fail() -> None:
        raise ValueError("no disk")

    def fail_at_once(*_: object) -> None:
        fail()

    handler = drain(serve, fail) if reads else adapted(serve, fail_at_once)
    with serve(on_sink=handler) as near:
        for _ in range(50):
            sink = near.open_sink(b"log")
            with pytest.raises(PeerCancelled) as failed:
                send_and_close(sink)
            assert failed.value.payload == b"no disk"
    errors = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [type(one.exc_info[1]) for one in errors if one.exc_info] == [ValueError] * 50
    assert len(errors) == 50


@both
def test_a_failure_behind_a_block_that_has_read_the_sink_is_told(serve: Serve) -> None:
    def read(stream: bpmux.Stream, _: bytes) -> None:
        with stream:
            assert list(stream) == [b"message"]
        raise ValueError("no disk")

    async def read_in_a_task(stream: aio.Stream, _: bytes) -> None:
        async with stream:
            assert [one async for one in stream] == [b"message"]
        raise ValueError("no disk")

    told: list[BaseException] = []
    handler = read if serve is by_threads else read_in_a_task
    with serve(on_sink=handler, on_error=told.append) as near:
        sink = near.open_sink()
        sink.send(b"message")
        with pytest.raises(PeerCancelled, match="no disk"):
            sink.close(timeout=TIME)
    assert [str(one) for one in told] == ["no disk"]


@both
def test_a_duplex_whose_handler_fails_is_cancelled_and_closed_with_its_text(serve: Serve) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no disk")

    told: list[BaseException] = []
    with serve(on_duplex=adapted(serve, fail), on_error=told.append) as near:
        duplex = near.open_duplex()
        assert (duplex.receive(timeout=TIME), duplex.closed) == (None, b"no disk")
        assert duplex.wait_cancelled(timeout=TIME) == b"no disk"
    assert [str(one) for one in told] == ["no disk"]


@both
def test_a_close_is_acknowledged_when_its_handler_has_returned(serve: Serve) -> None:
    read, may_return = threading.Event(), threading.Event()

    def work() -> None:
        read.set()
        assert may_return.wait(TIME)

    with serve(on_sink=drain(serve, work)) as near, ThreadPoolExecutor(1) as threads:
        sink = near.open_sink()
        sink.send(b"message")
        closing = threads.submit(sink.close, timeout=TIME)
        assert read.wait(TIME)
        time.sleep(NOW)
        assert not closing.done()
        may_return.set()
        closing.result(TIME)


@both
def test_a_handler_that_leaves_messages_unread_has_not_acknowledged_them(serve: Serve) -> None:
    def read_one(stream: bpmux.Stream, _: bytes) -> None:
        assert stream.receive(timeout=TIME) == b"1"
        assert closing.wait(TIME)

    async def read_one_in_a_task(stream: aio.Stream, _: bytes) -> None:
        assert await stream.receive(timeout=TIME) == b"1"
        assert await asyncio.to_thread(closing.wait, TIME)

    closing = threading.Event()
    handler = read_one if serve is by_threads else read_one_in_a_task
    with serve(on_sink=handler) as near, ThreadPoolExecutor(1) as threads:
        sink = near.open_sink()
        sink.send_many([b"1", b"2", b"3"])
        closed = threads.submit(sink.close, timeout=TIME)
        # The peer has the close when it has answered a ping behind it.
        time.sleep(NOW)
        near.ping(timeout=TIME)
        closing.set()
        with pytest.raises(PeerCancelled):
            closed.result(TIME)


@both
def test_a_client_that_closed_a_duplex_reads_on_while_its_handler_runs(serve: Serve) -> None:
    large = bytes(100_000)

    def echo(duplex: bpmux.Duplex, _: bytes) -> None:
        count = len(list(duplex))
        for _ in range(20 * count):
            duplex.send(large)

    async def echo_in_a_task(duplex: aio.Duplex, _: bytes) -> None:
        count = len([message async for message in duplex])
        for _ in range(20 * count):
            await duplex.send(large)

    handler = echo if serve is by_threads else echo_in_a_task
    with serve(on_duplex=handler) as near:
        duplex = near.open_duplex()
        duplex.send(b"question")
        # 2 MB come, which wait for this end to read.
        duplex.close(timeout=TIME)
        assert list(duplex) == [large] * 20


def test_given_up_calls_in_threads_leave_their_places_to_others_up_to_a_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stuck, lock, go = 0, threading.Lock(), threading.Event()

    def answer(asked: bytes) -> bytes:
        nonlocal stuck
        if asked == b"stuck":
            with lock:
                stuck += 1
            assert go.wait(TIME)
        return asked

    with by_threads(on_request=answer, concurrency=2) as near, at_end(go.set):
        # As many as run at once, and four times as many whose calls were given up.
        for number in range(10):
            response = near.request(b"stuck")
            wait_for(lambda number=number: stuck == number + 1)
            response.cancel()
            if number < 8:
                assert near.call(b"asked", timeout=TIME) == b"asked"
        with pytest.raises(LinkTimeout):
            near.call(b"asked", timeout=10 * NOW)
        assert stuck == 10
        warned = [one for one in caplog.records if "bpmux.handlers_abandoned" in one.getMessage()]
        assert len(warned) == 1, [one.getMessage() for one in caplog.records]
        go.set()
        assert near.call(b"asked", timeout=TIME) == b"asked"
        assert [near.call(b"%d" % one, timeout=TIME) for one in range(20)] == [
            b"%d" % one for one in range(20)
        ]
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def test_handlers_of_a_concurrency_of_one_never_run_beside_each_other() -> None:
    begun, go = threading.Event(), threading.Event()

    def answer(asked: bytes) -> bytes:
        if asked == b"stuck":
            begun.set()
            assert go.wait(TIME)
        return asked

    with by_threads(on_request=answer, concurrency=1) as near, at_end(go.set):
        response = near.request(b"stuck")
        assert begun.wait(TIME)
        response.cancel()
        with pytest.raises(LinkTimeout):
            near.call(b"asked", timeout=10 * NOW)
        go.set()
        assert near.call(b"asked", timeout=TIME) == b"asked"


def test_a_stream_that_its_reader_gave_up_leaves_its_place_to_another() -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    def write(_sink: bpmux.Sink, _: bytes) -> None:
        begun.release()
        assert go.wait(TIME)

    with (
        by_threads(on_stream=write, on_request=lambda asked: asked, concurrency=2) as near,
        at_end(go.set),
    ):
        for _ in range(4):
            stream = near.open_stream()
            assert begun.acquire(timeout=TIME)
            stream.cancel(timeout=TIME)
        assert near.call(b"asked", timeout=TIME) == b"asked"
        go.set()


@pytest.mark.parametrize("how", ["cancelled", "timed out", "dropped"])
def test_given_up_calls_of_tasks_are_cancelled(how: str) -> None:
    begun: list[bytes] = []
    ended: list[str] = []
    told: list[BaseException] = []

    async def answer(asked: bytes) -> bytes:
        if asked != b"stuck":
            return asked
        begun.append(asked)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        raise AssertionError

    with by_tasks(on_request=answer, on_error=told.append) as near:
        responses = [near.request(b"stuck") for _ in range(100)]
        # As many handlers run as may, and the others wait.
        wait_for(lambda: len(begun) == 64)
        if how == "cancelled":
            for response in responses:
                response.cancel(b"no more")
        elif how == "timed out":
            with pytest.raises(LinkTimeout):
                near.call(b"stuck", timeout=NOW)
        responses.clear()
        gc.collect()
        assert near.call(b"asked", timeout=TIME) == b"asked"
        wait_for(lambda: len(ended) == len(begun))
        assert len(ended) >= 64
    assert told == []


def test_handlers_in_tasks_are_cancelled_when_their_peer_is_gone() -> None:
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)

    async def wait(*_: object) -> bytes:
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            ended.release()
        raise AssertionError

    with by_tasks(on_request=wait, on_stream=wait) as near:
        with bpmux.connect(URLS[near]) as gone:
            held: list[object] = [gone.request(b"asked"), gone.open_stream()]
            for _ in range(2):
                assert begun.acquire(timeout=TIME)
            gone.abort()
        for _ in range(2):
            assert ended.acquire(timeout=TIME)
        held.clear()


def test_a_sink_in_a_task_is_read_to_its_end_when_its_peer_is_gone() -> None:
    found: Future[list[bytes]] = Future()
    begun, go = threading.Event(), threading.Event()

    async def read(stream: aio.Stream, _: bytes) -> None:
        messages = []
        begun.set()
        await asyncio.to_thread(go.wait, TIME)
        try:
            while (message := await stream.receive(timeout=TIME)) is not None:
                messages.append(message)
        except LinkClosed:
            found.set_result(messages)

    with by_tasks(on_sink=read) as near:
        with bpmux.connect(URLS[near]) as gone:
            sink = gone.open_sink()
            sink.send_many([b"1", b"2"])
            sink.flush(timeout=TIME)
            assert begun.wait(TIME)
            gone.ping(timeout=TIME)
            gone.abort()
        time.sleep(NOW)
        go.set()
        assert found.result(timeout=TIME) == [b"1", b"2"]


def test_a_stream_in_a_task_is_cancelled_when_its_reader_gives_it_up() -> None:
    ended: Future[bytes | None] = Future()
    told: list[BaseException] = []

    async def write(sink: aio.Sink, _: bytes) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set_result(sink.cancelled)

    with by_tasks(on_stream=write, on_error=told.append) as near:
        near.open_stream().cancel(b"enough", timeout=TIME)
        assert ended.result(timeout=TIME) == b"enough"
    assert told == []


def test_a_stream_that_its_handler_has_closed_does_not_cancel_it() -> None:
    ended: Future[str] = Future()
    closed, go = threading.Event(), threading.Event()

    async def write(sink: aio.Sink, _: bytes) -> None:
        try:
            await asyncio.sleep(0.01)
            await sink.close()
            closed.set()
            await asyncio.to_thread(go.wait, TIME)
        except asyncio.CancelledError:
            ended.set_result("cancelled")
            raise
        ended.set_result("well")

    with by_tasks(on_stream=write) as near:
        with bpmux.connect(URLS[near]) as other:
            stream = other.open_stream()
            assert stream.receive(timeout=TIME) is None
            assert closed.wait(TIME)
            other.shutdown(timeout=TIME)
        go.set()
        assert ended.result(timeout=TIME) == "well"


@both
def test_a_request_that_is_given_up_before_its_turn_is_not_handled(serve: Serve) -> None:
    asked: list[bytes] = []
    begun, go = threading.Event(), threading.Event()

    def answer(payload: bytes) -> bytes:
        asked.append(payload)
        if payload == b"first":
            begun.set()
            assert go.wait(TIME)
        return payload

    with serve(on_request=adapted(serve, answer), concurrency=1) as near, at_end(go.set):
        first = near.request(b"first")
        assert begun.wait(TIME)
        second = near.request(b"second")
        second.cancel()
        near.ping(timeout=TIME)
        go.set()
        assert first.response(timeout=TIME) == b"first"
        assert near.call(b"third", timeout=TIME) == b"third"
    assert asked == [b"first", b"third"]


async def test_a_request_that_its_handler_answers_though_it_is_cancelled_is_not_answered() -> None:
    kept: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def stubborn(asked: bytes) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            kept.set_result(asked)
        return asked

    async with aio.listen(URL) as listener, aio.connect(listener.url) as near:
        far = await listener.accept(timeout=TIME)
        serving = asyncio.create_task(far.serve(on_request=stubborn))
        with pytest.raises(LinkTimeout):
            await near.call(b"asked", timeout=NOW)
        assert await asyncio.wait_for(kept, TIME) == b"asked"
        await near.shutdown(timeout=TIME)
        await asyncio.wait_for(serving, TIME)


async def test_a_call_that_is_refused_says_so_beside_one_that_is_given_up() -> None:
    async with aio.listen(URL) as listener, aio.connect(listener.url) as near:
        far = await listener.accept(timeout=TIME)
        serving = asyncio.create_task(far.serve())
        with pytest.raises(RequestClosed, match="no handler"):
            await near.call(b"asked", timeout=TIME)
        await near.shutdown(timeout=TIME)
        await asyncio.wait_for(serving, TIME)
