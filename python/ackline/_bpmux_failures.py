"""Failures of bpmux's handlers in threads: a thread cannot be cancelled, and outlives any error."""

from ackline._bpmux import OnError, tell

__all__ = ["ENDS_HANDLER", "ENDS_PROGRAM", "told"]

ENDS_HANDLER: type[BaseException] = BaseException
"""Errors that end one handler and nothing else."""
ENDS_PROGRAM: tuple[type[BaseException], ...] = ()
"""Errors that a handler passes on: none, because its thread and the process go on."""


def told(on_error: OnError | None, error: BaseException) -> BaseException:
    """Reports a handler's error, and returns the error that its call ends with."""
    tell(on_error, error)
    return error
