"""The work of an asyncio command, which the first SIGINT or SIGTERM ends."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

__all__ = ["signals", "until_signal"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def until_signal(work: Coroutine[Any, Any, None]) -> int | None:
    """Runs it to its end, or cancels it at the first signal; the second one ends the process.

    Returns:
        The signal that ended it, or None.
    """
    asked = _first_signal()
    doing = asyncio.create_task(work)
    stop = asyncio.create_task(asked.get())
    await asyncio.wait({doing, stop}, return_when=asyncio.FIRST_COMPLETED)
    if doing.done():
        stop.cancel()
        doing.result()
        return None
    doing.cancel()
    await asyncio.gather(doing, return_exceptions=True)
    return stop.result()


def signals() -> "asyncio.Queue[int]":
    """Returns a queue with one item for each SIGINT and SIGTERM."""
    asked: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, asked.put_nowait, number)
    return asked


def _first_signal() -> "asyncio.Queue[int]":
    """Returns a queue that gets the first signal; the second one ends the process."""
    asked: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def handle(came: int) -> None:
        asked.put_nowait(came)
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in _SIGNALS:
        loop.add_signal_handler(number, handle, number)
    return asked
