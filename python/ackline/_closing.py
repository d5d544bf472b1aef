"""Loss at the end of a `with` block: the time that the block waits, and the report of the loss."""

import logging

from ackline.exceptions import AcklineError

__all__ = ["CLOSING_SECONDS", "tell_loss"]

CLOSING_SECONDS = 5.0
"""Seconds that the end of a block waits for acknowledgements."""

_log = logging.getLogger("ackline.link")


def tell_loss(loss: AcklineError, *, failed: bool) -> None:
    """Raises the loss at the end of a block that ended well.

    If an exception left the block, that exception goes on, and the loss is a warning in the log.
    """
    if not failed:
        raise loss
    _log.warning("%s code=link.unacknowledged", loss)
