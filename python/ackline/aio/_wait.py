"""How a coroutine waits: for readiness, which takes nothing: cancelling it loses nothing."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary, ref

from ackline._core import Bell

__all__ = ["Standing", "bell_here", "outcome", "ready"]

_T = TypeVar("_T")
Standing = tuple[int, asyncio.Future[_T]]
"""What stands: what `Bell.give_up` takes, and what is set to the outcome: of a wait to True."""

_bells: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[Bell]] = WeakKeyDictionary()
"""A loop keeps its bell, as one of its readers: both end together."""


async def ready(arm: Callable[[Bell], Standing[bool] | None], timeout: float | None) -> bool:
    """Waits until what `arm` waits for is there; goes on at once if it is.

    Args:
        arm: Begins the wait with the bell of the running loop.
        timeout: Seconds; None waits for ever.

    Returns:
        Whether it is there; False after `timeout`.
    """
    bell = bell_here()
    standing = arm(bell)
    return standing is None or await outcome(bell, standing, timeout)


async def outcome(bell: Bell, standing: Standing[_T], timeout: float | None) -> _T | Literal[False]:
    """What comes of it; False after `timeout` seconds, and it is given up."""
    token, future = standing
    timer = None
    if timeout is not None:
        timer = future.get_loop().call_later(timeout, _late, future)
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()
        bell.give_up(token)


def bell_here() -> Bell:
    """The bell of the running loop."""
    loop = asyncio.get_running_loop()
    known = _bells.get(loop)
    bell = None if known is None else known()
    if bell is None:
        bell = Bell(loop)
        loop.add_reader(bell.fileno(), bell.ring)
        _bells[loop] = ref(bell)
    return bell


def _late(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(False)
