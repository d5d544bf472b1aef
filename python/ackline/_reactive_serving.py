"""The threads of `Publishers.serve`: they run sources while there is demand for elements.

A stream without demand has no thread. It is parked until there is room for its elements, and then
it has its turn in one of the threads.
"""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ackline import _parked
from ackline._reactive import least_one
from ackline._reactive_core import ReactiveElements, ReactivePublication
from ackline._reactive_sources import PublishersBase, elements_of, iterated, opened
from ackline.exceptions import AcklineError, LinkClosed

if TYPE_CHECKING:
    from ackline.reactive import Connection, Publication, SubscribeRequest

__all__ = ["serve_publishers"]

_MOST_THREADS: Final = 256
"""Threads of a connection that run sources, at most, unless told."""
_PATIENCE: Final = 5.0
"""Seconds after which a subscription that has found no thread is rejected."""
_LOOK_AGAIN: Final = 0.1
"""Seconds after which a thread that waits for a queue goes on with another stream."""
_LINGER: Final = 0.05
"""Seconds that a thread waits for demand while no other stream needs it."""
_TURN: Final = 64
"""Batches of a source after which other streams have their turn."""


def serve_publishers(
    connection: "Connection", publishers: PublishersBase, concurrency: int | None
) -> None:
    """Serves the subscriptions of the connection's peer; see `Publishers.serve`."""
    least_one(concurrency)
    serving = _Serving(publishers, _MOST_THREADS if concurrency is None else concurrency)
    try:
        while True:
            try:
                request = connection.accept()
            except LinkClosed:
                break
            if request is None:
                break
            serving.begin(request)
            # A request that nobody answers is rejected when nobody has it.
            del request
        serving.wait()
    except BaseException:
        # This ends the streams whose sources do not wait for something else.
        connection.abort()
        raise
    finally:
        serving.pool.shutdown(wait=False)


class _Serving:
    """The streams of a connection and the threads that run their sources.

    Attributes:
        publishers: The publishers.
        most: Threads, at most.
        pool: The threads.
    """

    def __init__(self, publishers: PublishersBase, most: int) -> None:
        self.publishers = publishers
        self.most = most
        self.pool = ThreadPoolExecutor(most, thread_name_prefix="ackline-publish")
        self._changed = threading.Condition()
        self._alive = set[_Stream]()
        self._waiting = 0
        self.turns = 0
        """Turns that have ended."""

    def begin(self, request: "SubscribeRequest") -> None:
        """Begins the stream of a subscription, or rejects it."""
        if not self.publishers.knows(request.publisher):
            _reject(request, self.publishers)
            return
        stream = _Stream(self, request)
        with self._changed:
            self._alive.add(stream)
        self.go_on(stream)
        if self.is_crowded:
            self.look_later(stream)

    def look_later(self, stream: "_Stream") -> None:
        """Rejects a stream later, if it has not begun and no turn of another one has ended."""
        _parked.later(_PATIENCE, partial(stream.give_up, self.turns))

    def go_on(self, stream: "_Stream") -> None:
        """Gives a stream its next turn."""
        with self._changed:
            self._waiting += 1
        try:
            self.pool.submit(self._run, stream)
        except RuntimeError:
            # At its end the process, or `serve` after an exception, takes no more turns.
            self.ended(stream)

    @property
    def is_crowded(self) -> bool:
        """Whether a stream waits for its turn."""
        return self._waiting > 0

    def ended(self, stream: "_Stream") -> None:
        """Forgets a stream."""
        with self._changed:
            self._alive.discard(stream)
            self._changed.notify_all()

    def wait(self) -> None:
        """Waits until every stream has ended."""
        with self._changed:
            while self._alive:
                self._changed.wait()

    def _run(self, stream: "_Stream") -> None:
        with self._changed:
            self._waiting -= 1
        has_ended = stream.turn()
        with self._changed:
            self.turns += 1
        if has_ended:
            self.ended(stream)


