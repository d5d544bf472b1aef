"""How a coroutine waits: for readiness, which takes nothing: cancelling it loses nothing."""

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary, ref

from ackline._core import Bell

__all__ = ["Standing", "ready"]

Standing = tuple[int, asyncio.Future[bool]]
"""A wait that stands: what `Bell.give_up` takes, and what is set to True when it is over."""

_bells: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[Bell]] = WeakKeyDictionary()
"""A loop keeps its bell, as one of its readers: both end together."""


async def ready(arm: Callable[[Bell], Standing | None], timeout: float | None) -> bool:
    """Waits until what `arm` waits for is there; goes on at once if it is.

    Args:
        arm: Begins the wait with the bell of the running loop.
        timeout: Seconds; None waits for ever.

    Returns:
        Whether it is there; False after `timeout`.
    """
    loop = asyncio.get_running_loop()
    bell = _bell_of(loop)
    standing = arm(bell)
    if standing is None:
        return True
    token, there = standing
    timer = None if timeout is None else loop.call_later(timeout, _late, there)
    try:
        return await there
    finally:
        if timer is not None:
            timer.cancel()
        bell.give_up(token)


def _late(there: asyncio.Future[bool]) -> None:
    if not there.done():
        there.set_result(False)


def _bell_of(loop: asyncio.AbstractEventLoop) -> Bell:
    known = _bells.get(loop)
    bell = None if known is None else known()
    if bell is None:
        bell = Bell(loop)
        loop.add_reader(bell.fileno(), bell.ring)
        _bells[loop] = ref(bell)
    return bell
