"""The tasks of `Publishers.serve` for asyncio: one for each subscription."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ackline._reactive import least_one
from ackline._reactive_sources import PublishersBase, elements_of, opened
from ackline.aio._wait import ready
from ackline.exceptions import AcklineError, LinkClosed

if TYPE_CHECKING:
    from ackline.aio.reactive import Connection, Publication, SubscribeRequest

__all__ = ["serve_publishers"]

_TURN = 64
"""Elements of an iterable after which the other tasks of the loop have their turn."""


async def serve_publishers(
    connection: "Connection", publishers: PublishersBase, concurrency: int
) -> None:
    """Serves the subscriptions of the connection's peer; see `Publishers.serve`."""
    least_one(concurrency)
    free, tasks = asyncio.Semaphore(concurrency), set[asyncio.Task[None]]()

    def ended(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        free.release()

    try:
        while True:
            await free.acquire()
            try:
                request = await connection.accept()
            except LinkClosed:
                break
            if request is None:
                break
            task = asyncio.create_task(_answer(request, publishers))
            tasks.add(task)
            task.add_done_callback(ended)
        if tasks:
            await asyncio.wait(tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        raise


async def _answer(request: "SubscribeRequest", publishers: PublishersBase) -> None:
    """Publishes to one subscription, to its end."""
    try:
        size, source = publishers.find(request.publisher)
    except Exception as error:  # noqa: BLE001 (the subscriber is told)
        with suppress(AcklineError):
            request.reject(publishers.reason(error))
        return
    with suppress(AcklineError):
        publication = request.accept(size)
        pump = asyncio.create_task(_pump(publication, source, publishers))
        cancelled = asyncio.create_task(publication.wait_cancelled())
        try:
            await asyncio.wait({pump, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pump.cancel()
            cancelled.cancel()
            await asyncio.wait({pump, cancelled})


async def _pump(publication: "Publication", source: object, publishers: PublishersBase) -> None:
    """Publishes the elements of a source, and ends the stream behind them."""
    try:
        await _publish(publication, source)
    except Exception as error:  # noqa: BLE001 (the subscriber is told)
        why = publishers.failed(error)
        with suppress(AcklineError):
            publication.fail(why)
        return
    with suppress(AcklineError):
        publication.complete()


async def _publish(publication: "Publication", source: Any) -> None:  # noqa: ANN401 (of a user)
    core, size = publication._core, publication.element_size  # noqa: SLF001 (its users cannot)
    batches = opened(source, size)
    if batches is None and (hasattr(source, "__aiter__") or isinstance(source, asyncio.Queue)):
        items = _queued(source) if isinstance(source, asyncio.Queue) else aiter(source)
        try:
            while core.room or await ready(partial(core.wait_async, "room"), None):
                item = await anext(items, None)
                if item is None:
                    return
                await publication.send_elements(elements_of(item, size))
        finally:
            if hasattr(items, "aclose"):
                await items.aclose()
        return
    # What is at hand ends its stream without further demand.
    is_at_hand = batches is not None
    if batches is None:
        batches = (elements_of(item, size) for item in source)
    for turn in range(1 << 62):
        if not is_at_hand and not core.room:
            await ready(partial(core.wait_async, "room"), None)
        elif turn % _TURN == 0:
            await asyncio.sleep(0)
        elements = next(batches, None)
        if elements is None:
            return
        await publication.send_elements(elements)


async def _queued(queue: "asyncio.Queue[Any]") -> AsyncIterator[Any]:
    """The items of a queue, until one is None."""
    while (item := await queue.get()) is not None:
        yield item
