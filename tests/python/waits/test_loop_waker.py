"""The waker of asyncio's waits: one descriptor for each loop, also when either ends early."""

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from support.commands import python, wait_until

from ackline import LinkTimeout, bpmux
from ackline.aio import _wait
from ackline.aio import bpmux as aio
from ackline.aio._bpmux_watch import when_ended, when_flushed

TIME = 20
URL = "bpmux://127.0.0.1:0"
MANY = 10_000


@contextmanager
def peers() -> Iterator[tuple[bpmux.Connection, bpmux.Connection]]:
    """Both ends, for threads: neither needs a loop."""
    with bpmux.listen(URL) as listener, bpmux.connect(listener.url) as near:
        yield near, listener.accept(timeout=TIME)


@asynccontextmanager
async def waiting(far: bpmux.Connection) -> AsyncIterator["asyncio.Task[Any]"]:
    """A task that waits for its peer's next opening."""
    task = asyncio.create_task(aio.Connection(far._core).accept())
    await asyncio.sleep(0)
    assert not task.done()
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def arrive(near: bpmux.Connection, far: bpmux.Connection) -> bpmux.Response:
    """A request that has come while the loop of this thread stood still."""
    before = far.stats()["peer_requests"]
    response = near.request(b"question")
    wait_until(lambda: far.stats()["peer_requests"] > before, "the request has come")
    return response


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_a_wake_may_come_before_the_loop_runs() -> None:
    with peers() as (near, far):
        async with waiting(far) as task:
            response = arrive(near, far)
            request = await asyncio.wait_for(task, TIME)
            assert isinstance(request, aio.Request)
            request.respond(b"answer")
        assert response.response(timeout=TIME) == b"answer"


async def test_a_wait_that_is_cancelled_while_its_wake_is_under_way_takes_nothing() -> None:
    with peers() as (near, far):
        async with waiting(far) as task:
            response = arrive(near, far)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        request = await aio.Connection(far._core).accept(timeout=TIME)
        assert isinstance(request, aio.Request)
        request.respond(b"answer")
        assert response.response(timeout=TIME) == b"answer"


async def test_a_wait_that_is_over_time_takes_nothing() -> None:
    with peers() as (near, far):
        end = aio.Connection(far._core)
        for timeout in (0, 0.01):
            with pytest.raises(LinkTimeout):
                await end.accept(timeout=timeout)
        response = arrive(near, far)
        request = await end.accept(timeout=0)
        assert isinstance(request, aio.Request)
        request.respond(b"answer")
        assert response.response(timeout=TIME) == b"answer"


async def test_a_result_that_is_ready_is_not_waited_for() -> None:
    with peers() as (near, _):
        near.abort()
        near.wait_ended(timeout=TIME)
        with pytest.raises(StopIteration):
            aio.Connection(near._core).wait_ended().send(None)


async def test_many_waits_have_one_descriptor() -> None:
    with peers() as (near, _):
        end = aio.Connection(near._core)
        await end.ping()
        before = descriptors()
        tasks = [asyncio.create_task(end.wait_ended()) for _ in range(MANY)]
        await asyncio.sleep(0)
        assert descriptors() <= before
        near.abort()
        async with asyncio.timeout(TIME):
            assert await asyncio.gather(*tasks) == [None] * MANY


def test_loops_in_threads_are_told_apart() -> None:
    async def calls(url: str, mine: bytes) -> list[bytes]:
        async with aio.connect(url) as connection:
            return [await connection.call(mine, timeout=TIME) for _ in range(200)]

    with bpmux.listen(URL) as listener, ThreadPoolExecutor(5) as threads:
        serving = threads.submit(listener.serve, on_request=lambda payload: payload)
        mine = [b"%d" % number for number in range(4)]
        answers = [threads.submit(asyncio.run, calls(listener.url, each)) for each in mine]
        for each, answer in zip(mine, answers, strict=True):
            assert answer.result(timeout=TIME) == [each] * 200
        listener.close()
        serving.result(timeout=TIME)


def test_no_other_thread_calls_into_the_loop() -> None:
    def refuse(*_: object) -> NoReturn:
        pytest.fail("a wake went through the loop's own pipe")

    async def call(url: str) -> bytes:
        async with aio.connect(url) as connection:
            asyncio.get_running_loop().call_soon_threadsafe = refuse  # type: ignore[method-assign]
            return await connection.call(b"question", timeout=TIME)

    with bpmux.listen(URL) as listener, ThreadPoolExecutor(1) as threads:
        serving = threads.submit(listener.serve, on_request=bytes.upper)
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(call(listener.url)) == b"QUESTION"
        loop.close()
        listener.close()
        serving.result(timeout=TIME)


