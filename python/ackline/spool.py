"""Readers of a receiver's spool: ranges of positions as Arrow, and consumers' marks."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ackline import _core
from ackline._spool_consumers import Consumer, Holder, Lag, Lease, Sought
from ackline._spool_reading import (
    LEAST_MEMORY,
    MEMORY,
    Events,
    Loss,
    OnLoss,
    Repeats,
    Slice,
    shares,
    skips,
    skips_losses,
)
from ackline._spool_upkeep import Adopted, Mended, MendStep, Probe, Verified
from ackline.exceptions import UsageError
from ackline.inference import Inferred, sampled
from ackline.projection import Elements, Projection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "LEAST_MEMORY",
    "MEMORY",
    "Adopted",
    "Consumer",
    "Events",
    "Holder",
    "Lag",
    "Lease",
    "Loss",
    "MendStep",
    "Mended",
    "OnLoss",
    "Probe",
    "Repeats",
    "Slice",
    "Sought",
    "Spool",
    "Verified",
]

_S = TypeVar("_S", bound="Spool")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Pickles, error messages and `help` name a class by the module from which users import it.
for _class in (
    Adopted,
    Consumer,
    Events,
    Holder,
    Lag,
    Loss,
    MendStep,
    Mended,
    Probe,
    Slice,
    Sought,
    Verified,
):
    _class.__module__ = __name__


class Spool:
    """A spool opened for reading: safe beside a running receiver and after it died.

    Positions are dense and never reused: an event is named by (`uuid`, position) for ever.

    Args:
        path: The spool's directory.
        group: Whether the spool is shared with the group of its files; without it, files that
            others than their owner can read are refused.

    Raises:
        SpoolError: `spool.not_a_spool`, `spool.rights`, or `spool.format` for a format that cannot
            be read.

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

    @staticmethod
    def mend(path: str | os.PathLike[str], *, dry_run: bool = False, group: bool = False) -> Mended:
        """Repairs a damaged spool: sound groups stay, everything else is moved to ``lost+found``.

        Positions whose events are gone are noted as losses. No position is given out again.

        Args:
            path: The spool's directory.
            dry_run: Whether to list the steps without changing anything.
            group: As for `Spool`.

        Raises:
            SpoolError: `spool.locked` while a receiver writes it, `spool.restored` for a copy from
                a backup (use `adopt`), `spool.not_a_spool`, `spool.rights`, `spool.format`.
        """
        position, steps = _core.spool_mend(os.fspath(path), dry_run, group)
        return Mended(
            position,
            [MendStep(what, os.fspath(at), start, end, why) for what, at, start, end, why in steps],
        )

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

    def losses(self) -> list[Loss]:
        """All losses that are known, in order: noted ones, and positions that no segment holds.

        Events are not read, so a damaged group that is not noted is not found: see `holes`.

        Raises:
            SpoolError: `spool.corrupt` if the list of losses is damaged, `spool.io`.
        """
        return [Loss(*loss) for loss in self._core.losses()]

    def holes(
        self, start: int | None = None, end: int | None = None, *, check: bool = False
    ) -> list[Loss]:
        """The losses in the positions [start, end), in order.

        Args:
            start: First position; None is the first kept one.
            end: The position after the last; None is the durable one.
            check: Whether to read every byte of the range, which also finds damaged groups.

        Raises:
            SpoolError: `spool.behind_checkpoint` above the durable position, `spool.io`.
        """
        return [Loss(*loss) for loss in self._core.holes(start, end, check=check)]

    def end_for(
        self,
        start: int,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        on_loss: OnLoss = "fail",
    ) -> int:
        """The end of a batch from `start`: at a block's end if a whole block fits, else inside it.

        Args:
            start: The batch's first position.
            max_rows: Events in the batch at the most.
            max_bytes: Inflated bytes in the batch at the most.
            on_loss: With ``fail`` a batch ends before the first loss; with ``skip`` losses count as
                no events, and the batch goes on behind them.

        Raises:
            UsageError: `on_loss` is neither of them.
            SpoolError: `spool.gap` or `spool.corrupt` if the position `start` is lost;
                `spool.behind_checkpoint` above the durable position.
        """
        skip_losses = skips_losses(on_loss)
        return self._core.end_for(start, max_rows, max_bytes, skip_losses=skip_losses)

    def read(  # noqa: PLR0913 (the keywords of one call)
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        threads: int = 1,
        batch_rows: int = 10_000,
        memory: int = MEMORY,
        repeats: Repeats = "mark",
        on_loss: OnLoss = "fail",
        schema: "pa.Schema | Projection | Elements | None" = None,
    ) -> Events:
        """Events of the positions [start, end): the same on every read.

        Args:
            start: First position; None is the first kept one.
            end: The position after the last; None is the durable one.
            columns: The columns to build, in the spool's order; None builds all but ``digest``, 16
                bytes of sender and event that are the same in every spool.
            threads: Threads that expand blocks; fewer where `memory` has less than 32 MiB for each.
            batch_rows: Events in a record batch at the most.
            memory: Bytes that the reading holds at once, for any number of `threads`: group commits
                as they are on disk, inflated blocks, and batches that were not taken. At least 4
                MiB. Batches have fewer events if the memory requires it. With a `schema` a quarter
                of the memory is for the columns of one batch. Batches that were taken, and 4 MiB
                for each thread, are not counted.
            repeats: The handling of events that were recognised as sent before: ``mark`` yields
                them with `repeat` true, ``skip`` leaves them out. Positions count them either way.
            on_loss: The behaviour at lost or damaged positions: ``fail`` yields the events before
                them and then raises, ``skip`` leaves out exactly these positions, which are then in
                `Events.skipped`.
            schema: Columns that are filled from the payloads' JSON, in place of `columns`; the
                column ``_rescued`` is added, unless a `Projection` says otherwise. `Elements` are
                columns that are filled from payloads of a fixed size.

        Raises:
            UsageError: `repeats` or `on_loss` has another value; `json.schema` of a schema that
                cannot be filled from JSON; `element.schema` of a wrong description of elements.
            SpoolError: `spool.gap` for positions that are retired, removed or lost, `spool.corrupt`
                for damaged ones, `spool.layout` for a block whose body contradicts its header,
                `spool.memory` for an event or a group commit that does not fit into `memory`,
                `spool.behind_checkpoint` above the durable position. Errors that are found while
                the events are read are raised by the reading.
        """
        names, native = _columns(columns, schema)
        of_reader, of_columns = shares(memory, projects=native is not None)
        stream = self._core.read(
            start,
            end,
            columns=names,
            threads=threads,
            batch_rows=batch_rows,
            memory=of_reader,
            skip_repeats=skips(repeats),
            skip_losses=skips_losses(on_loss),
        )
        return Events(stream if native is None else stream.project(native, of_columns))

    def infer_schema(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        sample: int = 10_000,
        case_sensitive: bool = False,
        memory: int = MEMORY,
    ) -> Inferred:
        """The columns that the payloads of a sample would fill.

        If there are more events than the sample, a tenth of it is taken from each of ten places,
        spread evenly.

        Args:
            start: First position; None is the first kept one.
            end: The position after the last; None is the durable one.
            sample: Events to examine, at the most.
            case_sensitive: Whether names that differ only in case are different names.
            memory: As for `read`, in bytes.

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
            events = self._core.read(low, high, columns=["parts", "payload"], memory=memory)
            inference.observe(events)
        return Inferred.of(inference)

    def slices(
        self,
        start: int,
        end: int,
        *,
        max_slices: int,
        min_bytes: int = 0,
        on_loss: OnLoss = "fail",
    ) -> list[Slice]:
        """Splits a range into parts that can be read apart, in any process.

        Args:
            start: First position.
            end: The position after the last.
            max_slices: Parts at the most.
            min_bytes: Stored bytes of every part but the last, at the least.
            on_loss: With ``fail`` a loss in the range raises; with ``skip`` no part contains a
                known loss.

        Raises:
            UsageError: `on_loss` is neither of them.
            SpoolError: As for `read`.
        """
        found = self._core.slices(
            start, end, max_slices, min_bytes, skip_losses=skips_losses(on_loss)
        )
        return [Slice(**part) for part in found]

    @staticmethod
    def read_slice(
        part: Slice,
        *,
        columns: Sequence[str] | None = None,
        threads: int = 1,
        batch_rows: int = 10_000,
        memory: int = MEMORY,
        repeats: Repeats = "mark",
        schema: "pa.Schema | Projection | Elements | None" = None,
    ) -> Events:
        """The events of one slice, from its file alone; the arguments are as for `read`."""
        names, native = _columns(columns, schema)
        of_reader, of_columns = shares(memory, projects=native is not None)
        stream = _core.Spool.read_slice(
            asdict(part),
            columns=names,
            threads=threads,
            batch_rows=batch_rows,
            memory=of_reader,
            skip_repeats=skips(repeats),
        )
        return Events(stream if native is None else stream.project(native, of_columns))

    def blocks(self, start: int | None = None, end: int | None = None) -> list[dict[str, Any]]:
        """The headers of a range's blocks (position, count, peer, …), without the events."""
        return list(self._core.blocks(start, end))

    def iter_blocks(
        self, start: int | None = None, end: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """The headers of `blocks`, read one group at a time during the iteration."""
        return iter(self._core.blocks(start, end))

    def find(self, at: datetime) -> int:
        """The first position received at `at` or later; `durable()` when there is none.

        Args:
            at: A time with its zone.
        """
        if at.tzinfo is None:
            raise UsageError("a time needs its zone, such as datetime.now(UTC)", "spool.time")
        return self._core.find((at - _EPOCH) // timedelta(microseconds=1))

    def lag(self, position: int) -> Lag:
        """The number, the bytes and the oldest time of the events kept above a position."""
        events, size, oldest_us = self._core.lag(position)
        oldest = None if oldest_us is None else _EPOCH + timedelta(microseconds=oldest_us)
        return Lag(events, size, oldest)

    def bytes(self) -> int:
        """The bytes of its segments and indexes."""
        return self._core.bytes()

    def writer(self) -> int | None:
        """The id of the process that writes the spool now (0 if it is invisible here), or None."""
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
            holder: This reader's description of itself, for the error of a reader that is refused.
            wait: Seconds to wait while another reader holds the consumer.
            create_at: The mark of a consumer that does not exist yet; without it, such a consumer
                gets its file with the first commit.

        Raises:
            SpoolError: `spool.consumer_busy`, naming the process that holds it.
        """
        return self._core.lease(name, holder, wait, create_at)

    def add_consumer(self, name: str, position: int) -> None:
        """Makes a consumer before its reader exists, so that the spool keeps the events for it."""
        self._core.add_consumer(name, position)

    def seek_consumer(self, name: str, position: int) -> Sought:
        """Moves the mark of a consumer that no reader holds.

        Raises:
            SpoolError: `spool.consumer_busy`, `spool.no_consumer`, `spool.gap` below the first
                kept position, `spool.behind_checkpoint` above the durable one.
        """
        return Sought(*self._core.seek_consumer(name, position))

    def commit_mark(self, name: str, position: int) -> None:
        """Records durably that consumer `name` is done with every position below `position`.

        Raises:
            SpoolError: `spool.consumer_busy` while another process holds the consumer.
        """
        self._core.commit_mark(name, position)

    def remove_consumer(self, name: str) -> bool:
        """Removes a consumer, which frees the events that it held; False if there was none.

        Raises:
            SpoolError: `spool.consumer_busy` while a reader holds it.
        """
        return self._core.remove_consumer(name)

    def verify(self, progress: Callable[[int, int], object] | None = None) -> Verified:
        """Checks every durable byte.

        Args:
            progress: Called with the positions that were checked and all positions to check.
        """
        found = self._core.verify(progress or _silent)
        return Verified(**found | {"losses": [Loss(*loss) for loss in found["losses"]]})

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
    columns: Sequence[str] | None, schema: "pa.Schema | Projection | Elements | None"
) -> tuple[list[str] | None, _core.Projection | None]:
    """The columns to read, and their native projection."""
    if schema is None:
        return (None if columns is None else list(columns)), None
    if columns is not None:
        raise UsageError("columns and schema contradict each other: give one", "json.schema")
    wanted = schema if isinstance(schema, Projection | Elements) else Projection(schema)
    native = wanted.native().with_rescued()
    return native.columns, native
