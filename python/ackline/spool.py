"""Reading what a receiver kept: ranges of positions as Arrow, and consumers' marks."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from ackline import _core

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Consumer", "Events", "Slice", "Spool", "Verified"]


@dataclass(frozen=True, slots=True)
class Consumer:
    """A named consumer's mark.

    Attributes:
        name: The consumer's name.
        committed: Every position below this one is done with.
        updated: When the mark was written, RFC 3339 in UTC.
    """

    name: str
    committed: int
    updated: str


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of one segment, to be read by `Spool.read_slice` in any process on the same files."""

    path: str
    uuid: str
    byte_start: int
    byte_end: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Verified:
    """What `Spool.verify` looked at; `problems` is empty when nothing is wrong."""

    segments: int
    groups: int
    blocks: int
    events: int
    bytes: int
    problems: list[str]


class Events:
    """Event rows of a range, to be read once.

    Anything that speaks Arrow's PyCapsule interface takes it as it is: ``pyarrow.table(events)``,
    ``polars.DataFrame(events)``.
    """

    def __init__(self, stream: _core.EventStream) -> None:
        self._stream = stream

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
        """
        while (lines := self._stream.json_lines()) is not None:
            yield from lines


class Spool:
    """A spool opened for reading: safe beside a running receiver and after it died.

    Positions are dense and never reused: an event is named by (`uuid`, position) for ever.

    Args:
        path: The spool's directory.

    Raises:
        SpoolError: The directory is no spool, or one of a format that is not read.

    Example:
        >>> spool = Spool("/var/lib/ackline")  # doctest: +SKIP
        >>> spool.read(spool.first_kept(), spool.durable()).to_table()  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._core = _core.Spool(os.fspath(path))

    @property
    def path(self) -> str:
        """The spool's directory."""
        return os.fspath(self._core.path)

    @property
    def uuid(self) -> str:
        """The spool's identity, the same for its whole life."""
        return self._core.uuid

    def first_kept(self) -> int:
        """The first position that is still kept."""
        return self._core.first_kept()

    def durable(self) -> int:
        """The position after the last durable event."""
        return self._core.durable()

    def wait_durable(self, position: int, *, timeout: float | None = None) -> int:
        """Waits until `durable()` is at least `position`; returns it then, or after `timeout`.

        Args:
            position: The position to wait for.
            timeout: Seconds; None waits for ever.
        """
        return self._core.wait_durable(position, timeout)

    def end_for(
        self, start: int, *, max_rows: int | None = None, max_bytes: int | None = None
    ) -> int:
        """Where a batch from `start` ends: at a block's end if a whole block fits, else inside it.

        Args:
            start: The batch's first position.
            max_rows: Events in the batch at the most.
            max_bytes: Inflated bytes in the batch at the most.
        """
        return self._core.end_for(start, max_rows, max_bytes)

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        threads: int = 1,
        batch_rows: int = 10_000,
    ) -> Events:
        """Events of the positions [start, end): the same on every read.

        Args:
            start: First position; None is the first kept one.
            end: The position after the last; None is the durable one.
            columns: The columns to build, in the spool's order; None builds all.
            threads: Threads that expand blocks.
            batch_rows: Events in a record batch at the most.

        Raises:
            SpoolError: `spool.gap` below the first kept position, `spool.behind_checkpoint` above
                the durable one.
        """
        names = None if columns is None else list(columns)
        stream = self._core.read(start, end, columns=names, threads=threads, batch_rows=batch_rows)
        return Events(stream)

    def slices(self, start: int, end: int, *, max_slices: int, min_bytes: int = 0) -> list[Slice]:
        """Splits a range into parts that can be read apart, in any process.

        Args:
            start: First position.
            end: The position after the last.
            max_slices: How many at the most.
            min_bytes: Stored bytes of a part at the least, but for the last.
        """
        return [Slice(**part) for part in self._core.slices(start, end, max_slices, min_bytes)]

    @staticmethod
    def read_slice(
        part: Slice,
        *,
        columns: Sequence[str] | None = None,
        threads: int = 1,
        batch_rows: int = 10_000,
    ) -> Events:
        """Events of one slice. Reads that file alone; arguments as those of `read`."""
        names = None if columns is None else list(columns)
        stream = _core.Spool.read_slice(
            asdict(part), columns=names, threads=threads, batch_rows=batch_rows
        )
        return Events(stream)

    def blocks(self, start: int | None = None, end: int | None = None) -> list[dict[str, Any]]:
        """What the blocks of a range are (position, count, peer, …), without their events."""
        return self._core.blocks(start, end)

    def consumers(self) -> list[Consumer]:
        """The named consumers and their marks."""
        return [Consumer(*mark) for mark in self._core.consumers()]

    def commit_mark(self, name: str, position: int) -> None:
        """Durably says that consumer `name` is done with every position below `position`."""
        self._core.commit_mark(name, position)

    def remove_consumer(self, name: str) -> bool:
        """Forgets a consumer, which frees what it held; False if there was none of that name."""
        return self._core.remove_consumer(name)

    def verify(self, progress: Callable[[int, int], object] | None = None) -> Verified:
        """Checks every durable byte.

        Args:
            progress: Called with the bytes done and the bytes to do.
        """
        return Verified(**self._core.verify(progress or _silent))

    def __repr__(self) -> str:
        return f"Spool({self.path!r})"

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.path,)


def _silent(_done: int, _all: int) -> None:
    pass
