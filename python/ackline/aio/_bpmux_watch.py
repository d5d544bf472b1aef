"""Watches of an event loop on bpmux connections, for the command line."""

from collections.abc import Callable
from functools import partial

from ackline._bpmux import ConnectionBase, Reading, Writing
from ackline.aio._wait import ready, when

__all__ = ["until_received", "when_ended", "when_flushed"]


async def until_received(reader: Reading) -> None:
    """Waits until a message can be received, or none can come any more; takes nothing."""
    await ready(reader._stream.wait_async, None)  # noqa: SLF001 (its users cannot)


def when_flushed(writer: Writing, call: Callable[[], object]) -> None:
    """Calls `call` once every message has gone to the transport, or none can go any more."""
    when(partial(writer._sink.wait_async, "flushed"), call)  # noqa: SLF001 (its users cannot)


def when_ended(connection: ConnectionBase, call: Callable[[], object]) -> None:
    """Calls `call` once the connection has ended, or at once if it has ended before."""
    when(partial(connection._core.wait_async, "end"), call)  # noqa: SLF001 (its users cannot)
