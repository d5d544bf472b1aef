"""The spools of a query: the directory of each, and the positions that each still has.

A directory that is gone, a spool that replaced another, a copy from a backup, and positions that
are removed, lost or damaged each end the query by name, or are noted and passed over if `losses`
says so.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ackline import _core
from ackline.exceptions import SpoolError
from ackline.spark.losses import Loss

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ackline.spark.losses import Losses
    from ackline.spark.options import Table


class LeaseView(Protocol):
    """The part of a lease that the rules need; `ackline._core.Lease` has it."""

    def committed(self) -> int | None:
        """The consumer's mark; None while it has none."""

    def commit(self, position: int) -> None:
        """Move the consumer's mark, durably."""

    def seen(self) -> None:
        """Record that the reader is alive."""

    def release(self) -> None:
        """Release the consumer."""


class SpoolView(Protocol):
    """The part of a spool that the rules need; `ackline._core.Spool` has it."""

    @property
    def uuid(self) -> str:
        """The spool's identity."""

    def first_kept(self) -> int:
        """The first position that can still be read."""

    def durable(self) -> int:
        """The first position that is not durable yet."""

    def find(self, at_us: int) -> int:
        """The first position received at a time, in microseconds since 1970, or later."""

    def end_for(
        self,
        start: int,
        max_rows: int | None,
        max_bytes: int | None,
        *,
        skip_losses: bool = False,
    ) -> int:
        """The end of a batch that begins at `start`: before the first loss, or after losses."""

    def holes(
        self, start: int | None, end: int | None, *, check: bool = False
    ) -> Sequence[tuple[int, int, str, str]]:
        """The losses in [start, end): start, end, reason, time of the note."""

    def epoch_at(self, position: int) -> str | None:
        """The epoch of the writer of a position; None if it is unknown."""

    def slices(
        self, start: int, end: int, max_slices: int, min_bytes: int
    ) -> Sequence[Mapping[str, Any]]:
        """Cut positions [start, end) into parts of single segments."""

    def blocks(self, start: int, end: int) -> Iterable[Mapping[str, Any]]:
        """Return the headers of the blocks that hold positions [start, end)."""

    def consumers(self) -> Sequence[tuple[str, int, str]]:
        """All consumers: name, mark, time of the mark."""

    def lease(self, name: str, holder: str, wait: float, create_at: int | None) -> LeaseView:
        """Take a consumer for this process, waiting for at most `wait` seconds."""

    def waiting_since(self, position: int) -> int | None:
        """Return when the first event from a position on was received (µs since 1970)."""

    def wait_durable(self, position: int, timeout: float) -> int:
        """Wait until `durable()` is at least `position`, at most `timeout` seconds."""


@dataclass(frozen=True, slots=True)
class Span:
    """Positions [start, end) of one spool; `from` and `to` in an offset.

    Attributes:
        start: The first position.
        end: The position after the last one.
        holes: Positions in between that are passed over, in order.
        epoch: The epoch of the writer of the last position; None if it is unknown.
    """

    start: int
    end: int
    holes: tuple[Span, ...] = ()
    epoch: str | None = field(default=None, compare=False)

    @property
    def rows(self) -> int:
        """The number of positions in the span, including the holes."""
        return self.end - self.start

    @property
    def parts(self) -> list[Span]:
        """The positions between the holes."""
        starts = [self.start, *(hole.end for hole in self.holes)]
        ends = [*(hole.start for hole in self.holes), self.end]
        both = zip(starts, ends, strict=True)
        return [Span(start, end) for start, end in both if start < end]


