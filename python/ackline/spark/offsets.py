"""The rules of a stream's offsets: where a query begins, what a batch holds, when a mark moves.

No Spark here: offsets are plain dicts, spools whatever has the methods of `SpoolView`.

Format 1, keys sorted, because Spark compares offsets as text:

    initial   {"start":"committed","v":1}                      a constant of the options
    concrete  {"spools":{"<uuid>":{"from":P,"to":Q}},"v":1}    a batch [P, Q) of each spool

Spark asks twice for the initial offset of a new query, and again when batch 0 has to be repeated.
So the initial offset names a rule, never a position: `Tracker.latest` resolves the rule once and
writes what it found into `from`, and `ranges_between` takes a batch from its end offset alone.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ackline.exceptions import SpoolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ackline.spark.options import StartingPosition

FORMAT: Final = 1
"""The offset format that is written, and the only one that is read."""

Offset = dict[str, Any]
"""An offset as Spark's Python sources exchange it: a JSON object."""

_log = logging.getLogger("ackline.spark")


class SpoolView(Protocol):
    """What the rules need of a spool; `ackline._core.Spool` has it."""

    @property
    def uuid(self) -> str:
        """The spool's identity."""

    def first_kept(self) -> int:
        """The first position that can still be read."""

    def durable(self) -> int:
        """The first position that is not durable yet."""

    def end_for(self, start: int, max_rows: int | None, max_bytes: int | None) -> int:
        """The end of a batch that begins at `start`."""

    def slices(
        self, start: int, end: int, max_slices: int, min_bytes: int
    ) -> Sequence[Mapping[str, Any]]:
        """Cut positions [start, end) into parts of single segments."""

    def consumers(self) -> Sequence[tuple[str, int, str]]:
        """The marks of all consumers: name, first position not committed, time of the mark."""

    def commit_mark(self, name: str, position: int) -> None:
        """Set a consumer's mark, durably."""

    def wait_durable(self, position: int, timeout: float) -> int:
        """Wait until `durable()` is at least `position`, at most `timeout` seconds."""


@dataclass(frozen=True, slots=True)
class Span:
    """Positions [start, end) of one spool, `from` and `to` in an offset."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a batch may hold, over all spools; None for no limit."""

    rows: int | None = None
    bytes: int | None = None

    def share(self, spools: int) -> Limit:
        """Divide the limit evenly among `spools`, at least one row and byte for each."""
        return Limit(_share(self.rows, spools), _share(self.bytes, spools))

    @property
    def unlimited(self) -> bool:
        """Whether everything may be taken."""
        return self.rows is None and self.bytes is None


class Spools:
    """The spools of a query by UUID, as they stand now.

    Args:
        views: Each directory with the spool that was found in it.

    Raises:
        SpoolError: `spool.twice`: two directories hold the same spool.
    """

    def __init__(self, views: Mapping[str, SpoolView]) -> None:
        self._views: dict[str, SpoolView] = {}
        self._paths: dict[str, str] = {}
        for path, view in views.items():
            if view.uuid in self._views:
                message = f"{self._paths[view.uuid]} and {path} hold the same spool {view.uuid}"
                raise SpoolError(message, code="spool.twice")
            self._views[view.uuid] = view
            self._paths[view.uuid] = path

    def __iter__(self) -> Iterator[tuple[str, SpoolView]]:
        """Yield UUID and spool, in the order of the UUIDs."""
        yield from sorted(self._views.items(), key=lambda item: item[0])

    def at(self, uuid: str) -> SpoolView:
        """Find a spool.

        Raises:
            SpoolError: `spool.replaced`: no directory holds it.
        """
        view = self._views.get(uuid)
        if view is None:
            found = ", ".join(f"{path} holds {uuid}" for uuid, path in self._paths.items())
            message = (
                f"spool.replaced: the checkpoint counts positions of spool {uuid}, but {found}; "
                f"name the directory of {uuid} in the option spool, or give the query a new "
                "checkpointLocation to begin at its startingPosition"
            )
            raise SpoolError(message, code="spool.replaced")
        return view

    def check_end(self, uuid: str, end: int) -> int:
        """Check that a position of a checkpoint was received, and return where the spool ends.

        Raises:
            SpoolError: `spool.replaced` or `spool.behind_checkpoint`.
        """
        durable = self.at(uuid).durable()
        if end > durable:
            message = (
                f"spool.behind_checkpoint: the checkpoint stands at position {end} of spool "
                f"{uuid} in {self._paths[uuid]}, which ends at {durable}; bring back the spool "
                "with those positions, or give the query a new checkpointLocation to begin at "
                "its startingPosition"
            )
            raise SpoolError(message, code="spool.behind_checkpoint")
        return durable

    def check_kept(self, uuid: str, start: int) -> None:
        """Check that a position can still be read.

        Raises:
            SpoolError: `spool.replaced` or `spool.gap`.
        """
        first = self.at(uuid).first_kept()
        if start < first:
            message = (
                f"spool.gap: the query goes on at position {start} of spool {uuid} in "
                f"{self._paths[uuid]}, whose first kept position is {first}: {first - start} "
                "positions are gone; give the query a new checkpointLocation and "
                f"startingPosition=earliest to go on at {first} without them"
            )
            raise SpoolError(message, code="spool.gap")


