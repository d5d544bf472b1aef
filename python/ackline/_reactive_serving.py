"""The threads of `Publishers.serve`: one for each subscription."""

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ackline._reactive import least_one
from ackline._reactive_sources import PublishersBase, elements_of, opened
from ackline.exceptions import AcklineError, LinkClosed

if TYPE_CHECKING:
    from ackline.reactive import Connection, Publication, SubscribeRequest

__all__ = ["serve_publishers"]

_LOOK_AGAIN = 0.1
"""Seconds after which a thread that waits for a queue looks whether its subscriber has left."""


def serve_publishers(
    connection: "Connection", publishers: PublishersBase, concurrency: int
) -> None:
    """Serves the subscriptions of the connection's peer; see `Publishers.serve`."""
    least_one(concurrency)
    free, alive = threading.Semaphore(concurrency), set[threading.Thread]()

    def run(request: "SubscribeRequest") -> None:
        try:
            _answer(request, publishers)
        finally:
            alive.discard(threading.current_thread())
            free.release()

    try:
        while True:
            free.acquire()
            try:
                request = connection.accept()
            except LinkClosed:
                break
            if request is None:
                break
            thread = threading.Thread(target=run, args=[request], name="ackline-publish")
            # A request that nobody answers is rejected when nobody has it.
            del request
            alive.add(thread)
            thread.start()
        for thread in list(alive):
            thread.join()
    except BaseException:
        # This ends threads that wait on the connection.
        connection.abort()
        raise


def _answer(request: "SubscribeRequest", publishers: PublishersBase) -> None:
    """Publishes to one subscription, to its end."""
    try:
        size, source = publishers.find(request.publisher)
    except BaseException as error:  # noqa: BLE001 (the subscriber is told)
        with suppress(AcklineError):
            request.reject(publishers.reason(error))
        return
    with suppress(AcklineError):
        publication = request.accept(size)
        try:
            _publish(publication, source)
        except Exception as error:  # noqa: BLE001 (the subscriber is told)
            publication.fail(publishers.failed(error))
        else:
            publication.complete()


def _publish(publication: "Publication", source: Any) -> None:  # noqa: ANN401 (of a user)
    core, size = publication._core, publication.element_size  # noqa: SLF001 (its users cannot)
    items: Any = None
    batches = opened(source, size)
    if batches is None:
        items = _queued(publication, source) if isinstance(source, queue.Queue) else iter(source)
        batches = (elements_of(item, size) for item in items)
    try:
        while True:
            # A stream whose elements are all at hand ends without further demand.
            while items is not None and not core.room:
                core.wait("room", None)
            elements = next(batches, None)
            if elements is None:
                return
            publication.send_elements(elements)
    finally:
        if hasattr(items, "close"):
            items.close()


def _queued(publication: "Publication", source: "queue.Queue[Any]") -> Iterator[Any]:
    """The items of a queue, until one is None or the subscriber has left."""
    while not publication.cancelled:
        with suppress(queue.Empty):
            item = source.get(timeout=_LOOK_AGAIN)
            if item is None:
                return
            yield item
