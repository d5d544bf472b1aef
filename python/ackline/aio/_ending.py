"""The end of an operation that the native module goes on with."""

from ackline._bpmux_core import PendingOp
from ackline._connections import late
from ackline.aio._wait import ready
from ackline.exceptions import LinkTimeout

__all__ = ["ended"]


async def ended(doing: PendingOp, failure: str, timeout: float | None) -> None:
    """Waits for the end of an operation; it is given up if an exception ends the wait.

    Args:
        doing: The operation, which has `timeout` itself.
        failure: The words for an operation that was too long.
        timeout: Seconds, for the error's text.

    Raises:
        LinkTimeout: The operation was too long; its other errors are raised too.
    """
    try:
        await ready(doing.wait_async, None)
        doing.take()
    except LinkTimeout:
        raise late(failure, timeout) from None
    except BaseException:
        # The traceback of that exception may keep the operation for a while.
        doing.give_up()
        raise