class Spools:
    """The spools of a query by UUID, in their current state.

    Args:
        views: Each directory with the spool that was found in it.
        missing: Directories that hold no spool.
        may_come: Whether a missing spool may still be made (a quarantine), or is gone.
        by_pattern: The directories that only a pattern named.

    Raises:
        SpoolError: `spool.twice`: two directories hold the same spool.
    """

    def __init__(
        self,
        views: Mapping[str, SpoolView],
        missing: Sequence[str] = (),
        *,
        may_come: bool = False,
        by_pattern: Collection[str] = (),
    ) -> None:
        self._views: dict[str, SpoolView] = {}
        self._paths: dict[str, str] = {}
        self._missing = missing
        self._may_come = may_come
        self._by_pattern = by_pattern
        for path, view in views.items():
            if view.uuid in self._views:
                message = f"{self._paths[view.uuid]} and {path} hold the same spool {view.uuid}"
                raise SpoolError(message, code="spool.twice")
            self._views[view.uuid] = view
            self._paths[view.uuid] = path

    def __iter__(self) -> Iterator[tuple[str, SpoolView]]:
        """Yield UUID and spool, in the order of the UUIDs."""
        yield from sorted(self._views.items(), key=lambda item: item[0])

    def __contains__(self, uuid: str) -> bool:
        """Return whether one of the directories holds a spool."""
        return uuid in self._views

    def at(self, uuid: str) -> SpoolView:
        """Return a spool that is there."""
        return self._views[uuid]

    def paths(self) -> list[str]:
        """Return the directories that hold a spool."""
        return list(self._paths.values())

    def sorted_paths(self) -> list[str]:
        """Return the directories in the order of the UUIDs; files for all lie in the first."""
        return [self._paths[uuid] for uuid, _ in self]

    def require(self, known: Collection[str] = ()) -> None:
        """Check that every directory holds a spool.

        Args:
            known: The UUIDs of the checkpoint.

        Raises:
            SpoolError: `spool.gone`, naming the directories.
        """
        lost = [uuid for uuid in known if uuid not in self._views]
        if self._missing and (lost or not self._may_come):
            raise _gone(self._missing, lost)

    def reached(
        self, uuid: str, position: int, known: Collection[str], losses: Losses
    ) -> int | None:
        """Return a position of the checkpoint, or the spool's end if the position is above that.

        Args:
            uuid: The spool.
            position: The position in the checkpoint.
            known: All UUIDs of the checkpoint.
            losses: The rule for positions that are gone.

        Returns:
            The position; None if the spool is not there and was passed over.

        Raises:
            SpoolError: `spool.gone`, `spool.replaced`, `spool.behind_checkpoint`.
        """
        view = self._views.get(uuid)
        if view is None:
            losses.meet(self._lost(uuid, known), Loss(self._anywhere(known), uuid, position, None))
            return None
        durable = view.durable()
        if position > durable:
            loss = Loss(self._paths[uuid], uuid, durable, position)
            losses.meet(self._behind(uuid, position, durable), loss)
        return min(position, durable)

    def kept(self, uuid: str, start: int, losses: Losses) -> int:
        """Return `start`, or the first kept position after it if losses are passed over.

        Raises:
            SpoolError: `spool.gap`.
        """
        first = self.at(uuid).first_kept()
        if start >= first:
            return start
        message = (
            f"spool.gap: the query goes on at position {start} of spool {uuid} in "
            f"{self._paths[uuid]}, whose first kept position is {first}: {first - start} "
            "positions are gone; give the query a new checkpointLocation and "
            f"startingPosition=earliest to go on at {first} without them, or set "
            "failOnDataLoss=false, which notes them and does so too"
        )
        loss = Loss(self._paths[uuid], uuid, start, first)
        losses.meet(SpoolError(message, code="spool.gap"), loss)
        return first

    def without_losses(self, uuid: str, span: Span, losses: Losses) -> Span:
        """Return a batch with its holes; each hole is noted.

        Every byte of the batch is read, so that a task meets no damage.
        """
        found = self.at(uuid).holes(span.start, span.end, check=True)
        for start, end, why, _ in found:
            error = self._refusal(uuid, span.start, start, end, why)
            losses.meet(error, Loss(self._paths[uuid], uuid, start, end))
        return Span(span.start, span.end, tuple(Span(start, end) for start, end, _, _ in found))

    @contextmanager
    def losses_by_name(self, uuid: str, start: int) -> Iterator[None]:
        """Name the positions of a loss that a strict reader of a spool meets.

        Raises:
            SpoolError: `spool.gap` or `spool.corrupt` with the range and the cures.
        """
        try:
            yield
        except SpoolError as error:
            if error.code not in {"spool.gap", "spool.corrupt"}:
                raise
            found: Sequence[tuple[int, int, str, str]] = ()
            with suppress(SpoolError):
                found = self.at(uuid).holes(start, self.at(uuid).durable())
            if not found:
                raise
            first, end, why, _ = found[0]
            raise self._refusal(uuid, start, first, end, why) from error

    def restored(self, uuid: str, span: Span, reread: int) -> SpoolError | None:
        """Return the error of a spool if the last position of a batch is another writer's.

        Args:
            uuid: The spool.
            span: The batch, with the epoch that its last position had.
            reread: The first position that may hold another event than the query has read.
        """
        view = self.at(uuid)
        if span.epoch is None or not 0 < span.end <= view.durable():
            return None
        found = view.epoch_at(span.end - 1)
        if found is None or found == span.epoch:
            return None
        path = self._paths[uuid]
        message = (
            f"spool.restored: the checkpoint stands at position {span.end} of spool {uuid} in "
            f"{path}, but another receiver wrote the event before it (epoch {found}, and the query "
            f"read epoch {span.epoch}): the spool was put back from a backup and has gone on "
            f"since. Positions {min(reread, span.end)} to {span.end} may hold events that the "
            "query has not read. Give the copy an identity of its own (`ackline spool adopt "
            f"{path}`) and the query a new checkpointLocation, or set failOnDataLoss=false, which "
            "notes this and reads everything behind the consumer's mark again"
        )
        return SpoolError(message, code="spool.restored")

    def path(self, uuid: str) -> str:
        """Return the directory of a spool that is there."""
        return self._paths[uuid]

    def is_by_pattern(self, uuid: str) -> bool:
        """Return whether only a pattern named a spool: it may have come after the query's start."""
        return self._paths[uuid] in self._by_pattern

    def _refusal(self, uuid: str, at: int, start: int, end: int, why: str) -> SpoolError:
        code = "spool.corrupt" if why == "corrupt" else "spool.gap"
        path = self._paths[uuid]
        message = (
            f"{code}: positions {start} to {end} of spool {uuid} in {path} are {_WHY[why]}, "
            f"and the query reads on from position {at}; set failOnDataLoss=false to note exactly "
            f"these positions and go on behind them (`ackline spool ls {path}` lists all losses)"
        )
        return SpoolError(message, code=code)

    def _lost(self, uuid: str, known: Collection[str]) -> SpoolError:
        found = ", ".join(f"{path} holds {other}" for other, path in self._paths.items())
        if all(other in known for other in self._views):
            message = (
                f"spool.gone: the checkpoint counts positions of spool {uuid}, which no directory "
                f"of the option spool holds any more ({found or 'none is there'}); name its "
                "directory again, or set failOnDataLoss=false to go on without it"
            )
            return SpoolError(message, code="spool.gone")
        message = (
            f"spool.replaced: the checkpoint counts positions of spool {uuid}, but {found}; "
            f"name the directory of {uuid} in the option spool, or give the query a new "
            "checkpointLocation to begin at its startingPosition, or set failOnDataLoss=false to "
            "note the loss and go on with the new spool"
        )
        return SpoolError(message, code="spool.replaced")

    def _behind(self, uuid: str, position: int, durable: int) -> SpoolError:
        message = (
            f"spool.behind_checkpoint: the checkpoint stands at position {position} of spool "
            f"{uuid} in {self._paths[uuid]}, which ends at {durable}; bring back the spool "
            "with those positions, or give it an identity of its own (`ackline spool adopt "
            f"{self._paths[uuid]}`) and the query a new checkpointLocation"
        )
        return SpoolError(message, code="spool.behind_checkpoint")

    def _anywhere(self, known: Collection[str]) -> str:
        # The loss is noted in the spool that came instead, where users look for it.
        newcomers = [path for uuid, path in self._paths.items() if uuid not in known]
        return next(iter(newcomers or self._paths.values()), "")


