"""Lumberjack v1 and v2 for asyncio: the names and arguments of `ackline.lumberjack`."""

from collections.abc import AsyncIterator, Generator, Sequence
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self

from ackline._core import LumberjackClient, LumberjackListener
from ackline._lumberjack import (
    Event,
    ListenerBase,
    Window,
    WriterBase,
    deadline_in,
    left_until,
)
from ackline.aio._wait import ready
from ackline.exceptions import LinkClosed, LinkTimeout

__all__ = ["Event", "Listener", "Window", "Writer", "connect", "listen"]


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
    ca: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    client_auth: Literal["none", "optional", "required"] | None = None,
) -> "Listener":
    """Listens for senders of Lumberjack v1 and v2; arguments as `ackline.lumberjack.listen`.

    Returns at once; use it with ``async with``.
    """
    options = {name: value for name, value in locals().items() if name != "url"}
    return Listener(LumberjackListener(url, options))


class Listener(ListenerBase):
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
        self._core.close()
        await ready(partial(self._core.wait_async, "ended"), timeout)
        self._core.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class _Connecting:
    """What `connect` returns: ``await`` it, or enter it with ``async with``."""

    def __init__(self, core: LumberjackClient) -> None:
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
        await self._writer.close()


def connect(
    url: str,
    *,
    timeout: float = 10.0,
    version: Literal[1, 2] = 2,
    compression: int | None = 3,
    max_in_flight: int = 2,
    max_window: int = 2048,
    read_timeout: float | None = 30.0,
    progress_timeout: float | None = 300.0,
) -> _Connecting:
    """Connects to a receiver; arguments as `ackline.lumberjack.connect`.

    ``await`` it, or use it with ``async with``.
    """
    core = LumberjackClient(
        url,
        {
            "connect_timeout": timeout,
            "version": version,
            "compression": compression,
            "max_in_flight": max_in_flight,
            "max_window": max_window,
            "read_timeout": read_timeout,
            "progress_timeout": progress_timeout,
        },
    )
    return _Connecting(core)


class Writer(WriterBase):
    """A connection that sends windows of events. It does not reconnect.

    Example:
        >>> async with connect("lumberjack://127.0.0.1:5044") as writer:  # doctest: +SKIP
        ...     await writer.send([{"message": "kept when this returns"}])
    """

    async def send(self, events: Sequence[Event], *, timeout: float | None = None) -> None:
        """Sends events and returns when all are acknowledged; as the `send` for threads."""
        deadline = deadline_in(timeout)
        windows = [await self._send_window(window, deadline) for window in self._windows(events)]
        for window in windows:
            await self._wait_window(window, deadline)

    async def send_window(self, events: Sequence[Event], *, timeout: float | None = None) -> int:
        """Sends one window as soon as it may go; returns its number for `wait_acknowledged`."""
        return await self._send_window(events, deadline_in(timeout))

    async def wait_acknowledged(self, window: int, *, timeout: float | None = None) -> None:
        """Waits until a window is acknowledged; raises like `send`."""
        await self._wait_window(window, deadline_in(timeout))

    async def close(self, *, timeout: float = 5.0) -> None:
        """Sends no more and ends when everything is acknowledged, or after `timeout` seconds."""
        if not self._core.closed:
            self._core.finish()
            await ready(partial(self._core.wait_async, "ended"), timeout)
            self._core.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _connected(self) -> Self:
        await ready(partial(self._core.wait_async, "connected"), None)
        self._core.check()
        return self

    async def _send_window(self, events: Sequence[Event], deadline: float | None) -> int:
        encoded = self._encoded(events)
        while (window := self._core.try_send_window(encoded)) is None:
            await self._wait("room", deadline)
        return window

    async def _wait_window(self, window: int, deadline: float | None) -> None:
        while not self._core.is_acknowledged(window):
            await self._wait("window", deadline, window)

    async def _wait(
        self, interest: Literal["room", "window"], deadline: float | None, window: int = 0
    ) -> None:
        arm = partial(self._core.wait_async, interest, window=window)
        if not await ready(arm, left_until(deadline)):
            raise self._too_late()
