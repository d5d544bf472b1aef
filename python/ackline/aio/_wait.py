"""How a coroutine waits: for readiness, which takes nothing: cancelling it loses nothing."""

import asyncio
from collections.abc import Callable

from ackline._core import Waiter

__all__ = ["ready"]


async def ready(arm: Callable[[Callable[[], None]], Waiter], timeout: float | None) -> bool:
    """Waits until what `arm` waits for is there.

    Args:
        arm: Starts the wait; its argument is called once from another thread.
        timeout: Seconds; None waits for ever.

    Returns:
        Whether it is there; False after `timeout`.
    """
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def callback() -> None:
        # The loop may have ended since: then nobody waits.
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    waiter = arm(callback)
    try:
        async with asyncio.timeout(timeout):
            await future
    except TimeoutError:
        return False
    finally:
        waiter.cancel()
    return True