class OpenSpools:
    """Spools that one process keeps open between two looks, so that it lists no segment twice.

    A spool is opened again if its directory or one of its first files is not the same as before.
    A pickled copy is empty.
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[_Seen, SpoolView]] = {}

    def __reduce__(self) -> tuple[type[OpenSpools], tuple[()]]:
        return type(self), ()

    def at(self, path: str, *, group: bool) -> SpoolView:
        """Return the spool in a directory.

        Raises:
            SpoolError: The directory holds no spool, or a spool that this release cannot read.
        """
        seen = _seen(path)
        known = self._open.get(path)
        if known is not None and known[0] == seen:
            return known[1]
        view = _core.Spool(path, group)
        self._open[path] = (seen, view)
        return view

    def forget(self) -> None:
        """Close all spools."""
        self._open.clear()


_WILD: Final = frozenset("*?[")
_Seen = tuple[int | None, ...]


def _seen(path: str) -> _Seen:
    """Return the values that tell a spool from another in its place: process, devices, inodes."""
    found: list[int | None] = [os.getpid()]
    for name in ("", "spool.json", "durable", "segments"):
        try:
            stat = Path(path, name).stat()
        except OSError:
            found.append(None)
            continue
        found += [stat.st_dev, stat.st_ino]
        if name == "spool.json":
            # An inode may be reused.
            found.append(stat.st_ctime_ns)
    return tuple(found)


def open_spools(
    paths: Sequence[str],
    table: Table = "events",
    *,
    group: bool = False,
    opened: OpenSpools | None = None,
) -> Spools:
    """Open the spools of a query.

    Args:
        paths: Their directories, and patterns that match such.
        table: The table that is meant, of a receiver's two spools.
        group: Whether files may be open to their group.
        opened: Spools that are kept open; without it, each is opened again.

    Raises:
        SpoolError: A directory holds a spool that this release cannot read.
    """
    kept = OpenSpools() if opened is None else opened
    views: dict[str, SpoolView] = {}
    missing: list[str] = []
    named, by_pattern = matched(paths)
    for path in (*named, *by_pattern):
        place = str(Path(path, "quarantine")) if table == "quarantine" else path
        if has_spool(place) and (table == "events" or _is_made(place)):
            try:
                views[place] = kept.at(place, group=group)
            except SpoolError:
                if has_spool(place):
                    raise
        if place not in views:
            missing.append(place)
    is_quarantine = table == "quarantine"
    found = [str(Path(path, table)) if is_quarantine else path for path in by_pattern]
    return Spools(views, missing, may_come=is_quarantine, by_pattern=found)


def is_pattern(path: str) -> bool:
    """Return whether a path stands for every spool that it matches, as in a shell."""
    return not _WILD.isdisjoint(path) and not Path(path).exists()


def matched(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the directories that paths name, and those that only their patterns match.

    A pattern that matches no spool is returned as a name: there is no spool there.
    """
    named = [path for path in paths if not is_pattern(path)]
    known = {Path(path) for path in named}
    by_pattern: list[str] = []
    for pattern in paths:
        if not is_pattern(pattern):
            continue
        hits = [path for path in sorted(glob(pattern)) if _is_spool(path)]  # noqa: PTH207 - as given
        if not hits:
            named.append(pattern)
        by_pattern += [path for path in hits if Path(path) not in known]
        known |= {Path(path) for path in hits}
    return named, by_pattern


