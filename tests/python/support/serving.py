"""Peers that serve bpmux, with threads or with tasks, for tests that run against both."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from ackline import bpmux
from ackline.aio import bpmux as aio

TIME = 20
NOW = 0.05
URL = "bpmux://127.0.0.1:0"
Serve = Callable[..., Any]
URLS: dict[bpmux.Connection, str] = {}
"""Where the peer of a connection listens."""


@contextmanager
def by_threads(**handlers: Any) -> Iterator[bpmux.Connection]:
    """A connection to a peer that serves with threads."""
    with (
        bpmux.listen(URL) as listener,
        ThreadPoolExecutor(1) as threads,
        bpmux.connect(listener.url) as near,
    ):
        serving = threads.submit(listener.serve, **handlers)
        URLS[near] = listener.url
        yield near
        near.shutdown(timeout=TIME)
        listener.close()
        serving.result(timeout=TIME)


@contextmanager
def by_tasks(**handlers: Any) -> Iterator[bpmux.Connection]:
    """A connection to a peer that serves with tasks; its handlers are made coroutines."""
    url: Future[tuple[str, Callable[[], None]]] = Future()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        async with aio.listen(URL) as listener:

            def close() -> None:
                loop.call_soon_threadsafe(lambda: closing.set_result(None))

            closing: asyncio.Future[None] = loop.create_future()
            serving = asyncio.create_task(listener.serve(**handlers))
            url.set_result((listener.url, close))
            await closing
            await listener.close()
            await asyncio.wait_for(serving, TIME)

    with ThreadPoolExecutor(1) as threads:
        serving = threads.submit(asyncio.run, serve())
        at, close = url.result(timeout=TIME)
        try:
            with bpmux.connect(at) as near:
                URLS[near] = at
                yield near
                near.shutdown(timeout=TIME)
        finally:
            close()
        serving.result(timeout=TIME)


both = pytest.mark.parametrize("serve", [by_threads, by_tasks], ids=["threads", "tasks"])


def adapted(serve: Serve, handler: Callable[..., Any]) -> Callable[..., Any]:
    """A handler that waits, for threads as it is and for tasks as a coroutine in a thread."""
    if serve is by_threads:
        return handler

    async def in_thread(*arguments: Any) -> Any:
        return await asyncio.to_thread(handler, *arguments)

    return in_thread
