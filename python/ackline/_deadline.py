"""Deadlines of waits."""

import time

from ackline._core import check_seconds

__all__ = ["deadline_in", "left_until"]


def deadline_in(timeout: float | None) -> float | None:
    """Returns the time at which `timeout` seconds have passed; None is never.

    Raises:
        UsageError: `timeout` is negative, or no finite number.
    """
    check_seconds("timeout", timeout)
    return None if timeout is None else time.monotonic() + timeout


def left_until(deadline: float | None) -> float | None:
    """Returns the seconds from now to `deadline`, at least 0."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
