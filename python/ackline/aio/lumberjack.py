"""Lumberjack v1 and v2 for asyncio: the names and arguments of `ackline.lumberjack`."""

from collections.abc import AsyncIterator, Generator, Sequence
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self

from ackline._closing import CLOSING_SECONDS, AsyncClosing, tell_loss
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
from ackline.aio._wait import ready
from ackline.exceptions import LinkClosed, LinkTimeout

__all__ = [
    "ArrowArray",
    "Event",
    "Events",
    "Listener",
    "Unacked",
    "Window",
    "WindowReceipt",
    "Writer",
    "connect",
    "listen",
]


def listen(  # noqa: PLR0913 (each is a limit of its own)
    url: str,
    *,
    memory: int = 256 << 20,
    max_window_events: int = 65_536,
    max_json_bytes: int = 16 << 20,
    max_data_bytes: int = 16 << 20,
    max_compressed_bytes: int = 32 << 20,
    max_inflated_bytes: int = 100 << 20,
    max_pairs: int = 1024,
    max_field_bytes: int = 1 << 20,
    max_window_bytes: int = 256 << 20,
    max_unacked_windows: int = 64,
    keepalive: float | None = 3.0,
    tail_idle: float | None = None,
    stall_timeout: float | None = 30.0,
    idle_timeout: float | None = 900.0,
    first_byte_timeout: float | None = 10.0,
    no_window: Literal["accept", "refuse"] = "accept",
    proxy_from: str | None = None,
    allow: str | None = None,
    max_connections: int = 10_000,
    max_connections_per_address: int | None = None,
    max_connection_age: float | None = None,
    accept_rate: int | None = 1000,
    max_bytes_per_second: int | None = None,
    handshake_timeout: float = 10.0,
    ca: str | PathLike[str] | None = None,
    crl: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    client_auth: Literal["none", "optional", "required"] | None = None,
    identity: Literal["subject", "san", "fingerprint"] | None = None,
    tokens_file: str | PathLike[str] | None = None,
) -> "Listener":
    """Listens for senders of Lumberjack v1 and v2; arguments as `ackline.lumberjack.listen`.

    Returns at once; use it with ``async with``.
    """
    options = {name: value for name, value in locals().items() if name != "url"}
    return Listener(LumberjackListener(url, options))


class Listener(AsyncClosing, ListenerBase):
    """Yields the windows of all its connections, in the order they were completed.

    Cancelling a receive loses no window: it is there for the next one.

    Example:
        >>> async with listen("lumberjack://127.0.0.1:5044") as listener:  # doctest: +SKIP
        ...     async for window in listener:
        ...         print(window.peer, window.events)
        ...         window.ack()
    """

    async def receive_many(
        self,
        max_windows: int = 64,
        *,
        timeout: float | None = None,
    ) -> list[Window]:
        """Waits for at least one window; as `ackline.lumberjack.Listener.receive_many`."""
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
        """Accepts no more, sends the acknowledgements that were given, ends every connection."""
        deadline = deadline_in(timeout)
        self._core.close()
        await ready(partial(self._core.wait_async, "ended"), left_until(deadline))
        self._core.abort()


class _Connecting:
    """What `connect` returns: ``await`` it, or enter it with ``async with``."""

    def __init__(self, core: LumberjackSender) -> None:
        self._writer = Writer(core)

    def __await__(self) -> Generator[Any, None, "Writer"]:
        return self._writer._connected().__await__()  # noqa: SLF001 (its own other half)

    async def __aenter__(self) -> "Writer":
        return await self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._writer.__aexit__(kind, value, traceback)


def connect(  # noqa: PLR0913 (each is an option of its own)
    url: str | Sequence[str],
    *,
    timeout: float = 10.0,
    version: Literal[1, 2] = 2,
    compression: int | None = 3,
    batch_events: int = 2048,
    batch_bytes: int = 4 << 20,
    buffer_events: int = 65_536,
    buffer_bytes: int = 64 << 20,
    max_in_flight: int = 2,
    max_in_flight_events: int | None = None,
    max_in_flight_bytes: int | None = None,
    slow_start: int | None = None,
    cumulative: bool = False,
    accept_count_acks: bool = False,
    read_timeout: float | None = 30.0,
    progress_timeout: float | None = 300.0,
    backoff_min: float = 1.0,
    backoff_max: float = 60.0,
    ttl: float | None = None,
    receipts: int = 0,
    ca: str | PathLike[str] | None = None,
    crl: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    server_name: str | None = None,
    token_file: str | PathLike[str] | None = None,
) -> _Connecting:
    """Connects to one receiver or several; arguments as `ackline.lumberjack.connect`.

    ``await`` it, or use it with ``async with``.
    """
    options = {name: value for name, value in locals().items() if name not in {"url", "timeout"}}
    return _Connecting(LumberjackSender(urls(url), {"connect_timeout": timeout} | options))


class Writer(AsyncClosing, WriterBase):
    """Sends events, keeps them until they are acknowledged, and connects again by itself.

    A cancelled ``await`` loses nothing: what was accepted is sent, a batch never by halves. Of more
    events than `batch_events`, a `send` that is cancelled may have accepted the first batches.

    The end of an `async with` block closes it and raises `LinkLost` with the number of events that
    are not acknowledged then, unless `close` was called inside.

    Example:
        >>> async with connect("lumberjack://127.0.0.1:5044") as writer:  # doctest: +SKIP
        ...     await writer.send([{"message": "kept when this returns"}])
    """

    async def send(self, events: Events, *, timeout: float | None = None) -> None:
        """Sends events and returns when all are acknowledged; as the `send` for threads."""
        deadline = deadline_in(timeout)
        numbers = [await self._send(batch, deadline) for batch in self._batches(events)]
        for number in numbers:
            await self._wait_acknowledged(number, deadline)

    async def send_window(self, events: Events, *, timeout: float | None = None) -> int:
        """Accepts one window when there is room; returns its number for `wait_acknowledged`."""
        return await self._send(self._window(events), deadline_in(timeout))

    async def wait_acknowledged(self, number: int, *, timeout: float | None = None) -> None:
        """Waits until what has this number is acknowledged; raises like `send`."""
        await self._wait_acknowledged(number, deadline_in(timeout))

    async def flush(self, *, timeout: float | None = None) -> None:
        """Waits until everything accepted before is acknowledged; raises like `send`."""
        deadline, last = deadline_in(timeout), self._core.last_batch
        while not self._core.is_flushed(last):
            await self._wait("flushed", deadline, last)

    async def close(self, *, timeout: float = CLOSING_SECONDS) -> Unacked:
        """Accepts no more and ends when everything is acknowledged, or after `timeout` seconds.

        Returns:
            Exactly what is not acknowledged.
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
        arm = partial(self._core.wait_async, interest, batch=number)
        if not await ready(arm, left_until(deadline)):
            raise self._too_late()
