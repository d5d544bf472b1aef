"""The tasks of `Publishers.serve` for asyncio: one for each subscription."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ackline._reactive import least_one
from ackline._reactive_core import ReactiveElements
from ackline._reactive_sources import PublishersBase, elements_of, iterated, opened
from ackline.aio._wait import ready
from ackline.exceptions import AcklineError, LinkClosed

if TYPE_CHECKING:
    from ackline.aio.reactive import Connection, Publication, SubscribeRequest

__all__ = ["serve_publishers", "wait_for_room"]

_TURN = 64
"""Elements of an iterable after which the other tasks of the loop have their turn."""


async def serve_publishers(
    connection: "Connection", publishers: PublishersBase, concurrency: int | None
) -> None:
    """Serves the subscriptions of the connection's peer; see `Publishers.serve`."""
    least_one(concurrency)
    tasks = set[asyncio.Task[None]]()
    try:
        while True:
            try:
                request = await connection.accept()
            except LinkClosed:
                break
            if request is None:
                break
            if concurrency is not None and len(tasks) >= concurrency:
                with suppress(AcklineError):
                    request.reject(
                        f"this publisher serves {concurrency} streams of a connection at once "
                        "(concurrency): try again later"
                    )
                continue
            task = asyncio.create_task(_answer(request, publishers))
            # A request that nobody answers is rejected when nobody has it.
            del request
            tasks.add(task)
            task.add_done_callback(tasks.discard)
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
    except BaseException as error:  # noqa: BLE001 (the subscriber is told)
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
    size = publication.element_size
    batches = opened(source, size)
    if batches is not None:
        # A stream whose elements are all at hand ends without further demand.
        await _publish_each(publication, batches, is_at_hand=True)
    elif isinstance(source, asyncio.Queue):
        await _publish_coming(publication, _queued(source))
    elif hasattr(source, "__aiter__"):
        await _publish_coming(publication, aiter(source))
    else:
        batches = (elements_of(item, size) for item in iterated(source))
        await _publish_each(publication, batches, is_at_hand=False)


async def _publish_coming(publication: "Publication", items: AsyncIterator[Any]) -> None:
    """Publishes items that are waited for; each is asked for when there is demand."""
    try:
        await wait_for_room(publication)
        async for item in items:
            await publication.send_elements(elements_of(item, publication.element_size))
            await wait_for_room(publication)
    finally:
        if hasattr(items, "aclose"):
            await items.aclose()


async def _publish_each(
    publication: "Publication", batches: Iterator[ReactiveElements], *, is_at_hand: bool
) -> None:
    """Publishes batches that nobody waits for."""
    for turn in range(1 << 62):
        if not is_at_hand:
            await wait_for_room(publication)
        if turn % _TURN == 0:
            await asyncio.sleep(0)
        elements = next(batches, None)
        if elements is None:
            return
        await publication.send_elements(elements)


async def wait_for_room(publication: "Publication") -> None:
    """Waits for demand; raises the end of the subscription or of the connection."""
    core = publication._core  # noqa: SLF001 (its users cannot)
    while not core.room:
        await ready(partial(core.wait_async, "room"), None)


async def _queued(queue: "asyncio.Queue[Any]") -> AsyncIterator[Any]:
    """The items of a queue, until one is None."""
    while (item := await queue.get()) is not None:
        yield item
