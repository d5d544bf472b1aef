"""Reading what a receiver kept: ranges of positions as Arrow, and consumers' marks."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from ackline import _core
from ackline.exceptions import UsageError
from ackline.inference import Inferred, sampled
from ackline.projection import Projection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Adopted",
    "Consumer",
    "Events",
    "Holder",
    "Lag",
    "Lease",
    "Probe",
    "Repeats",
    "Slice",
    "Sought",
    "Spool",
    "Verified",
]

_S = TypeVar("_S", bound="Spool")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Repeats = Literal["mark", "skip"]
"""What a reader does with events that were recognised as sent before."""

Lease = _core.Lease
"""A consumer held by this process; see `Spool.lease`."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that reads as a consumer, or that ended without letting go of it.

    Attributes:
        pid: Its process; 0 when it cannot be seen from here.
        host: The host it runs on.
        since: Since when, RFC 3339 in UTC.
        what: What it says of itself.
    """

    pid: int
    host: str
    since: str
    what: str


@dataclass(frozen=True, slots=True)
class Consumer:
    """A named consumer: its mark, and whether somebody reads under it.

    Attributes:
        name: The consumer's name.
        committed: Every position below this one is done with.
        generation: Counts the readers it has had; a mark of an older one is refused.
        updated: When the mark was written, RFC 3339 in UTC.
        seen: When a reader was last seen, RFC 3339 in UTC.
        last_seen_s: Seconds since then.
        live: Whether a reader holds it now.
        state: ``live``, ``idle`` (no reader) or ``stale`` (none for an hour).
        holder: The reader, if it is live or ended without letting go.
    """

    name: str
    committed: int
    generation: int
    updated: str
    seen: str
    last_seen_s: float
    live: bool
    state: str
    holder: Holder | None


@dataclass(frozen=True, slots=True)
class Lag:
    """What is kept above a position.

    Attributes:
        events: How many events.
        bytes: The bytes on disk of the group commits they are in.
        oldest: When the first of them was received; None when there is none.
    """

    events: int
    bytes: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Sought:
    """What moving a mark by hand does to what its consumer reads next.

    Attributes:
        start: The mark before.
        to: The mark now.
        skipped: Events that are kept and will not be read.
        repeated: Events that will be read a second time.
    """

    start: int
    to: int
    skipped: int
    repeated: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """What `Spool.adopt` did.

    Attributes:
        old: The UUID before.
        new: The UUID now.
        lowered: Consumers whose marks stood above what is durable and were lowered to it.
    """

    old: str
    new: str
    lowered: list[str]


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
class Probe:
    """What probing the spool's disk found.

    Attributes:
        p50_us: The median time of an fsync behind a write of 4 KiB, in microseconds.
        p99_us: The 99th percentile.
        suspicious: Whether the median is too short for a disk that was asked to keep something.
    """

    p50_us: float
    p99_us: float
    suspicious: bool


@dataclass(frozen=True, slots=True)
class Verified:
    """What `Spool.verify` looked at; `problems` is empty when nothing is wrong."""

    segments: int
    groups: int
    blocks: int
    events: int
    bytes: int
    problems: list[str]


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
        With a schema each line is the row as the Spark sink writes it: binary is base64.
        """
        while (lines := self._stream.json_lines()) is not None:
            yield from lines


