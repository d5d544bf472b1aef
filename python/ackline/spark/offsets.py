"""The rules of a stream's offsets: the start of a query, the content of a batch, mark moves.

No Spark here: offsets are plain dicts, spools are any objects with the methods of `SpoolView`.

Format 1, keys sorted, because Spark compares offsets as text:

    initial   {"start":"committed","v":1}                      a constant of the options
    concrete  {"spools":{"<uuid>":{"epoch":E,"from":P,"to":Q}},"v":1}
                                                               a batch [P, Q) of each spool

E is the epoch of the writer of position Q - 1, 16 hexadecimal digits: a copy from a backup that has
gone on has another epoch there. It is left out if it is unknown, as in releases before format 2.

Spark asks twice for the initial offset of a new query, and again when batch 0 has to be repeated.
So the initial offset names a rule, never a position: `Tracker.latest` resolves the rule once and
writes the result into `from`, and `ranges_between` takes a batch only from its end offset.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ackline.exceptions import SpoolError
from ackline.spark.behind import mark_time
from ackline.spark.leases import Leases
from ackline.spark.losses import Loss, Losses
from ackline.spark.places import At, Places
from ackline.spark.plans import Plans, plans_file
from ackline.spark.spools import Span
from ackline.spark.times import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ackline.spark.patience import Patience
    from ackline.spark.places import Place, StartingPosition
    from ackline.spark.spools import Spools, SpoolView

FORMAT: Final = 1
"""The offset format that is written, and the only format that is read."""

Offset = dict[str, Any]
"""An offset as Spark's Python sources exchange it: a JSON object."""

