"""The spools of a query: which directory holds which, and what each still has.

A directory that is gone, a spool in another's place and positions that were removed each end the
query by name, or are noted and passed over where `losses` says so.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ackline import _core
from ackline.exceptions import SpoolError
from ackline.spark.losses import Loss

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ackline.spark.losses import Losses
    from ackline.spark.options import Table


class LeaseView(Protocol):
    """What the rules need of a lease; `ackline._core.Lease` has it."""

    def committed(self) -> int | None:
        """The consumer's mark; None while it has none."""

    def commit(self, position: int) -> None:
        """Move the consumer's mark, durably."""

    def seen(self) -> None:
        """Say that the reader lives."""

    def release(self) -> None:
        """Let go of the consumer."""


class SpoolView(Protocol):
    """What the rules need of a spool; `ackline._core.Spool` has it."""

    @property
    def uuid(self) -> str:
        """The spool's identity."""

    def first_kept(self) -> int:
        """The first position that can still be read."""

    def durable(self) -> int:
        """The first position that is not durable yet."""

    def find(self, at_us: int) -> int:
        """The first position received at a time, in microseconds since 1970, or later."""

    def end_for(self, start: int, max_rows: int | None, max_bytes: int | None) -> int:
        """The end of a batch that begins at `start`."""

    def slices(
        self, start: int, end: int, max_slices: int, min_bytes: int
    ) -> Sequence[Mapping[str, Any]]:
        """Cut positions [start, end) into parts of single segments."""

    def consumers(self) -> Sequence[tuple[str, int, str]]:
        """All consumers: name, mark, time of the mark."""

    def lease(self, name: str, holder: str, wait: float, create_at: int | None) -> LeaseView:
        """Take a consumer for this process, waiting for at most `wait` seconds."""

    def wait_durable(self, position: int, timeout: float) -> int:
        """Wait until `durable()` is at least `position`, at most `timeout` seconds."""


@dataclass(frozen=True, slots=True)
class Span:
    """Positions [start, end) of one spool, `from` and `to` in an offset."""

    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many positions it holds."""
        return self.end - self.start


class Spools:
    """The spools of a query by UUID, as they stand now.

    Args:
        views: Each directory with the spool that was found in it.
        missing: Directories that hold none.
        may_come: Whether a missing spool may still be made (a quarantine), or is gone.

    Raises:
        SpoolError: `spool.twice`: two directories hold the same spool.
    """

    def __init__(
        self,
        views: Mapping[str, SpoolView],
        missing: Sequence[str] = (),
        *,
        may_come: bool = False,
    ) -> None:
        self._views: dict[str, SpoolView] = {}
        self._paths: dict[str, str] = {}
        self._missing = missing
        self._may_come = may_come
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
        """Tell whether one of the directories holds a spool."""
        return uuid in self._views

    def at(self, uuid: str) -> SpoolView:
        """Return a spool that is there."""
        return self._views[uuid]

    def paths(self) -> list[str]:
        """Return the directories that hold a spool."""
        return list(self._paths.values())

    def first_path(self) -> str | None:
        """Return the directory of the spool of the lowest UUID, for what concerns them all."""
        return next((self._paths[uuid] for uuid, _ in self), None)

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
        """Return a position of the checkpoint, or the spool's end where it stands above that.

        Args:
            uuid: The spool.
            position: Where the checkpoint stands.
            known: All UUIDs of the checkpoint.
            losses: What becomes of positions that are gone.

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
        """Return `start`, or the first kept position behind it where losses are passed over.

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
            "note the loss and go on at what the new spool has"
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
        # The loss is noted where somebody looks for it: in the spool that came instead.
        newcomers = [path for uuid, path in self._paths.items() if uuid not in known]
        return next(iter(newcomers or self._paths.values()), "")


def open_spools(paths: Sequence[str], table: Table = "events", *, group: bool = False) -> Spools:
    """Open the spools of a query.

    Args:
        paths: Their directories.
        table: Which of a receiver's two spools is meant.
        group: Whether files may be open to their group.

    Raises:
        SpoolError: A directory holds a spool that this release cannot read.
    """
    views: dict[str, SpoolView] = {}
    missing: list[str] = []
    for path in paths:
        place = str(Path(path, "quarantine")) if table == "quarantine" else path
        if has_spool(place) and (table == "events" or _is_made(place)):
            try:
                views[place] = _core.Spool(place, group)
            except SpoolError:
                if has_spool(place):
                    raise
        if place not in views:
            missing.append(place)
    return Spools(views, missing, may_come=table == "quarantine")


def has_spool(path: str) -> bool:
    """Tell whether a directory holds a spool, of whatever release."""
    return Path(path, "spool.json").exists()


def _is_made(path: str) -> bool:
    # A quarantine is made while a query waits for it, its durable mark last.
    mark = Path(path, "durable")
    return mark.exists() and mark.stat().st_size > 0


@contextmanager
def gone_by_name(paths: Iterable[str]) -> Iterator[None]:
    """Name the directory that vanished while its files were being used, and every error's code.

    Raises:
        SpoolError: `spool.gone`; or what was raised, if all directories are there.
    """
    try:
        yield
    except SpoolError as error:
        missing = [path for path in paths if not has_spool(path)]
        if missing and error.code != "spool.gone":
            raise _gone(missing, ()) from error
        if str(error).startswith(error.code):
            raise
        # Spark shows the text alone.
        raise SpoolError(f"{error.code}: {error}", code=error.code) from error


def _gone(missing: Sequence[str], lost: Sequence[str]) -> SpoolError:
    counted = f", and the checkpoint counts positions of {', '.join(lost)}" if lost else ""
    message = (
        f"spool.gone: there is no spool in {', '.join(missing)}{counted}; mount or bring back the "
        "directory, or take it out of the option spool"
    )
    return SpoolError(message, code="spool.gone")
