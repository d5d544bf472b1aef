"""Readings of a spool: events as Arrow, losses on the way, and the shares of a reader's memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ackline import _core
from ackline.exceptions import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "LEAST_MEMORY",
    "MEMORY",
    "Events",
    "Loss",
    "OnLoss",
    "Repeats",
    "Slice",
    "shares",
    "skips",
    "skips_losses",
]

MEMORY = 512 << 20
"""Bytes that a reader holds at once unless it is told otherwise."""

LEAST_MEMORY = 4 << 20
"""The smallest memory of a reader, in bytes."""

Repeats = Literal["mark", "skip"]
"""The handling by a reader of events that were recognised as sent before."""

OnLoss = Literal["fail", "skip"]
"""The behaviour of a reader at positions that are lost or damaged."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Positions [start, end) whose events cannot be read.

    Attributes:
        start: The first position.
        end: The position after the last one.
        why: ``lost`` (the disk lost bytes that it had confirmed), ``corrupt`` (the bytes were
            changed) or ``removed`` (their segment was removed by hand).
        noted: The time at which the loss was noted, RFC 3339 in UTC.
    """

    start: int
    end: int
    why: str
    noted: str


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of one segment, to be read by `Spool.read_slice` in any process on the same files."""

    path: str
    uuid: str
    byte_start: int
    byte_end: int
    start: int
    end: int


def skips_losses(on_loss: str) -> bool:
    """Whether positions that are lost or damaged are skipped.

    Args:
        on_loss: ``fail`` or ``skip``.

    Raises:
        UsageError: It is neither.
    """
    if on_loss not in {"fail", "skip"}:
        raise UsageError(f"on_loss must be fail or skip, not {on_loss!r}")
    return on_loss == "skip"


def skips(repeats: str) -> bool:
    """Whether events that were sent before are left out.

    Args:
        repeats: ``mark`` or ``skip``.

    Raises:
        UsageError: It is neither.
    """
    if repeats not in {"mark", "skip"}:
        raise UsageError(f"repeats must be mark or skip, not {repeats!r}")
    return repeats == "skip"


def shares(memory: int, *, projects: bool) -> tuple[int, int]:
    """The bytes of `memory` for reading, and those for the columns of a schema."""
    _core.check_whole("memory", memory, LEAST_MEMORY)
    of_columns = memory // 4 if projects else 0
    return max(memory - of_columns, LEAST_MEMORY), of_columns


class Events:
    """Event rows of a range, to be read once.

    Any library with Arrow's PyCapsule interface takes it unchanged: ``pyarrow.table(events)``,
    ``polars.DataFrame(events)``.
    """

    def __init__(self, stream: _core.EventStream) -> None:
        self._stream = stream

    @property
    def skipped(self) -> list[Loss]:
        """Losses that were skipped so far, with ``on_loss="skip"``."""
        return [Loss(*loss) for loss in self._stream.skipped()]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._stream.__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator["pa.RecordBatch"]:
        """Yields record batches (needs pyarrow)."""
        import pyarrow as pa

        yield from pa.RecordBatchReader.from_stream(self)

    def to_table(self) -> "pa.Table":
        """Everything as one table (needs pyarrow)."""
        import pyarrow as pa

        return pa.table(self)

    def json_lines(self) -> Iterator[str]:
        """Yields a JSON object for each event, without pyarrow.

        Columns that are null are left out; a payload that is not UTF-8 is ``payload_base64``.
        With a schema each line is the row as the Spark sink writes it: binary is base64.
        """
        while (lines := self._stream.json_lines()) is not None:
            yield from lines