_log = logging.getLogger("ackline.spark")


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a batch, over all spools; None for no limit."""

    rows: int | None = None
    bytes: int | None = None

    def shared(self, backlogs: Mapping[str, int]) -> dict[str, Limit]:
        """Divide the limit among spools in proportion to their waiting rows.

        Every spool gets at least one row and byte, so that no spool starves; the sum stays within
        the limit unless there are more spools than that.
        """
        rows, size = _shares(self.rows, backlogs), _shares(self.bytes, backlogs)
        return {uuid: Limit(rows[uuid], size[uuid]) for uuid in backlogs}

    @property
    def unlimited(self) -> bool:
        """Whether everything may be taken."""
        return self.rows is None and self.bytes is None


class Tracker:
    """One query's progress through its spools: resolves its start, advances, moves its marks.

    Args:
        start: The start in spools that no checkpoint knows.
        consumer: The consumer with the marks to be moved; None moves none.
        losses: The rule for positions that are gone; without it they end the query.
        start_given: Whether the user gave `start`, or it is the default.
    """

    def __init__(
        self,
        start: StartingPosition | Places,
        consumer: str | None,
        losses: Losses | None = None,
        *,
        start_given: bool = True,
    ) -> None:
        self._start = start if isinstance(start, Places) else Places("startingPosition", start)
        self._start_given = start_given
        self._consumer = consumer
        self.losses = Losses() if losses is None else losses
        self._leases = Leases(consumer)
        self._plans: Plans | None = None
        self._resolved: dict[str, int] = {}
        self._marked: dict[str, int] = {}
        self._pinned: dict[str, int] | None = None
        self._rewound: set[str] = set()
        self._last_batch: float | None = None
        self.patient_for = 0.0
        """Seconds that the events that are there may still wait for more."""

    def initial(self) -> Offset:
        """Return the constant from which a query without a checkpoint starts."""
        return {"start": self._start.text(), "v": FORMAT}

    def hold(self, spools: Spools) -> None:
        """Take the consumer, if this process does not hold it yet, and note that its reader lives.

        Raises:
            SpoolError: `spool.consumer_busy`.
        """
        self._leases.hold(spools)
        self._leases.seen()

    def release(self) -> None:
        """Let go of the consumer."""
        self._leases.release()

    def pin(self, spools: Spools) -> None:
        """Limit batches to the positions that are durable at this call."""
        self._pinned = {uuid: view.durable() for uuid, view in spools}

    @property
    def pinned(self) -> bool:
        """Return whether `pin` was called."""
        return self._pinned is not None

    def latest(
        self, spools: Spools, start: Offset, limit: Limit, patience: Patience | None = None
    ) -> Offset:
        """Return the end of the batch that begins at `start`; `start` itself if nothing is new.

        With `patience` few events count as nothing; it has no say in the first batch of a query.
        A concrete `start` was committed by Spark, so the consumer's marks move to it.

        Raises:
            SpoolError: `spool.gone`, `spool.replaced`, `spool.restored`,
                `spool.behind_checkpoint`, `spool.gap`, `spool.corrupt`, `spool.format`,
                `spool.consumer_busy`, `spool.checkpoint_missing`.
        """
        given = spans_of(start)
        known = {} if given is None else given
        self.patient_for = 0.0
        available = self._available(spools, known)
        self.hold(spools)
        if given is None:
            self._check_checkpoint(spools)
            self._start.check(spools)
        self._open_plans(spools, known)
        self._mark(spools, known)
        planned = self._planned(spools, start, available) if known else None
        if planned is not None:
            return planned
        for uuid in known:
            # If it goes and comes back, it goes on at its mark.
            self._resolved.pop(uuid, None)
        # A spool that replaced a lost one, that is the first in its place, or that came since the
        # query began, is new as a whole, or goes on at the mark that the consumer has there.
        afresh = given is not None and (not given or len(available) < len(given))
        for uuid, view in spools:
            if uuid not in known:
                is_later = given is not None and spools.is_by_pattern(uuid)
                first = self._resolve(spools, uuid, view, is_new=afresh or is_later)
                available[uuid] = Span(first, max(first, view.durable()))
        end = self._limited(spools, available, limit)
        if given is not None and end == {u: Span(s.end, s.end) for u, s in given.items()}:
            return start
        if patience is not None and given is not None and self._pinned is None:
            backlog = sum(span.rows for span in available.values())
            self.patient_for = patience.left(backlog, self._last_batch)
            if self.patient_for > 0:
                return start
        self._last_batch = time.monotonic()
        following = concrete({u: _sealed(spools, u, span, known) for u, span in end.items()})
        if self._plans is not None and known:
            self._plans.note(start, following)
        return following

    def _available(self, spools: Spools, known: Mapping[str, Span]) -> dict[str, Span]:
        """Return what the spools of the checkpoint hold behind it."""
        spools.require(known)
        available: dict[str, Span] = {}
        for uuid, span in known.items():
            reached = spools.reached(uuid, span.end, known, self.losses)
            if reached is not None:
                again = self._restored(spools, uuid, span)
                first = spools.kept(uuid, reached if again is None else again, self.losses)
                available[uuid] = Span(first, max(first, spools.at(uuid).durable()))
        return available

    def _restored(self, spools: Spools, uuid: str, span: Span) -> int | None:
        """Return where to continue in a copy from a backup; None if the spool is no such copy.

        The end of the backup is unknown, but the mark of this consumer came with it and is not
        above that end. So positions after the mark are read again, and nothing is left out.

        Raises:
            SpoolError: `spool.restored`.
        """
        self._rewound.discard(uuid)
        if span.epoch is not None and not self.losses.fail:
            self.hold(spools)
        mark = self._leases.committed(uuid)
        reread = spools.at(uuid).first_kept() if mark is None else mark
        error = spools.restored(uuid, span, reread)
        if error is None:
            return None
        if mark is None:
            raise error
        again = min(mark, span.end)
        self.losses.meet(error, Loss(spools.path(uuid), uuid, again, span.end))
        self._rewound.add(uuid)
        return again

    def _check_checkpoint(self, spools: Spools) -> None:
        """Refuse a query without a checkpoint if its consumer has had one before.

        A sink that knows its batches by number would skip the batches of the new checkpoint, whose
        numbers begin at 0 again, and their events would be committed without being in any table.
        """
        if self._start_given or self._consumer is None or self._resolved:
            return
        for uuid, _ in spools:
            if not self._leases.is_new(uuid) and any(
                plans_file(path, self._consumer).exists() for path in spools.paths()
            ):
                message = (
                    f"spool.checkpoint_missing: consumer {self._consumer} has committed batches "
                    "and this query has no checkpoint; bring it back, or set "
                    "startingPosition=committed to go on at the consumer's mark, into a new table: "
                    "batches are numbered from 0 again, and a table that skips the numbers it has "
                    "seen (Parquet's _spark_metadata, Delta) would lose their events"
                )
                raise SpoolError(message, code="spool.checkpoint_missing")

    def _open_plans(self, spools: Spools, known: Mapping[str, Span]) -> None:
        if self._plans is not None or not known or self._consumer is None:
            return
        files = [plans_file(path, self._consumer) for path in spools.sorted_paths()]
        # A spool that came later may be the first of the paths now.
        kept = [file for file in files if file.exists()]
        if files:
            self._plans = Plans((kept or files)[0])
            self._plans.begin()

    def _planned(
        self, spools: Spools, start: Offset, available: Mapping[str, Span]
    ) -> Offset | None:
        """Return the end of the batch that was planned from `start` before, if it still holds."""
        planned = None if self._plans is None else self._plans.end_of(start)
        if planned is None:
            return None
        for uuid, span in (spans_of(planned) or {}).items():
            if uuid not in spools or span.end > spools.at(uuid).durable():
                return None
            error = spools.restored(uuid, span, span.start)
            if error is not None:
                self.losses.meet(error, Loss(spools.path(uuid), uuid, span.start, span.end))
                return None
            if uuid in available and span.start != available[uuid].start:
                return None
        return planned

    def _limited(
        self, spools: Spools, available: Mapping[str, Span], limit: Limit
    ) -> dict[str, Span]:
        capped = {uuid: self._capped(uuid, span) for uuid, span in available.items()}
        skips = not self.losses.fail
        if limit.unlimited and skips:
            return capped
        shares = limit.shared({uuid: span.rows for uuid, span in capped.items() if span.rows})
        taken: dict[str, Span] = {}
        for uuid, span in capped.items():
            end = span.end
            if span.rows:
                share = shares[uuid]
                with spools.losses_by_name(uuid, span.start):
                    found = spools.at(uuid).end_for(
                        span.start, share.rows, share.bytes, skip_losses=skips
                    )
                end = min(end, found)
            taken[uuid] = Span(span.start, end)
        return taken

    def _capped(self, uuid: str, span: Span) -> Span:
        if self._pinned is None:
            return span
        # A spool that was not there at the time of `pin` contributes nothing.
        pinned = self._pinned.get(uuid, span.start)
        return Span(span.start, max(span.start, min(span.end, pinned)))

    def _resolve(self, spools: Spools, uuid: str, view: SpoolView, *, is_new: bool) -> int:
        if uuid not in self._resolved:
            place = self._start.named(uuid, spools.path(uuid))
            if place is None:
                place = "committed" if is_new else self._start.otherwise
            self._resolved[uuid] = self._first(uuid, view, place)
        return spools.kept(uuid, self._resolved[uuid], self.losses)

    def _first(self, uuid: str, view: SpoolView, place: Place) -> int:
        if place != "committed":
            return position_of(place, uuid, view, self._start.option)
        mark = self._leases.committed(uuid)
        if mark is None:
            return view.first_kept()
        if mark > view.first_kept():
            _log.warning(
                "a query without a checkpoint goes on at the mark of consumer %s, position %d of "
                "spool %s, and numbers its batches from 0 again: a table that skips batches it "
                "has seen (Parquet's _spark_metadata, Delta) needs to be a new one "
                "code=spark.new_checkpoint",
                self._consumer,
                mark,
                uuid,
            )
        return mark

    def settle(
        self, spools: Spools, ended: Mapping[str, Span], marked_at: Mapping[str, str]
    ) -> None:
        """Move the marks forward to the end of the last batch of a query that has ended.

        Args:
            spools: The spools of the query.
            ended: Its last batch.
            marked_at: When its marks were moved last. Those that somebody has moved since stay, and
                so do those of a spool that does not hold the batch any more.

        Raises:
            SpoolError: `spool.consumer_busy`: another query moves them.
        """

        def is_unmoved(uuid: str, view: SpoolView) -> bool:
            at = mark_time(view, self._consumer)
            return uuid in ended and at is not None and at == marked_at[uuid]

        if not all(is_unmoved(uuid, view) for uuid, view in spools):
            return
        self.hold(spools)
        # Another process may have held the consumer, and moved its marks, until now.
        self.finish(spools, {u: ended[u] for u, view in spools if is_unmoved(u, view)})

    def finish(self, spools: Spools, ended: Mapping[str, Span]) -> None:
        """Move the marks that are held forward to the end of a batch, where the spools hold it."""
        for uuid, view in spools:
            span, mark = ended.get(uuid), self._leases.committed(uuid)
            if span is None or mark is None or uuid in self._rewound:
                continue
            is_same = spools.restored(uuid, span, span.start) is None
            if is_same and mark < span.end <= view.durable():
                self._leases.commit(uuid, span.end)

    def _mark(self, spools: Spools, committed: Mapping[str, Span]) -> None:
        for uuid, span in committed.items():
            if self._consumer is None or uuid not in spools or self._marked.get(uuid) == span.end:
                continue
            if uuid in self._rewound:
                # Positions after the mark are read again.
                continue
            position = span.end
            if not self.losses.fail:
                # A mark lies within the spool: positions that the spool lost were passed over.
                view = spools.at(uuid)
                position = max(view.first_kept(), min(position, view.durable()))
            before = self._leases.committed(uuid)
            if before is not None and before > position:
                _log.warning(
                    "consumer %s goes back from position %d to %d of spool %s: "
                    "the query's checkpoint is older than its mark code=spark.mark_back",
                    self._consumer,
                    before,
                    position,
                    uuid,
                )
            if before != position:
                self._leases.commit(uuid, position)
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
        spans = {uuid: _span(span) for uuid, span in offset["spools"].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        spans = {}
    if (not spans and offset.get("spools") != {}) or any(
        not 0 <= span.start <= span.end for span in spans.values()
    ):
        message = f"spool.format: the checkpoint holds {offset!r}, which is no offset of ackline"
        raise SpoolError(message, code="spool.format")
    return spans


def concrete(spans: Mapping[str, Span]) -> Offset:
    """Write an offset that names a batch of each spool."""
    return {"spools": {uuid: _members(span) for uuid, span in sorted(spans.items())}, "v": FORMAT}


def _span(members: Mapping[str, Any]) -> Span:
    epoch = members.get("epoch")
    if epoch is not None and not isinstance(epoch, str):
        raise TypeError("an epoch is a text")
    return Span(int(members["from"]), int(members["to"]), epoch=epoch)


def _members(span: Span) -> dict[str, int | str]:
    epoch = {} if span.epoch is None else {"epoch": span.epoch}
    return {**epoch, "from": span.start, "to": span.end}


def _sealed(spools: Spools, uuid: str, span: Span, known: Mapping[str, Span]) -> Span:
    """Return a batch with the epoch of its last position."""
    before = known.get(uuid)
    if before is not None and before.end == span.end and before.epoch is not None:
        return replace(span, epoch=before.epoch)
    epoch = spools.at(uuid).epoch_at(span.end - 1) if span.end > 0 else None
    return replace(span, epoch=epoch)


def ranges_between(
    spools: Spools, start: Offset, end: Offset, losses: Losses | None = None
) -> dict[str, Span]:
    """Return the positions of a batch, with its holes; only its end offset decides on them.

    Args:
        spools: The spools in their current state.
        start: The start of the batch according to Spark.
        end: The end of the batch.
        losses: The rule for positions that are gone; without it they end the query.

    Raises:
        SpoolError: `spool.offset_mismatch`: a concrete `start` does not end where `end` begins;
            or the spools no longer hold the batch: `spool.gone`, `spool.replaced`,
            `spool.restored`, `spool.behind_checkpoint`, `spool.gap`, `spool.corrupt`.
    """
    if start == end:
        return {}
    losses = Losses() if losses is None else losses
    spans = spans_of(end)
    if spans is None:
        message = f"spool.offset_mismatch: a batch cannot end at the initial offset {end!r}"
        raise SpoolError(message, code="spool.offset_mismatch")
    if losses.fail:
        _check_joined(start, end, spans)
    spools.require(spans)
    ranges: dict[str, Span] = {}
    for uuid, span in sorted(spans.items()):
        last = spools.reached(uuid, span.end, spans, losses)
        if last is None or not span.rows:
            continue
        error = spools.restored(uuid, span, span.start)
        if error is not None:
            losses.meet(error, Loss(spools.path(uuid), uuid, span.start, span.end))
        first = spools.kept(uuid, span.start, losses)
        if first < last:
            batch = Span(first, last)
            ranges[uuid] = batch if losses.fail else spools.without_losses(uuid, batch, losses)
    return ranges


def _check_joined(start: Offset, end: Offset, spans: Mapping[str, Span]) -> None:
    for uuid, before in (spans_of(start) or {}).items():
        after = spans.get(uuid)
        if after is None or after.start != before.end:
            message = (
                f"spool.offset_mismatch: batch {end!r} does not begin where {start!r} ends in "
                f"spool {uuid}; the checkpoint's offsets were altered, restore them (or the batch "
                "passed over a loss: then set failOnDataLoss=false once more)"
            )
            raise SpoolError(message, code="spool.offset_mismatch")


def position_of(place: Place, uuid: str, view: SpoolView, option: str) -> int:
    """Return the position of a place; the first that is kept, unless the place says another.

    Raises:
        SpoolError: `spool.range`: the position is above the spool's end.
    """
    if isinstance(place, At):
        durable = view.durable()
        if place.position > durable:
            message = (
                f"spool.range: the option {option} names position {place.position} of spool "
                f"{uuid}, which ends at {durable}"
            )
            raise SpoolError(message, code="spool.range")
        return place.position
    if isinstance(place, int):
        return found_at(uuid, view, place)
    return view.durable() if place == "latest" else view.first_kept()


def found_at(uuid: str, view: SpoolView, at_us: int) -> int:
    """Return the first position received at a time or later; warn if older ones are gone."""
    found = view.find(at_us)
    if 0 < found == view.first_kept() < view.durable():
        _log.warning(
            "spool %s keeps nothing older than position %d: events received since %s may be gone "
            "code=spark.start_retired",
            uuid,
            found,
            text_of(at_us),
        )
    return found


def wait_for_more(spools: Spools, start: Offset, timeout: float) -> None:
    """Return once a spool has positions after `start`, or after `timeout` seconds."""
    spans = spans_of(start)
    if spans is None:
        return
    if any(uuid not in spools for uuid in spans):
        return
    ends = [(spools.at(uuid), span.end) for uuid, span in spans.items()]
    if len(ends) == 1:
        view, end = ends[0]
        view.wait_durable(end + 1, timeout)
        return
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        if any(view.durable() > end for view, end in ends):
            return
        time.sleep(min(left, _ROUND_SECONDS))


def _shares(limit: int | None, backlogs: Mapping[str, int]) -> dict[str, int | None]:
    if limit is None:
        return dict.fromkeys(backlogs)
    # One for each, and the rest in proportion; the largest remainders get the leftover.
    total = sum(backlogs.values())
    spare = max(0, limit - len(backlogs))
    parts = {uuid: divmod(spare * rows, total) for uuid, rows in backlogs.items()}
    rest = spare - sum(whole for whole, _ in parts.values())
    ranked = sorted(parts, key=lambda uuid: (-parts[uuid][1], uuid))
    more = set(ranked[:rest])
    return {uuid: 1 + whole + (uuid in more) for uuid, (whole, _) in parts.items()}


# Seconds between two looks at several spools.
_ROUND_SECONDS = 0.02
