"""Handlers and threads of bpmux's `serve`, and calls that wait for room or are given up."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from support.commands import wait_until

from ackline import LinkTimeout, ProtocolError, RequestClosed, TransportError, UsageError, bpmux
from ackline._serving import serve_each
from ackline.aio import bpmux as aio

TIME = 20
URL = "bpmux://127.0.0.1:0"
NO_ROOM = r"there was no room within 0\.01 s"
Pair = tuple[bpmux.Connection, bpmux.Connection]


@contextmanager
def paired() -> Iterator[Pair]:
    with bpmux.listen(URL) as listener, bpmux.connect(listener.url) as near:
        yield near, listener.accept(timeout=TIME)


@contextmanager
def without_room() -> Iterator[Pair]:
    """As much waits for credit at the first end as may wait: a request."""
    with bpmux.listen(URL, credit="manual") as listener:
        near = bpmux.connect(listener.url, send_bytes=1000)
        far = listener.accept(timeout=TIME)
    try:
        with near.request(bytes(1000), timeout=TIME):
            yield near, far
    finally:
        near.abort()
        far.abort()


def names(near: bpmux.Connection, calls: int) -> list[str]:
    """Calls one after the other, then ends the connection."""
    answers = [near.call(b"who", timeout=TIME).decode() for _ in range(calls)]
    near.shutdown(timeout=TIME)
    return answers


def name(_: bytes) -> bytes:
    return threading.current_thread().name.encode()


def test_a_thread_that_waits_for_signals_runs_no_handler() -> None:
    """The main thread of the tests serves: its handlers run in others."""
    with paired() as (near, far), ThreadPoolExecutor(1) as threads:
        asking = threads.submit(names, near, 200)
        far.serve(on_request=name)
        found = set(asking.result(TIME))
    assert all(each.startswith("ackline-serve_") for each in found)
    assert len(found) < 16, "a thread that is idle is not doubled"


def test_another_thread_takes_part() -> None:
    with paired() as (near, far), ThreadPoolExecutor(2, thread_name_prefix="mine") as threads:
        serving = threads.submit(far.serve, on_request=name, concurrency=1)
        found = set(names(near, 20))
        serving.result(TIME)
    assert {each.split("_")[0] for each in found} == {"mine"}


def test_a_handler_that_waits_holds_nobody_back() -> None:
    go = threading.Event()

    def handler(payload: bytes) -> bytes:
        if payload == b"wait":
            go.wait(TIME)
        return payload

    with paired() as (near, far), ThreadPoolExecutor(1) as threads:
        serving = threads.submit(far.serve, on_request=handler)
        waiting = [near.request(b"wait") for _ in range(5)]
        for number in range(20):
            assert near.call(b"%d" % number, timeout=TIME) == b"%d" % number
        assert [each.try_response() for each in waiting] == [None] * 5
        go.set()
        assert [each.response(timeout=TIME) for each in waiting] == [b"wait"] * 5
        near.shutdown(timeout=TIME)
        serving.result(TIME)


def test_many_calls_at_once_are_answered_each_with_its_own() -> None:
    def calls(near: bpmux.Connection, mine: int) -> list[bytes]:
        return [near.call(b"%d %d" % (mine, number), timeout=TIME) for number in range(100)]

    with paired() as (near, far), ThreadPoolExecutor(9) as threads:
        serving = threads.submit(far.serve, on_request=lambda payload: payload, concurrency=4)
        asking = [threads.submit(calls, near, mine) for mine in range(8)]
        for mine, asked in enumerate(asking):
            assert asked.result(TIME) == [b"%d %d" % (mine, number) for number in range(100)]
        near.shutdown(timeout=TIME)
        serving.result(TIME)


def test_a_broken_rule_ends_the_waits_of_handlers() -> None:
    begun = threading.Event()
    ends: list[bool] = []

    with bpmux.listen(URL) as listener, ThreadPoolExecutor(1) as threads:
        host, port = listener.url.removeprefix("bpmux://").rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=TIME) as rude:
            far = listener.accept(timeout=TIME)

            def handler(_: bytes) -> None:
                begun.set()
                far.wait_ended(timeout=TIME)
                ends.append(far.is_ended)

            serving = threads.submit(far.serve, on_request=handler)
            rude.sendall(b"\x80\x01\x00")
            assert begun.wait(TIME)
            rude.sendall(b"\xff" * 20)
            with pytest.raises(ProtocolError):
                serving.result(TIME)
            assert ends == [True]


def test_a_thread_that_cannot_be_started_ends_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("no more threads")

    with paired() as (near, far), ThreadPoolExecutor(1) as threads:
        serving = threads.submit(far.serve, on_request=lambda payload: payload)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        response = near.request(b"question")
        with pytest.raises(RuntimeError, match="no more threads"):
            serving.result(TIME)
        near.wait_ended(timeout=TIME)
        assert far.is_ended
        del response


def test_a_call_without_room_waits_for_it() -> None:
    with without_room() as (near, far), ThreadPoolExecutor(1) as threads:
        with pytest.raises(LinkTimeout, match=NO_ROOM):
            near.call(b"question", timeout=0.01)
        calling = threads.submit(near.call, b"question", timeout=TIME)
        far.stream.grant_credit(2000)
        before = far.accept(timeout=TIME)
        request = far.accept(timeout=TIME)
        assert isinstance(request, bpmux.Request)
        request.respond(request.payload.upper())
        assert calling.result(TIME) == b"QUESTION"
        del before


async def test_a_call_of_asyncio_without_room_waits_for_it() -> None:
    with without_room() as (near, far):
        end = aio.Connection(near._core)
        with pytest.raises(LinkTimeout, match=NO_ROOM):
            await end.call(b"question", timeout=0.01)
        calling = asyncio.create_task(end.call(b"question", timeout=TIME))
        await asyncio.sleep(0)
        far.stream.grant_credit(2000)
        before = await aio.Connection(far._core).accept(timeout=TIME)
        request = await aio.Connection(far._core).accept(timeout=TIME)
        assert isinstance(request, aio.Request)
        request.respond(request.payload.upper())
        assert await asyncio.wait_for(calling, TIME) == b"QUESTION"
        del before


async def test_a_call_that_is_cancelled_gives_its_request_up() -> None:
    with paired() as (near, far):
        calling = asyncio.create_task(aio.Connection(near._core).call(b"question"))
        request = await aio.Connection(far._core).accept(timeout=TIME)
        assert isinstance(request, aio.Request)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert await request.wait_cancelled(timeout=TIME) == b""


async def test_a_call_that_nobody_answers_any_more_says_so() -> None:
    with paired() as (near, far):
        calls = [
            asyncio.create_task(aio.Connection(near._core).call(b"question")) for _ in range(3)
        ]
        for _ in calls:
            request = await aio.Connection(far._core).accept(timeout=TIME)
            assert isinstance(request, aio.Request)
            request.close(b"not today")
        for call in calls:
            with pytest.raises(RequestClosed, match="not today"):
                await asyncio.wait_for(call, TIME)


def test_an_exception_in_the_loop_of_a_listener_aborts_its_connections() -> None:
    with paired() as (near, far), paired() as (second, other):
        served = threading.Barrier(3)

        def interrupted() -> Iterator[bpmux.Connection]:
            yield near
            yield second
            served.wait(TIME)
            raise KeyboardInterrupt

        def handle(connection: bpmux.Connection) -> None:
            served.wait(TIME)
            connection.wait_ended(timeout=TIME)

        with pytest.raises(KeyboardInterrupt):
            serve_each(interrupted(), handle)
        far.wait_ended(timeout=TIME)
        other.wait_ended(timeout=TIME)


@contextmanager
def served(**handlers: Callable[..., object]) -> Iterator[bpmux.Connection]:
    """A connection to a peer that serves."""
    with (
        bpmux.listen(URL) as listener,
        ThreadPoolExecutor(1) as threads,
        bpmux.connect(listener.url) as near,
    ):
        far = listener.accept(timeout=TIME)
        serving = threads.submit(far.serve, **handlers)
        yield near
        near.shutdown(timeout=TIME)
        serving.result(timeout=TIME)


def test_handlers_serve_until_the_peer_closes() -> None:
    read: list[bytes] = []
    with served(
        on_request=bytes.upper,
        on_sink=lambda stream, payload: read.extend([payload, *stream]),
        on_stream=lambda sink, payload: sink.send_many([payload] * 3),
        on_duplex=lambda duplex, _: [duplex.send(message) for message in duplex],
    ) as near:
        assert near.call(b"question", timeout=TIME) == b"QUESTION"
        with near.open_sink(b"log") as sink:
            sink.send_many([b"one", b"two"])
        assert list(near.open_stream(b"again")) == [b"again"] * 3
        duplex = near.open_duplex()
        duplex.send(b"echo")
        assert duplex.receive(timeout=TIME) == b"echo"
        duplex.close(timeout=TIME)
        assert duplex.receive(timeout=TIME) is None
        assert duplex.closed == b""
    assert read == [b"log", b"one", b"two"]


def test_an_exception_of_a_handler_reaches_the_caller() -> None:
    told: list[BaseException] = []

    def fail(*_: object) -> None:
        raise ValueError("wrong")

    handlers = {"on_request": fail, "on_sink": fail, "on_stream": fail, "on_duplex": fail}
    with served(**handlers, on_error=told.append) as near:
        with pytest.raises(RequestClosed) as closed:
            near.call(b"question", timeout=TIME)
        assert closed.value.payload == b"wrong"
        assert near.open_sink().wait_cancelled(timeout=TIME) == b"wrong"
        stream, duplex = near.open_stream(), near.open_duplex()
        assert (list(stream), stream.closed) == ([], b"wrong")
        assert (list(duplex), duplex.closed) == ([], b"wrong")
    assert [str(error) for error in told] == ["wrong"] * 4


def test_an_entity_without_a_handler_is_ended() -> None:
    with served() as near:
        with pytest.raises(RequestClosed, match="no handler"):
            near.call(b"question", timeout=TIME)
        assert near.open_sink().wait_cancelled(timeout=TIME) == b"no handler"
        stream = near.open_stream()
        assert (list(stream), stream.closed) == ([], b"no handler")


def test_handlers_at_once_are_bounded() -> None:
    go, at_once, most = threading.Event(), threading.Semaphore(2), []

    def handler(payload: bytes) -> bytes:
        most.append(at_once.acquire(blocking=False))
        go.wait(TIME)
        at_once.release()
        return payload

    with served(on_request=handler, concurrency=2) as near:
        responses = [near.request(b"%d" % number) for number in range(6)]
        wait_until(lambda: len(most) == 2, "two handlers run")
        go.set()
        answers = [response.response(timeout=TIME) for response in responses]
    assert answers == [b"%d" % number for number in range(6)]
    assert most == [True] * 6


def test_a_listener_serves_every_connection_until_it_is_closed() -> None:
    told: list[BaseException] = []
    with bpmux.listen(URL) as listener, ThreadPoolExecutor(1) as threads:
        serving = threads.submit(listener.serve, on_request=bytes.upper, on_error=told.append)
        with bpmux.connect(listener.url) as first, bpmux.connect(listener.url) as second:
            assert first.call(b"one", timeout=TIME) == b"ONE"
            assert second.call(b"two", timeout=TIME) == b"TWO"
            host, port = listener.url.removeprefix("bpmux://").rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=TIME) as rude:
                rude.sendall(b"\xff" * 20)
                wait_until(lambda: told, "the broken rule is told")
            assert isinstance(told[0], ProtocolError)
            listener.close()
            with pytest.raises(TransportError):
                bpmux.connect(listener.url)
            assert first.call(b"three", timeout=TIME) == b"THREE"
            assert not serving.done()
        serving.result(timeout=TIME)
    assert len(told) == 1


def test_handlers_that_could_never_run_are_refused(
    pair: tuple[bpmux.Connection, bpmux.Connection],
) -> None:
    with pytest.raises(UsageError, match="concurrency is 0"):
        pair[1].serve(concurrency=0)
    with bpmux.listen(URL) as listener, pytest.raises(UsageError, match="concurrency is 0"):
        listener.serve(concurrency=0)
