"""How far a query is behind its spools, as its progress reports it, and as it is now."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ackline import _core
from ackline.exceptions import SpoolError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from ackline.spark.offsets import Offset
    from ackline.spark.spools import SpoolView

BEHIND: Final = "rows_behind"
"""The member of a spool in a progress report that tells our reports from those of other sources."""


@dataclass(frozen=True, slots=True)
class SpoolLag:
    """How far a query is behind one spool.

    Attributes:
        spool: The spool's UUID.
        path: Its directory.
        rows_behind: Events that are durable and in no batch of the query.
        seconds_behind: The age of the first of them; 0 without one.
    """

    spool: str
    path: str
    rows_behind: int
    seconds_behind: float


def lag(query: StreamingQuery) -> list[SpoolLag]:
    """Return how far a query is behind each of its spools.

    Where this process sees a spool's directory, its lag is the one of this moment behind the last
    batch that was committed. Otherwise it is the one that the query last reported.

    Args:
        query: A query whose source is ackline. Before its first progress there is no lag.

    Returns:
        One for each spool of each of its sources, in the order of their UUIDs.

    Example:
        >>> ackline.spark.lag(query)[0].rows_behind  # doctest: +SKIP
    """
    progress: Any = query.lastProgress
    found: list[SpoolLag] = []
    for source in [] if progress is None else progress["sources"]:
        report = report_of(source["latestOffset"])
        if report is None:
            continue
        end = parsed(source["endOffset"]) or {}
        for uuid, reported in report["spools"].items():
            at = end.get("spools", {}).get(uuid, {}).get("to", reported["from"])
            found.append(_now(uuid, reported, at, group=report.get("group", False)))
    return found


def measured(view: SpoolView, position: int) -> dict[str, int | float]:
    """Return the lag behind a position, as members of a progress report."""
    durable = view.durable()
    since = view.waiting_since(position) if position < durable else None
    age = 0.0 if since is None else max(0.0, time.time() - since / 1e6)
    return {BEHIND: max(0, durable - position), "seconds_behind": round(age, 3)}


def mark_time(view: SpoolView, consumer: str | None) -> str | None:
    """Return when a consumer's mark was moved last; None if there is none."""
    return next((at for name, _, at in view.consumers() if name == consumer), None)


def report_of(text: object) -> Offset | None:
    """Return the latest offset of a progress report if it is one of ours; None for others."""
    found = parsed(text)
    spools = None if found is None else found.get("spools")
    is_ours = isinstance(spools, dict) and all(
        isinstance(spool, dict) and BEHIND in spool for spool in spools.values()
    )
    return found if is_ours else None


def parsed(text: object) -> dict[str, Any] | None:
    """Return the object of an offset in a progress report, which is a text in most releases."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _now(uuid: str, reported: dict[str, Any], position: int, *, group: bool) -> SpoolLag:
    path = reported["path"]
    lag: dict[str, Any] = reported
    try:
        view = _core.Spool(path, group)
        if view.uuid == uuid:
            lag = measured(view, position)
    except SpoolError:
        # It is on another machine, or gone: the report is the newest that is known.
        pass
    return SpoolLag(uuid, path, lag[BEHIND], lag["seconds_behind"])