Closed = tuple[Callable[[], object], list["asyncio.Task[None]"]]


def closed_with_waits(connection: bpmux.Connection, count: int) -> Closed:
    """A loop that was closed with open waits: its waker, if it still exists, and its tasks."""
    loop = asyncio.new_event_loop()
    # Its tasks never learn of its end: this is the subject of the test.
    loop.set_exception_handler(lambda *_: None)
    end = aio.Connection(connection._core)
    tasks = [loop.create_task(end.wait_ended()) for _ in range(count)]
    loop.run_until_complete(asyncio.sleep(0))
    waker = _wait._wakers[loop]
    loop.close()
    return waker, tasks


def test_a_closed_loop_leaves_nothing_of_its_waits() -> None:
    with peers() as (near, _):
        waker, tasks = closed_with_waits(near, 10)
        assert not any(task.done() for task in tasks)
        del tasks
        gc.collect()
        assert waker() is None
        assert near.ping(timeout=TIME) > 0


def test_the_wakes_of_a_closed_loop_reach_no_other_descriptor() -> None:
    for _ in range(20):
        with peers() as (near, _):
            ready = threading.Barrier(2)

            def abort(near: bpmux.Connection = near, ready: threading.Barrier = ready) -> None:
                ready.wait(TIME)
                near.abort()

            with ThreadPoolExecutor(1) as threads:
                aborting = threads.submit(abort)
                ready.wait(TIME)
                # When the loop is closed, some waits are open and some are woken.
                closed_with_waits(near, 50)
                gc.collect()
                others = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(8)]
                aborting.result(TIME)
            near.wait_ended(timeout=TIME)
            for other in others:
                with pytest.raises(BlockingIOError):
                    os.eventfd_read(other)
                os.close(other)


FORKED = """
import asyncio, gc, os, warnings
warnings.simplefilter("ignore")  # the interpreter warns of forks beside threads: that is the test
from ackline import ForkError, bpmux
from ackline.aio import bpmux as aio
from ackline.aio._bpmux_watch import when_ended, when_flushed

async def echo(payload):
    return payload

async def round_trip():
    async with aio.listen("bpmux://127.0.0.1:0") as listener:
        serving = asyncio.create_task(listener.serve(on_request=echo))
        async with aio.connect(listener.url) as near:
            assert await near.call(b"question", timeout=20) == b"question"
        await listener.close()
        await serving

async def accept():
    async with aio.listen("bpmux://127.0.0.1:0") as listener:
        await listener.accept(timeout=20)

loop = asyncio.new_event_loop()
loop.run_until_complete(round_trip())
pid = os.fork()
if pid == 0:
    code = 1
    try:
        try:
            loop.run_until_complete(accept())
        except ForkError:
            # The waker of the parent is checked too.
            gc.collect()
            asyncio.run(round_trip())
            code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
loop.run_until_complete(round_trip())
print("alive", flush=True)
"""


def test_a_forked_child_has_wakers_of_its_own() -> None:
    done = python(FORKED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


ENDS_WITH_WAITS = """
import asyncio
from ackline import bpmux
from ackline._core import LoopWaker

listener = bpmux.listen("bpmux://127.0.0.1:0")
near = bpmux.connect(listener.url)
loop = asyncio.new_event_loop()
waker = LoopWaker(loop)
waits = [near._core.wait_async("end", waker) for _ in range(1000)]
near.abort()
print("done", flush=True)
"""


def test_the_interpreter_ends_while_waits_are_woken() -> None:
    """A thread that is caught attached could abort the process."""
    done = python(ENDS_WITH_WAITS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


async def test_a_callback_comes_once_when_the_connection_ends_or_has_ended():
    with peers() as (near, far):
        calls, ended = [], asyncio.Event()
        when_ended(near, ended.set)
        await asyncio.sleep(0)
        assert not ended.is_set()
        far.abort()
        await asyncio.wait_for(ended.wait(), TIME)
        when_ended(near, lambda: calls.append("at once"))
        assert calls == ["at once"]


async def test_a_callback_comes_when_messages_have_gone_to_the_transport():
    with bpmux.listen(URL, credit="manual") as listener:
        near = bpmux.connect(listener.url)
        far = listener.accept(timeout=TIME)
    near.sink.send(b"x")
    gone = asyncio.Event()
    when_flushed(near.sink, gone.set)
    await asyncio.sleep(0.05)
    assert not gone.is_set(), "the peer has given no credit"
    far.stream.grant_credit(100)
    await asyncio.wait_for(gone.wait(), TIME)
    near.abort()
    far.abort()
