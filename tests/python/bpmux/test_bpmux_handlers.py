"""Peers of bpmux's `serve` whose handlers raise, return early or never return."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

from ackline import LinkClosed, RequestClosed, bpmux
from ackline.aio import bpmux as aio

TIME = 20
URL = "bpmux://127.0.0.1:0"


class Odd(BaseException):
    """No `Exception`."""


class Unspeakable(Exception):  # noqa: N818 (a name for a test)
    def __str__(self) -> str:
        raise RuntimeError("no text")


RAISED = [
    (ValueError("wrong"), b"wrong"),
    (ValueError(), b"ValueError"),
    (SystemExit(3), b"SystemExit: 3"),
    (SystemExit(), b"SystemExit"),
    (KeyboardInterrupt(), b"KeyboardInterrupt"),
    (Odd("odd"), b"Odd: odd"),
    (GeneratorExit(), b"GeneratorExit"),
    (asyncio.CancelledError(), b"CancelledError"),
    (Unspeakable(), b"Unspeakable"),
    (ValueError("x" * 10_000), b"x" * 4096),
]
FOR_ASYNCIO = [pair for pair in RAISED if isinstance(pair[0], Exception | asyncio.CancelledError)]
NO_BYTES = ["text", 1, 0, [1], [], "", False, object(), 1.5, {}]


def ids(value: object) -> str:
    """The same in every process: without an address."""
    return repr(value).partition(" at 0x")[0][:30]


@contextmanager
def served(**handlers: Any) -> Iterator[bpmux.Connection]:
    """A connection to a peer that serves with threads."""
    with (
        bpmux.listen(URL) as listener,
        ThreadPoolExecutor(1) as threads,
        bpmux.connect(listener.url) as near,
    ):
        serving = threads.submit(listener.accept(timeout=TIME).serve, **handlers)
        yield near
        near.shutdown(timeout=TIME)
        serving.result(timeout=TIME)


@contextmanager
def served_by_tasks(**handlers: Any) -> Iterator[bpmux.Connection]:
    """The same with a peer of asyncio, whose end is that of its program."""
    url: Future[str] = Future()

    async def serve() -> None:
        async with aio.listen(URL) as listener:
            url.set_result(listener.url)
            async with await listener.accept(timeout=TIME) as connection:
                await connection.serve(**handlers)

    with ThreadPoolExecutor(1) as threads:
        serving = threads.submit(asyncio.run, serve())
        with bpmux.connect(url.result(timeout=TIME)) as near:
            yield near
            near.shutdown(timeout=TIME)
        serving.result(timeout=TIME)


def raising(error: BaseException) -> Callable[..., NoReturn]:
    def handler(*_: object) -> NoReturn:
        raise error

    return handler


def raising_in_tasks(error: BaseException) -> Callable[..., Any]:
    async def handler(*_: object) -> NoReturn:
        raise error

    return handler


def all_of(handler: Callable[..., object]) -> dict[str, Callable[..., object]]:
    return {f"on_{kind}": handler for kind in ("request", "sink", "stream", "duplex")}


def check_all_are_told(near: bpmux.Connection, text: bytes) -> None:
    with pytest.raises(RequestClosed) as closed:
        near.call(b"question", timeout=TIME)
    assert closed.value.payload == text
    sink, stream, duplex = near.open_sink(), near.open_stream(), near.open_duplex()
    assert sink.wait_cancelled(timeout=TIME) == text
    assert (stream.receive(timeout=TIME), stream.closed) == (None, text)
    assert (duplex.receive(timeout=TIME), duplex.closed) == (None, text)
    duplex.wait_cancelled(timeout=TIME)


@pytest.mark.parametrize(("error", "text"), RAISED, ids=ids)
def test_whatever_a_handler_in_a_thread_raises_is_told(error: BaseException, text: bytes) -> None:
    told: list[BaseException] = []
    with served(**all_of(raising(error)), on_error=told.append) as near:
        check_all_are_told(near, text)
    assert told == [error] * 4


@pytest.mark.parametrize(("error", "text"), FOR_ASYNCIO, ids=ids)
def test_whatever_a_handler_in_a_task_raises_is_told(error: BaseException, text: bytes) -> None:
    told: list[BaseException] = []
    with served_by_tasks(**all_of(raising_in_tasks(error)), on_error=told.append) as near:
        check_all_are_told(near, text)
    assert [type(one) for one in told] == [type(error)] * 4


@pytest.mark.parametrize("answer", NO_BYTES, ids=ids)
@pytest.mark.parametrize("in_tasks", [False, True], ids=["threads", "tasks"])
def test_a_response_that_is_no_bytes_closes_the_request(answer: object, *, in_tasks: bool) -> None:
    told: list[BaseException] = []

    async def answering(_: bytes) -> object:
        return answer

    if in_tasks:
        serving = served_by_tasks(on_request=answering, on_error=told.append)
    else:
        serving = served(on_request=lambda _: answer, on_error=told.append)
    with serving as near, pytest.raises(RequestClosed) as closed:
        near.call(b"question", timeout=TIME)
    name = type(answer).__name__
    assert closed.value.payload.startswith(f"the handler of requests has returned {name}".encode())
    assert [str(error).encode() for error in told] == [closed.value.payload]


@pytest.mark.parametrize("answer", [b"yes", bytearray(b"yes"), memoryview(b"yes")], ids=ids)
def test_a_response_is_anything_with_a_buffer_of_bytes(answer: object) -> None:
    with served(on_request=lambda _: answer) as near:
        assert near.call(b"question", timeout=TIME) == b"yes"


def test_no_response_at_all_is_an_empty_one() -> None:
    with served(on_request=lambda _: None) as near:
        assert near.call(b"question", timeout=TIME) == b""


@pytest.mark.parametrize("second", [RuntimeError("again"), SystemExit(4)], ids=ids)
def test_an_exception_of_on_error_leaves_nobody_waiting(
    second: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with served(**all_of(raising(ValueError("wrong"))), on_error=raising(second)) as near:
        check_all_are_told(near, b"wrong")
    assert logged(caplog) == [("bpmux.on_error_failed", type(second))] * 4


def test_an_exception_of_on_error_leaves_no_task_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handlers = all_of(raising_in_tasks(ValueError("wrong")))
    with served_by_tasks(**handlers, on_error=raising(RuntimeError("again"))) as near:
        check_all_are_told(near, b"wrong")
    assert logged(caplog) == [("bpmux.on_error_failed", RuntimeError)] * 4


@pytest.mark.parametrize("in_tasks", [False, True], ids=["threads", "tasks"])
def test_without_on_error_a_failure_is_logged(
    caplog: pytest.LogCaptureFixture, *, in_tasks: bool
) -> None:
    error = ValueError("wrong")
    handlers = all_of((raising_in_tasks if in_tasks else raising)(error))
    with (served_by_tasks if in_tasks else served)(**handlers) as near:
        check_all_are_told(near, b"wrong")
    assert logged(caplog) == [("bpmux.handler_failed", ValueError)] * 4


def test_the_end_of_a_connection_is_no_failure_of_its_handlers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "ackline.bpmux")
    entered = threading.Event()

    def read(stream: bpmux.Stream, _: bytes) -> None:
        entered.set()
        stream.receive(timeout=TIME)

    with bpmux.listen(URL) as listener, ThreadPoolExecutor(1) as threads:
        near = bpmux.connect(listener.url)
        far = listener.accept(timeout=TIME)
        serving = threads.submit(far.serve, on_sink=read)
        held = near.open_sink()
        assert entered.wait(TIME)
        near.abort()
        serving.exception(timeout=TIME)
        del held
    ends = [one for one in caplog.records if "bpmux.handler_failed" in one.getMessage()]
    assert ends
    assert {one.levelno for one in ends} == {logging.DEBUG}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=ids)
def test_the_end_of_a_program_of_asyncio_is_told_before(error: BaseException) -> None:
    told: list[BaseException] = []
    url: Future[str] = Future()
    raised: list[BaseException] = []

    async def serve() -> None:
        async with aio.listen(URL) as listener:
            url.set_result(listener.url)
            await listener.serve(on_request=raising_in_tasks(error), on_error=told.append)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as end:  # noqa: BLE001 (it is looked at)
            raised.append(end)

    thread = threading.Thread(target=run)
    thread.start()
    near = bpmux.connect(url.result(timeout=TIME))
    # The end of the program may overtake its close.
    with pytest.raises((RequestClosed, LinkClosed, ConnectionError)):
        near.call(b"question", timeout=TIME)
    thread.join(TIME)
    near.abort()
    assert told == [error]
    assert [type(end) for end in raised] == [type(error)]


@pytest.mark.parametrize("error", [Odd("odd"), GeneratorExit()], ids=ids)
def test_an_exception_that_ends_no_program_ends_no_serving(error: BaseException) -> None:
    told: list[BaseException] = []
    text = {repr(one): text for one, text in RAISED}[repr(error)]
    handlers = all_of(raising_in_tasks(error))
    with served_by_tasks(**handlers, on_error=told.append) as near:
        for _ in range(2):
            check_all_are_told(near, text)
    assert told == [error] * 8


def test_a_listener_goes_on_when_on_error_fails() -> None:
    async def run() -> None:
        failed = asyncio.Event()

        def on_error(_: BaseException) -> NoReturn:
            failed.set()
            raise RuntimeError("again")

        async with aio.listen(URL) as listener:
            serving = asyncio.create_task(listener.serve(on_request=echo, on_error=on_error))
            host, port = listener.url.removeprefix("bpmux://").split(":")
            _, rude = await asyncio.open_connection(host, int(port))
            # A chunk that does not exist.
            rude.write(b"\x8c")
            await asyncio.wait_for(failed.wait(), TIME)
            async with aio.connect(listener.url) as near:
                assert await near.call(b"still", timeout=TIME) == b"still"
            rude.close()
            await listener.close()
            await asyncio.wait_for(serving, TIME)

    async def echo(payload: bytes) -> bytes:
        return payload

    asyncio.run(run())


def test_a_task_that_is_cancelled_leaves_nobody_waiting() -> None:
    async def run() -> None:
        entered = asyncio.Event()

        async def wait(_: bytes) -> NoReturn:
            entered.set()
            await asyncio.Event().wait()
            raise AssertionError

        told: list[BaseException] = []
        async with aio.listen(URL) as listener:
            near = await aio.connect(listener.url)
            far = await listener.accept(timeout=TIME)
            serving = asyncio.create_task(far.serve(on_request=wait, on_error=told.append))
            response = await near.request(b"question")
            await asyncio.wait_for(entered.wait(), TIME)
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            # The connection goes on: it is the request that ended.
            with pytest.raises(RequestClosed, match="dropped"):
                await response.response(timeout=TIME)
            assert not far.is_ended
            assert told == []
            near.abort()
            far.abort()

    asyncio.run(run())


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, type[BaseException] | None]]:
    """Codes and exceptions of the log records."""
    found = []
    for record in caplog.records:
        if record.name == "ackline.bpmux" and record.levelno >= logging.ERROR:
            code = record.getMessage().split("code=")[1]
            found.append((code, record.exc_info[0] if record.exc_info else None))
    return found
