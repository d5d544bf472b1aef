"""Lumberjack v1 and v2 for asyncio: a listener that yields windows of events, and a writer.

For threads see `ackline.lumberjack`.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Literal, Self, Unpack

from ackline._closing import CLOSING_SECONDS, tell_loss
from ackline._core import LumberjackBatch, LumberjackListener, LumberjackSender
from ackline._deadline import deadline_in, left_until
from ackline._lumberjack import (
    ArrowArray,
    Event,
    Events,
    ListenerBase,
    Unacked,
    Window,
    WindowReceipt,
    WriterBase,
    lost_at_end,
    urls,
)
from ackline._lumberjack_options import LumberjackConnectOptions as ConnectOptions
from ackline._lumberjack_options import LumberjackListenOptions as ListenOptions
from ackline._table import known, signed
from ackline.aio._block import Closing
from ackline.aio._wait import Connecting, ready
from ackline.exceptions import LinkClosed, LinkTimeout

__all__ = [
    "ArrowArray",
    "ConnectOptions",
    "Event",
    "Events",
    "ListenOptions",
    "Listener",
    "Unacked",
    "Window",
    "WindowReceipt",
    "Writer",
    "connect",
    "listen",
]


@signed("lumberjack.listen")
def listen(url: str, **options: Unpack[ListenOptions]) -> "Listener":
    """Listens for senders of Lumberjack v1 and v2.

    Returns at once; use it with ``async with``.

    Args:
        url: Such as ``lumberjack://127.0.0.1:5044``, ``lumberjack+tls://0.0.0.0:5044`` or
            ``lumberjack+unix:///run/x.sock``; port 0 is allowed.
        options: See `ListenOptions`.

    Raises:
        UsageError: The URL is not understood, or an option or file is wrong.
        TransportError: The address cannot be listened on.
    """
    return Listener(LumberjackListener(url, known("lumberjack.listen", options)))


class Listener(Closing, ListenerBase):
    """Yields the windows of all its connections, in the order they were completed.

    A window is acknowledged by `Window.ack`, when its events are safe: until then its sender keeps
    them. Windows that are not acknowledged when the listener closes are sent again. A receive that
    is cancelled loses no window: the next receive returns it.

    Example:
        >>> async with listen("lumberjack://127.0.0.1:5044") as listener:  # doctest: +SKIP
        ...     async for window in listener:
        ...         print(window.peer, window.events)
        ...         window.ack()
    """

    async def receive_many(
        self, max_windows: int = 64, *, timeout: float | None = None
    ) -> list[Window]:
        """Waits for at least one window.

        Args:
            max_windows: Windows taken at the most.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No window came in time.
            LinkClosed: The listener was closed and nothing is left.
        """
        deadline = deadline_in(timeout)
        while True:
            if windows := self._take(max_windows):
                return windows
            if not await ready(partial(self._core.wait_async, "receive"), left_until(deadline)):
                raise LinkTimeout(f"no window arrived within {timeout} s")

    async def receive(self, *, timeout: float | None = None) -> Window:
        """Waits for one window; like `receive_many`."""
        return (await self.receive_many(1, timeout=timeout))[0]

    async def __aiter__(self) -> AsyncIterator[Window]:
        try:
            while True:
                yield await self.receive()
        except LinkClosed:
            return

    async def close(self, *, timeout: float = 1.0) -> None:
        """Accepts no more, sends the acknowledgements that were given, and ends every connection.

        Args:
            timeout: Seconds to wait for the senders to end; then they are cut off.
        """
        deadline = deadline_in(timeout)
        self._core.close()
        await ready(partial(self._core.wait_async, "ended"), left_until(deadline))
        self._core.abort()


@signed("lumberjack.connect")
def connect(url: str | Sequence[str], **options: Unpack[ConnectOptions]) -> Connecting["Writer"]:
    """Connects to one receiver or several.

    ``await`` it, or use it with ``async with``.

    Args:
        url: Such as ``lumberjack://127.0.0.1:5044``, also ``+tls`` or ``+unix``; several as a list
            or separated by commas, as are the hosts of one. Events go to whichever takes them.
        options: See `ConnectOptions`.

    Raises:
        UsageError: A URL or an option is not understood.
        TransportError: No host could be reached.
    """
    writer = Writer(LumberjackSender(urls(url), known("lumberjack.connect", options)))
    return Connecting(writer._connected)  # noqa: SLF001 (its own other half)


class Writer(Closing, WriterBase):
    """Sends events, keeps them until they are acknowledged, and connects again by itself.

    A cancelled ``await`` loses nothing: a batch that was accepted is sent as a whole. A `send` of
    more events than `batch_events` that is cancelled may have accepted the first batches.

    The end of an `async with` block closes it and raises `LinkLost` with the number of events that
    are not acknowledged then, unless `close` was called inside.

    Example:
        >>> async with connect("lumberjack://127.0.0.1:5044") as writer:  # doctest: +SKIP
        ...     await writer.send([{"message": "kept when this returns"}])
        ...     number = writer.try_send([{"message": "on its way"}])
        ...     rest = await writer.close(timeout=10)
        ...     print(len(rest), "events are not acknowledged:", rest.ranges)
    """

    async def send(self, events: Events, *, timeout: float | None = None) -> None:
        """Sends events and returns when all of them are acknowledged.

        Args:
            events: Each JSON text as bytes or str, a dict to be encoded as JSON, or a sequence of
                pairs to be sent as a key-value event; or all as one Arrow array of JSON texts.
            timeout: Seconds; None waits for ever, also while no host can be reached.

        Raises:
            LinkTimeout: Not all were acknowledged in time. The events accepted by then, all or
                some, are still sent: send none of them again before `close` returns the rest.
            LinkLost: The writer was closed first.
            UsageError: An event cannot be sent; the batches of `batch_events` before its own may
                have been accepted.
        """
        deadline = deadline_in(timeout)
        numbers = [await self._send(batch, deadline) for batch in self._batches(events)]
        for number in numbers:
            await self._wait_acknowledged(number, deadline)

    async def send_window(self, events: Events, *, timeout: float | None = None) -> int:
        """Accepts a window once there is room; returns its number for `wait_acknowledged`."""
        return await self._send(self._window(events), deadline_in(timeout))

    async def wait_acknowledged(self, number: int, *, timeout: float | None = None) -> None:
        """Waits until the events with this number are acknowledged; raises like `send`."""
        await self._wait_acknowledged(number, deadline_in(timeout))

    async def flush(self, *, timeout: float | None = None) -> None:
        """Waits until all events accepted before are acknowledged; raises like `send`."""
        deadline, last = deadline_in(timeout), self._core.last_batch
        while not self._core.is_flushed(last):
            await self._wait("flushed", deadline, last)

    async def close(self, *, timeout: float = CLOSING_SECONDS) -> Unacked:
        """Accepts no more events, and ends once all are acknowledged or after `timeout` seconds.

        Returns:
            Exactly the events that are not acknowledged.
        """
        if self._core.unacked() is None:
            self._core.finish(timeout)
            await ready(partial(self._core.wait_async, "ended"), None)
        return Unacked(self._core)

    async def _leave(self, *, failed: bool) -> None:
        if not self._is_closed and len(left := await self.close()):
            tell_loss(lost_at_end(left), failed=failed)

    async def _connected(self) -> Self:
        await ready(partial(self._core.wait_async, "connected"), None)
        self._core.check_connected()
        return self

    async def _send(self, batch: LumberjackBatch, deadline: float | None) -> int:
        while (number := self._accept(batch)) is None:
            await self._wait("room", deadline)
        return number

    async def _wait_acknowledged(self, number: int, deadline: float | None) -> None:
        while not self._core.is_acknowledged(number):
            await self._wait("batch", deadline, number)

    async def _wait(
        self, interest: Literal["room", "batch", "flushed"], deadline: float | None, number: int = 0
    ) -> None:
        if not await ready(
            partial(self._core.wait_async, interest, batch=number), left_until(deadline)
        ):
            raise self._too_late()
