"""Connections of a command: within its --timeout, or nobody could be reached."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ackline.exceptions import AcklineError, LinkTimeout, TransportError

__all__ = ["Unreached", "reaching"]


class Unreached(AcklineError):  # noqa: N818 (an outcome)
    """No peer could be reached."""


@contextmanager
def reaching(until: float) -> Iterator[None]:
    """Tells a connection that failed from one that was not made in time.

    Args:
        until: The end of the time, by the monotonic clock.

    Raises:
        LinkTimeout: The transport failed, and the time is over.
        Unreached: The transport failed before.
    """
    try:
        yield
    except TransportError as error:
        if time.monotonic() >= until:
            raise LinkTimeout(str(error)) from None
        raise Unreached(str(error)) from None
