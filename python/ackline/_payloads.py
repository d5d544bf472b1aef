"""Types of a message to send, and of many messages."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

__all__ = ["ArrowArray", "Buffer", "Payload", "Payloads"]

Buffer = bytes | bytearray | memoryview
"""One part of a message to send; other objects with a buffer of bytes work too."""
Payload = Buffer | Sequence[Buffer]
"""A message: one part, or several."""


@runtime_checkable
class ArrowArray(Protocol):
    """A column of messages, such as a `pyarrow.Array` of binary or string."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The column as capsules of Arrow's C interface."""
        ...


Payloads = Sequence[Payload] | ArrowArray
"""Messages as a sequence, or as a column without nulls."""