class Tracker:
    """One query's way through its spools: resolves its start, advances, moves its marks.

    Args:
        start: Where spools begin that no checkpoint knows.
        consumer: Whose marks are moved; None moves none.
    """

    def __init__(self, start: StartingPosition, consumer: str | None) -> None:
        self._start: StartingPosition = start
        self._consumer = consumer
        self._resolved: dict[str, int] = {}
        self._marked: dict[str, int] = {}
        self._pinned: dict[str, int] | None = None

    def initial(self) -> Offset:
        """Return the constant from which a query without a checkpoint starts."""
        return {"start": self._start, "v": FORMAT}

    def pin(self, spools: Spools) -> None:
        """Take nothing that becomes durable after this call."""
        self._pinned = {uuid: view.durable() for uuid, view in spools}

    @property
    def pinned(self) -> bool:
        """Whether `pin` was called."""
        return self._pinned is not None

    def latest(self, spools: Spools, start: Offset, limit: Limit) -> Offset:
        """Return the end of the batch that begins at `start`; `start` itself if nothing is new.

        A concrete `start` was committed by Spark, so the consumer's marks move to it.

        Raises:
            SpoolError: `spool.replaced`, `spool.behind_checkpoint`, `spool.gap`, `spool.format`.
        """
        given = spans_of(start)
        known = {} if given is None else given
        available: dict[str, Span] = {}
        for uuid, span in known.items():
            available[uuid] = Span(span.end, spools.check_end(uuid, span.end))
            spools.check_kept(uuid, span.end)
        self._mark(spools, known)
        for uuid, view in spools:
            if uuid not in known:
                first = self._resolve(spools, uuid, view)
                available[uuid] = Span(first, spools.check_end(uuid, first))
        end = self._limited(spools, available, limit)
        if given is not None and given.keys() == end.keys() and not any(map(_filled, end.values())):
            return start
        return concrete(end)

    def _limited(
        self, spools: Spools, available: Mapping[str, Span], limit: Limit
    ) -> dict[str, Span]:
        capped = {uuid: self._capped(uuid, span) for uuid, span in available.items()}
        share = limit.share(max(1, sum(map(_filled, capped.values()))))
        if share.unlimited:
            return capped
        taken: dict[str, Span] = {}
        for uuid, span in capped.items():
            end = span.end
            if _filled(span):
                end = min(end, spools.at(uuid).end_for(span.start, share.rows, share.bytes))
            taken[uuid] = Span(span.start, end)
        return taken

    def _capped(self, uuid: str, span: Span) -> Span:
        if self._pinned is None:
            return span
        # A spool that was not there when the end was pinned contributes nothing.
        pinned = self._pinned.get(uuid, span.start)
        return Span(span.start, max(span.start, min(span.end, pinned)))

    def _resolve(self, spools: Spools, uuid: str, view: SpoolView) -> int:
        if uuid not in self._resolved:
            self._resolved[uuid] = self._first(view)
        first = self._resolved[uuid]
        spools.check_kept(uuid, first)
        return first

    def _first(self, view: SpoolView) -> int:
        if self._start == "latest":
            return view.durable()
        mark = self._mark_of(view) if self._start == "committed" else None
        return view.first_kept() if mark is None else mark

    def _mark_of(self, view: SpoolView) -> int | None:
        if self._consumer is None:
            return None
        marks = {name: committed for name, committed, _ in view.consumers()}
        return marks.get(self._consumer)

    def _mark(self, spools: Spools, committed: Mapping[str, Span]) -> None:
        if self._consumer is None:
            return
        for uuid, span in committed.items():
            if self._marked.get(uuid) == span.end:
                continue
            view = spools.at(uuid)
            before = self._mark_of(view)
            if before is not None and before > span.end:
                _log.warning(
                    "consumer %s goes back from position %d to %d of spool %s: "
                    "the query's checkpoint is older than its mark",
                    self._consumer,
                    before,
                    span.end,
                    uuid,
                )
            if before != span.end:
                view.commit_mark(self._consumer, span.end)
            self._marked[uuid] = span.end


