"""The waits of coroutines: each waits for readiness, so a cancelled wait loses nothing.

A wait begins with `arm(waker)`, the asynchronous form of a native method. A thread calls the
blocking form with a timeout in the waker's place: `make sync` writes
``self._core.wait("end", 5.0)`` for ``await ready(partial(self._core.wait_async, "end"), 5.0)``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakKeyDictionary, ref

from ackline._core import LoopWaker, check_seconds
from ackline._relink_core import RelinkLink
from ackline.aio._block import Block
from ackline.exceptions import LinkTimeout

__all__ = ["Connecting", "Standing", "handed_over", "loop_waker", "outcome", "ready", "when"]

_T = TypeVar("_T")
_Link = TypeVar("_Link", bound=Block)
Standing = tuple[int, asyncio.Future[_T]]
"""A wait that has begun: its token for `LoopWaker.give_up`, and the future of its outcome."""

_wakers: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[LoopWaker]] = WeakKeyDictionary()
"""The waker of each loop. The loop holds it as one of its readers, so both end together."""


async def ready(arm: Callable[[LoopWaker], Standing[bool] | None], timeout: float | None) -> bool:
    """Waits for readiness; returns at once if it is there.

    Args:
        arm: Begins the wait with the waker of the running loop.
        timeout: Seconds; None waits for ever.

    Returns:
        Whether readiness came; False after `timeout`.

    Raises:
        UsageError: `timeout` is negative, or no finite number.
    """
    if timeout is not None:
        check_seconds("timeout", timeout)
    waker = loop_waker()
    standing = arm(waker)
    return standing is None or await _ended(waker, standing, timeout)


def outcome(
    arm: Callable[[LoopWaker], Standing[_T] | None], timeout: float | None
) -> Awaitable[_T | Literal[False] | None]:
    """Begins a call, and returns an awaitable for its outcome.

    Args:
        arm: Begins the call with the waker of the running loop.
        timeout: Seconds; None waits for ever.

    Returns:
        The outcome; None if the call could not begin; False after `timeout`, when the call is given
        up.
    """
    waker = loop_waker()
    standing = arm(waker)
    if standing is None:
        return _nothing()
    ended = _ended(waker, standing, timeout)
    return ended  # noqa: RET504 (mypy takes the types of a call that is returned for the declared ones)


def when(arm: Callable[[LoopWaker], Standing[bool] | None], call: Callable[[], object]) -> None:
    """Calls `call` once readiness is there, or at once if it is there now."""
    waker = loop_waker()
    standing = arm(waker)
    if standing is None:
        call()
        return
    token, future = standing

    def is_there(_: asyncio.Future[bool]) -> None:
        waker.give_up(token)
        call()

    future.add_done_callback(is_there)


async def handed_over(link: RelinkLink, timeout: float | None) -> bytes:
    """Waits until a link is handed over; returns its state.

    Raises:
        LinkTimeout: The peer did not have everything in time.
    """
    await ready(link.hand_over_async, timeout)
    state = link.handed_over()
    if state is None:
        raise LinkTimeout(f"the peer does not have everything within {timeout} s")
    return state


class Connecting(Generic[_Link]):
    """The result of `connect`: ``await`` it, or enter it with ``async with``.

    Args:
        connected: Waits for the connection.
        arguments: The arguments of `connected`.
    """

    def __init__(
        self, connected: Callable[..., Coroutine[Any, Any, _Link]], *arguments: object
    ) -> None:
        self._connected, self._arguments = connected, arguments
        self._link: _Link | None = None

    def __await__(self) -> Generator[Any, None, _Link]:
        return self._connected(*self._arguments).__await__()

    async def __aenter__(self) -> _Link:
        self._link = await self
        return self._link

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._link is not None:
            await self._link.__aexit__(kind, value, traceback)


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


async def _nothing() -> None:
    """The outcome of a call that could not begin."""


async def _ended(
    waker: LoopWaker, standing: Standing[_T], timeout: float | None
) -> _T | Literal[False]:
    """The outcome of a wait; False after `timeout` seconds, when the wait is given up."""
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


def _late(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(False)
