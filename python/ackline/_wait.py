"""The waits of threads.

The native methods wait by themselves, so the modules for threads call them directly. Only a wait of
more than one call is in this module, under its name in `ackline.aio._wait`.
"""

from ackline._relink_core import RelinkLink
from ackline.exceptions import LinkTimeout

__all__ = ["handed_over"]


def handed_over(link: RelinkLink, timeout: float | None) -> bytes:
    """Waits until a link is handed over; returns its state.

    Raises:
        LinkTimeout: The peer did not have everything in time.
    """
    try:
        return link.hand_over(timeout)
    except LinkTimeout:
        raise LinkTimeout(f"the peer does not have everything within {timeout} s") from None