def spans_of(offset: Offset) -> dict[str, Span] | None:
    """Read an offset: the batch of each spool, or None for the initial offset.

    Raises:
        SpoolError: `spool.format`: it is not an offset of format 1.
    """
    if offset.get("v") != FORMAT:
        message = (
            f"spool.format: the checkpoint has offsets of format {offset.get('v')!r} and this "
            f"release reads {FORMAT}; use the release that wrote them or a new checkpointLocation"
        )
        raise SpoolError(message, code="spool.format")
    if "start" in offset:
        return None
    try:
        spans = {uuid: Span(int(s["from"]), int(s["to"])) for uuid, s in offset["spools"].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        spans = {}
    if not spans or any(not 0 <= span.start <= span.end for span in spans.values()):
        message = f"spool.format: the checkpoint holds {offset!r}, which is no offset of ackline"
        raise SpoolError(message, code="spool.format")
    return spans


def concrete(spans: Mapping[str, Span]) -> Offset:
    """Write an offset that names a batch of each spool."""
    spools = {uuid: {"from": s.start, "to": s.end} for uuid, s in sorted(spans.items())}
    return {"spools": spools, "v": FORMAT}


def ranges_between(spools: Spools, start: Offset, end: Offset) -> dict[str, Span]:
    """Return the positions of a batch, which its end offset alone decides.

    Raises:
        SpoolError: `spool.offset_mismatch`: a concrete `start` does not end where `end` begins;
            or the spools no longer hold the batch: `spool.replaced`, `spool.behind_checkpoint`,
            `spool.gap`.
    """
    if start == end:
        return {}
    spans = spans_of(end)
    if spans is None:
        message = f"spool.offset_mismatch: a batch cannot end at the initial offset {end!r}"
        raise SpoolError(message, code="spool.offset_mismatch")
    for uuid, before in (spans_of(start) or {}).items():
        after = spans.get(uuid)
        if after is None or after.start != before.end:
            message = (
                f"spool.offset_mismatch: batch {end!r} does not begin where {start!r} ends in "
                f"spool {uuid}; the checkpoint's offsets were altered, restore them"
            )
            raise SpoolError(message, code="spool.offset_mismatch")
    for uuid, span in spans.items():
        spools.check_end(uuid, span.end)
        if _filled(span):
            spools.check_kept(uuid, span.start)
    return {uuid: span for uuid, span in sorted(spans.items()) if _filled(span)}


def wait_for_more(spools: Spools, start: Offset, timeout: float) -> None:
    """Return once a spool goes on behind `start`, or after `timeout` seconds."""
    ends = {uuid: span.end for uuid, span in (spans_of(start) or {}).items()}
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        for uuid, end in ends.items():
            step = left if len(ends) == 1 else min(left, _ROUND_SECONDS)
            if spools.at(uuid).wait_durable(end + 1, step) > end:
                return
        if not ends:
            return


def _filled(span: Span) -> bool:
    return span.end > span.start


def _share(limit: int | None, spools: int) -> int | None:
    return None if limit is None else max(1, limit // spools)


# How long one of several spools is waited for before the next has its turn.
_ROUND_SECONDS = 0.01
