"""How a coroutine waits: for readiness, which takes nothing: cancelling it loses nothing."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary, ref

from ackline._core import LoopWaker

__all__ = ["Standing", "loop_waker", "outcome", "ready"]

_T = TypeVar("_T")
Standing = tuple[int, asyncio.Future[_T]]
"""A wait: its token for `LoopWaker.give_up`, and the future that its outcome is set to."""

_wakers: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[LoopWaker]] = WeakKeyDictionary()
"""A loop keeps its waker, as one of its readers: both end together."""


async def ready(arm: Callable[[LoopWaker], Standing[bool] | None], timeout: float | None) -> bool:
    """Waits until what `arm` waits for is there; goes on at once if it is.

    Args:
        arm: Begins the wait with the waker of the running loop.
        timeout: Seconds; None waits for ever.

    Returns:
        Whether it is there; False after `timeout`.
    """
    waker = loop_waker()
    standing = arm(waker)
    return standing is None or await outcome(waker, standing, timeout)


async def outcome(
    waker: LoopWaker, standing: Standing[_T], timeout: float | None
) -> _T | Literal[False]:
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
        waker.give_up(token)


def loop_waker() -> LoopWaker:
    """The waker of the running loop."""
    loop = asyncio.get_running_loop()
    known = _wakers.get(loop)
    waker = None if known is None else known()
    if waker is None:
        waker = LoopWaker(loop)
        loop.add_reader(waker.fileno(), waker.poll_woken)
        _wakers[loop] = ref(waker)
    return waker


def _late(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(False)