class Spool:
    """A spool opened for reading: safe beside a running receiver and after it died.

    Positions are dense and never reused: an event is named by (`uuid`, position) for ever.

    Args:
        path: The spool's directory.
        group: Whether the spool is shared with the group of its files; without it, files that
            others than their owner can read are refused.

    Raises:
        SpoolError: `spool.not_a_spool`, `spool.rights`, or `spool.format` of one that is not read.

    Example:
        >>> spool = Spool("/var/lib/ackline")  # doctest: +SKIP
        >>> spool.read(spool.first_kept(), spool.durable()).to_table()  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str], *, group: bool = False) -> None:
        self._core = _core.Spool(os.fspath(path), group)
        self._group = group

    @staticmethod
    def adopt(path: str | os.PathLike[str], *, group: bool = False) -> Adopted:
        """Gives a spool that was restored from a backup a new UUID; events and marks stay.

        Args:
            path: The spool's directory.
            group: As for `Spool`.

        Raises:
            SpoolError: `spool.locked` while a receiver writes it, `spool.consumer_busy` while a
                reader holds a consumer.
        """
        return Adopted(*_core.spool_adopt(os.fspath(path), group))

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
        repeats: Repeats = "mark",
        schema: "pa.Schema | Projection | None" = None,
    ) -> Events:
        """Events of the positions [start, end): the same on every read.

        Args:
            start: First position; None is the first kept one.
            end: The position after the last; None is the durable one.
            columns: The columns to build, in the spool's order; None builds all but ``digest``, 16
                bytes of sender and event that are the same in every spool.
            threads: Threads that expand blocks.
            batch_rows: Events in a record batch at the most.
            repeats: What happens to events that were recognised as sent before: ``mark`` yields
                them with `repeat` true, ``skip`` leaves them out. Positions count them either way.
            schema: Columns that are filled from the payloads' JSON, in place of `columns`; the
                column ``_rescued`` is added, unless a `Projection` says otherwise.

        Raises:
            UsageError: `repeats` is neither of them; `json.schema` of a schema that cannot be
                filled from JSON.
            SpoolError: `spool.gap` below the first kept position, `spool.behind_checkpoint` above
                the durable one.
        """
        names, native = _columns(columns, schema)
        stream = self._core.read(
            start,
            end,
            columns=names,
            threads=threads,
            batch_rows=batch_rows,
            skip_repeats=skips(repeats),
        )
        return Events(stream if native is None else stream.project(native))

    def infer_schema(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        sample: int = 10_000,
        case_sensitive: bool = False,
    ) -> Inferred:
        """The columns that the payloads of a sample would fill.

        Of more events than the sample, a tenth of it each is taken from ten places, spread evenly.

        Args:
            start: First position; None is the first kept one.
            end: The position after the last; None is the durable one.
            sample: Events to look at, at the most.
            case_sensitive: Whether names that differ in case alone are two.

        Raises:
            UsageError: `sample` is below 1, or `start` is behind the end.
            SpoolError: As for `read`.
        """
        first = self.first_kept() if start is None else start
        last = self.durable() if end is None else end
        for name, number, least in (("start", first, 0), ("end", last, 0), ("sample", sample, 1)):
            _core.check_whole(name, number, least)
        if first > last:
            message = f"positions {first} to {last} are no range: there are {self.first_kept()} to "
            raise UsageError(f"{message}{self.durable()}", "json.range")
        inference = _core.Inference(case_sensitive)
        for low, high in sampled(first, last, sample):
            inference.observe(self._core.read(low, high, columns=["parts", "payload"]))
        return Inferred.of(inference)

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
        repeats: Repeats = "mark",
        schema: "pa.Schema | Projection | None" = None,
    ) -> Events:
        """Events of one slice. Reads that file alone; arguments as those of `read`."""
        names, native = _columns(columns, schema)
        stream = _core.Spool.read_slice(
            asdict(part),
            columns=names,
            threads=threads,
            batch_rows=batch_rows,
            skip_repeats=skips(repeats),
        )
        return Events(stream if native is None else stream.project(native))

    def blocks(self, start: int | None = None, end: int | None = None) -> list[dict[str, Any]]:
        """What the blocks of a range are (position, count, peer, …), without their events."""
        return self._core.blocks(start, end)

    def find(self, at: datetime) -> int:
        """The first position received at `at` or later; `durable()` when there is none.

        Args:
            at: A time with its zone.
        """
        if at.tzinfo is None:
            raise UsageError("a time needs its zone, such as datetime.now(UTC)", "spool.time")
        return self._core.find((at - _EPOCH) // timedelta(microseconds=1))

    def lag(self, position: int) -> Lag:
        """How much is kept above a position, and since when."""
        events, size, oldest_us = self._core.lag(position)
        oldest = None if oldest_us is None else _EPOCH + timedelta(microseconds=oldest_us)
        return Lag(events, size, oldest)

    def bytes(self) -> int:
        """The bytes of its segments and indexes."""
        return self._core.bytes()

    def writer(self) -> int | None:
        """The process that writes the spool now (0 when it cannot be seen from here), or None."""
        return self._core.writer()

    def consumers(self) -> list[Consumer]:
        """The named consumers, their marks and their readers."""
        return [_consumer(**state) for state in self._core.consumer_states()]

    def lease(
        self,
        name: str,
        *,
        holder: str = "",
        wait: float = 0.0,
        create_at: int | None = None,
    ) -> Lease:
        """Takes a consumer for this process, to move its mark: a context manager.

        Args:
            name: The consumer.
            holder: What this reader says of itself to one that is refused.
            wait: Seconds to wait while another reader has it.
            create_at: The mark of a consumer that does not exist yet; without it, it gets a file
                with the first commit.

        Raises:
            SpoolError: `spool.consumer_busy`, naming the process that has it.
        """
        return self._core.lease(name, holder, wait, create_at)

    def add_consumer(self, name: str, position: int) -> None:
        """Makes a consumer before its reader exists, so that nothing is removed that it wants."""
        self._core.add_consumer(name, position)

    def seek_consumer(self, name: str, position: int) -> Sought:
        """Moves the mark of a consumer that nobody reads as.

        Raises:
            SpoolError: `spool.consumer_busy`, `spool.no_consumer`, `spool.gap` below the first
                kept position, `spool.behind_checkpoint` above the durable one.
        """
        return Sought(*self._core.seek_consumer(name, position))

    def commit_mark(self, name: str, position: int) -> None:
        """Durably says that consumer `name` is done with every position below `position`.

        Raises:
            SpoolError: `spool.consumer_busy` while another process holds the consumer.
        """
        self._core.commit_mark(name, position)

    def remove_consumer(self, name: str) -> bool:
        """Forgets a consumer, which frees what it held; False if there was none of that name.

        Raises:
            SpoolError: `spool.consumer_busy` while a reader holds it.
        """
        return self._core.remove_consumer(name)

    def verify(self, progress: Callable[[int, int], object] | None = None) -> Verified:
        """Checks every durable byte.

        Args:
            progress: Called with the bytes done and the bytes to do.
        """
        return Verified(**self._core.verify(progress or _silent))

    def fsync_probe(self, rounds: int = 200) -> Probe:
        """Times `rounds` (at least 1) writes of 4 KiB with fsync in the spool's directory.

        Raises:
            SpoolError: `spool.io` where the directory cannot be written.
        """
        return Probe(**self._core.fsync_probe(rounds))

    def __repr__(self) -> str:
        return f"Spool({self.path!r})"

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[type[Self], str, bool]]:
        return _opened, (type(self), self.path, self._group)


def _silent(_done: int, _all: int) -> None:
    pass


def _opened(kind: type[_S], path: str, group: bool) -> _S:  # noqa: FBT001 (a pickle's)
    return kind(path, group=group)


def _consumer(*, holder: dict[str, Any] | None, **members: Any) -> Consumer:  # noqa: ANN401 (a dict)
    return Consumer(holder=None if holder is None else Holder(**holder), **members)


def _columns(
    columns: Sequence[str] | None, schema: "pa.Schema | Projection | None"
) -> tuple[list[str] | None, _core.Projection | None]:
    """The columns to read, and what they are projected by."""
    if schema is None:
        return (None if columns is None else list(columns)), None
    if columns is not None:
        raise UsageError("columns and schema contradict each other: give one", "json.schema")
    wanted = schema if isinstance(schema, Projection) else Projection(schema)
    native = wanted.native().with_rescued()
    return native.columns, native
