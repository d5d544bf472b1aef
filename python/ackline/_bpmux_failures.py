"""Failures of bpmux's handlers in threads: a thread cannot be cancelled, and outlives any error."""

from ackline._bpmux import OnError, tell

__all__ = ["ENDS_HANDLER", "ENDS_PROGRAM", "told"]

ENDS_HANDLER: type[BaseException] = BaseException
"""Errors that end one handler and nothing else."""
ENDS_PROGRAM: tuple[type[BaseException], ...] = ()
"""Errors that go on from a handler: none, its thread and the process go on."""


def told(on_error: OnError | None, error: BaseException) -> BaseException:
    """Tells of a handler's error, and returns the error that its call ends with."""
    tell(on_error, error)
    return error