class _Stream:
    """The stream of one subscription. At most one thread has it."""

    def __init__(self, serving: _Serving, request: "SubscribeRequest") -> None:
        self._serving = serving
        self._lock = threading.Lock()
        self._request: SubscribeRequest | None = request
        self._publication: Publication | None = None
        self._batches: Iterator[ReactiveElements] = iter(())
        self._items: Any = None
        self._elements: ReactiveElements | None = None

    def give_up(self, turns: int) -> None:
        """Rejects a subscription that no thread has begun with, if no turn has ended since."""
        if self._serving.turns != turns:
            if self._request is not None:
                self._serving.look_later(self)
            return
        request = self._take_request()
        if request is None:
            return
        most = self._serving.most
        with suppress(AcklineError):
            request.reject(
                f"this publisher runs {most} sources at once (concurrency), and all of them are "
                "busy: try again later"
            )
        self._serving.ended(self)

    def turn(self) -> bool:
        """Goes on with the stream; returns whether it has ended."""
        try:
            if self._publication is None and not self._accept():
                return True
            if not self._publish():
                return False
        except BaseException as error:  # noqa: BLE001 (the subscriber is told)
            self._end(error)
        else:
            self._end(None)
        return True

    def _take_request(self) -> "SubscribeRequest | None":
        with self._lock:
            request, self._request = self._request, None
        return request

    def _accept(self) -> bool:
        request = self._take_request()
        if request is None:
            return False
        publishers = self._serving.publishers
        try:
            size, source = publishers.find(request.publisher)
        except BaseException as error:  # noqa: BLE001 (the subscriber is told)
            with suppress(AcklineError):
                request.reject(publishers.reason(error))
            return False
        try:
            self._publication = publication = request.accept(size)
        except AcklineError:
            return False
        batches = opened(source, size)
        if batches is not None:
            self._batches = batches
        elif isinstance(source, queue.Queue):
            self._items = self._batches = _queued(publication, source)
        else:
            items = self._items = iterated(source)
            self._batches = (elements_of(item, size) for item in items)
        return True

    def _publish(self) -> bool:
        """Publishes elements; returns whether the source has ended. It is parked otherwise."""
        assert self._publication is not None  # noqa: S101 (it was accepted)
        core = self._publication._core  # noqa: SLF001 (its users cannot)
        for turn in range(1, 1 << 62):
            # A stream whose elements are all at hand ends without further demand.
            if self._elements is None and (self._items is None or core.room):
                self._elements = next(self._batches, None)
                if self._elements is None:
                    return True
            was_empty = self._elements is not None and self._elements.done
            if self._elements is None or not _published(core, self._elements):
                if self._parks(core):
                    return False
                continue
            self._elements = None
            if self._serving.is_crowded and (was_empty or turn % _TURN == 0):
                self._serving.go_on(self)
                return False
        return True

    def _parks(self, core: ReactivePublication) -> bool:
        """Waits for room a little; returns whether it has parked the stream until there is some."""
        if not self._serving.is_crowded and core.wait("room", _LINGER):
            return False
        _parked.when(partial(core.wait_async, "room"), lambda: self._serving.go_on(self))
        return True

    def _end(self, error: BaseException | None) -> None:
        publication = self._publication
        try:
            if hasattr(self._items, "close"):
                self._items.close()
        except Exception as failure:  # noqa: BLE001 (the subscriber is told)
            error = error or failure
        if publication is None:
            return
        with suppress(AcklineError):
            if error is None:
                publication.complete()
            else:
                publication.fail(self._serving.publishers.failed(error))


def _published(core: ReactivePublication, elements: ReactiveElements) -> bool:
    """Publishes elements as long as there is room; returns whether all of them are."""
    while not elements.done:
        if not core.try_publish(elements) and not elements.done:
            return False
    return True


def _reject(request: "SubscribeRequest", publishers: PublishersBase) -> None:
    """Rejects a subscription to a name that no publisher has."""
    with suppress(AcklineError):
        request.reject(publishers.unknown(request.publisher))


def _queued(publication: "Publication", source: "queue.Queue[Any]") -> Iterator[ReactiveElements]:
    """The items of a queue, until one is None or the subscriber has left.

    Yields nothing in between when the queue is empty, so that another stream has its turn.
    """
    while not publication.cancelled:
        try:
            item = source.get(timeout=_LOOK_AGAIN)
        except queue.Empty:
            yield ReactiveElements([])
            continue
        if item is None:
            return
        yield elements_of(item, publication.element_size)