def _is_spool(path: str) -> bool:
    place = Path(path)
    is_quarantine = place.name == "quarantine" and has_spool(str(place.parent))
    return has_spool(path) and _is_made(path) and not is_quarantine


def has_spool(path: str) -> bool:
    """Return whether a directory holds a spool, of any release."""
    return Path(path, "spool.json").exists()


def _is_made(path: str) -> bool:
    # A quarantine is made while a query waits for it; its durable mark is made last.
    mark = Path(path, "durable")
    return mark.exists() and mark.stat().st_size > 0


@contextmanager
def gone_by_name(paths: Iterable[str]) -> Iterator[None]:
    """Name a directory that vanished while its files were in use, and every error's code.

    Raises:
        SpoolError: `spool.gone`; or the original error, if all directories are there.
    """
    try:
        yield
    except SpoolError as error:
        missing = [path for path in paths if not has_spool(path) and not is_pattern(path)]
        if missing and error.code != "spool.gone":
            raise _gone(missing, ()) from error
        if str(error).startswith(error.code):
            raise
        # Spark shows only the text.
        raise SpoolError(f"{error.code}: {error}", code=error.code) from error


def _gone(missing: Sequence[str], lost: Sequence[str]) -> SpoolError:
    counted = f", and the checkpoint counts positions of {', '.join(lost)}" if lost else ""
    message = (
        f"spool.gone: there is no spool in {', '.join(missing)}{counted}; mount or bring back the "
        "directory, or take it out of the option spool"
    )
    return SpoolError(message, code="spool.gone")


_WHY: Final = {
    "lost": "lost (the disk did not keep them)",
    "corrupt": "damaged (their bytes are not those that were written)",
    "removed": "gone (their segment was removed)",
}
