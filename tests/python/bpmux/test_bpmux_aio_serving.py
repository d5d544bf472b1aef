"""The tasks of `serve` for asyncio: their contexts, and their end."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from weakref import ref

import pytest
from test_bpmux_aio import TIME, Pair, paired

from ackline import LinkClosed, LinkTimeout, RequestClosed, UsageError
from ackline.aio import bpmux

NOW = 0.05
NAME: ContextVar[str] = ContextVar("name", default="nobody")


class Odd(BaseException):
    """No `Exception`."""


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    async with asyncio.timeout(2 * TIME), paired() as both:
        yield both


async def echo(asked: bytes) -> bytes:
    return asked


async def test_each_handler_has_a_context_of_its_own() -> None:
    async def named(asked: bytes) -> bytes:
        before = NAME.get()
        NAME.set(asked.decode())
        await asyncio.sleep(0)
        return f"{before}, {NAME.get()}".encode()

    async with pair() as (near, far):
        # The first call of a waker in this loop was made under another name.
        NAME.set("server")
        serving = asyncio.create_task(far.serve(on_request=named))
        NAME.set("client")
        asked = [f"n{number}".encode() for number in range(20)]
        answers = await asyncio.gather(*(near.call(one, timeout=TIME) for one in asked))
        assert answers == [b"server, " + one for one in asked]
        assert await near.call(b"last", timeout=TIME) == b"server, last"
        await near.shutdown(timeout=TIME)
        await serving


async def test_an_opening_that_comes_while_all_handlers_are_busy_begins_when_one_is_done() -> None:
    at_once, most = 0, 0

    async def count(asked: bytes) -> bytes:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if int(asked) % 3:
            await asyncio.sleep(0.001)
        at_once -= 1
        return asked

    async with pair() as (near, far):
        serving = asyncio.create_task(far.serve(on_request=count, concurrency=3))
        asked = [b"%d" % number for number in range(500)]
        assert await asyncio.gather(*(near.call(one, timeout=TIME) for one in asked)) == asked
        assert most == 3
        await near.shutdown(timeout=TIME)
        await serving


async def test_the_end_waits_for_handlers_and_hears_of_them() -> None:
    go = asyncio.Event()
    begun: asyncio.Queue[bytes] = asyncio.Queue()
    ended = []

    async def wait(asked: bytes) -> bytes:
        begun.put_nowait(asked)
        try:
            await go.wait()
        finally:
            ended.append(asked)
        if asked == b"odd":
            raise Odd("odd")
        return asked

    async with pair() as (near, far):
        serving = asyncio.create_task(far.serve(on_request=wait))
        responses = [await near.request(asked) for asked in (b"odd", b"even")]
        assert sorted([await begun.get(), await begun.get()]) == [b"even", b"odd"]
        near.close()
        done, _ = await asyncio.wait([serving], timeout=NOW)
        assert not done
        go.set()
        await serving
        assert sorted(ended) == [b"even", b"odd"]
        with pytest.raises(RequestClosed, match="Odd: odd"):
            await responses[0].response(timeout=TIME)
        assert await responses[1].response(timeout=TIME) == b"even"


async def test_a_cancelled_serve_waits_for_its_handlers_and_takes_nothing_any_more() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    ended = []

    async def stubborn(_: bytes) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                ended.append("cancelled again")
                await asyncio.sleep(0)
                ended.append("at its end")
        return b""

    async with pair() as (near, far):
        serving = asyncio.create_task(far.serve(on_request=stubborn))
        first = await near.request(b"first")
        await asyncio.wait_for(begun.wait(), TIME)
        serving.cancel()
        done, _ = await asyncio.wait([serving], timeout=NOW)
        assert not done
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert ended == ["cancelled again", "at its end"]
        with pytest.raises(RequestClosed):
            await first.response(timeout=TIME)
        with pytest.raises(LinkTimeout):
            await near.call(b"second", timeout=NOW)
        third = await near.request(b"third")
        taken = [await far.accept(timeout=TIME) for _ in range(2)]
        assert [one.payload for one in taken if isinstance(one, bpmux.Request)] == [
            b"second",
            b"third",
        ]
        assert isinstance(taken[1], bpmux.Request)
        taken[1].respond(b"by hand")
        assert await third.response(timeout=TIME) == b"by hand"
        # It can be served again.
        again = asyncio.create_task(far.serve(on_request=echo))
        assert await near.call(b"fourth", timeout=TIME) == b"fourth"
        await near.shutdown(timeout=TIME)
        await again


async def test_serve_ends_with_its_connection() -> None:
    async with pair() as (near, far):
        serving = asyncio.create_task(far.serve(on_request=echo))
        assert await near.call(b"asked", timeout=TIME) == b"asked"
        far.abort()
        await asyncio.wait_for(serving, TIME)
        # No connection is open then.
        await asyncio.wait_for(far.serve(on_request=echo), TIME)
        with pytest.raises((LinkClosed, UsageError)):
            await far.accept(timeout=TIME)


async def test_neither_handlers_nor_their_tasks_are_kept() -> None:
    tasks = []

    async def note(asked: bytes) -> bytes:
        tasks.append(ref(asyncio.current_task()))
        return asked

    async with pair() as (near, far):
        serving = asyncio.create_task(far.serve(on_request=note))
        for _ in range(20):
            await near.call(b"asked", timeout=TIME)
        gc.collect()
        assert [task() for task in tasks] == [None] * 20
        serving.cancel()
        await asyncio.wait([serving])
        handler = ref(note)
        del serving, note
        gc.collect()
        assert handler() is None
