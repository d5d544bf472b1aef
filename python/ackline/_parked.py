"""Waits that take no thread each: one event loop in a thread of its own waits for all of them."""

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from ackline._core import LoopWaker
    from ackline.aio._wait import Standing

__all__ = ["later", "when"]


class _Loop:
    """The loop of this process, begun with the first wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def running(self) -> "asyncio.AbstractEventLoop":
        """Returns the loop."""
        with self._lock:
            if self._loop is None:
                # Programs without such waits do not load asyncio.
                import asyncio

                self._loop = asyncio.new_event_loop()
                name = "ackline-waits"
                threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()
            return self._loop


_loop = _Loop()
# The thread is not in a forked process.
os.register_at_fork(after_in_child=_loop.__init__)  # type: ignore[misc]


def when(arm: "Callable[[LoopWaker], Standing[bool] | None]", call: Callable[[], object]) -> None:
    """Calls `call` in the loop's thread once readiness is there, or the wait cannot begin.

    Args:
        arm: Begins the wait, such as ``partial(core.wait_async, "room")``.
        call: Never blocks.
    """
    from ackline.aio import _wait

    def begin() -> None:
        try:
            _wait.when(arm, call)
        except Exception:  # noqa: BLE001 (the caller sees the reason when it looks again)
            call()

    _loop.running().call_soon_threadsafe(begin)


def later(seconds: float, call: Callable[[], object]) -> None:
    """Calls `call`, which never blocks, in the loop's thread after some time."""
    loop = _loop.running()
    loop.call_soon_threadsafe(loop.call_later, seconds, call)
