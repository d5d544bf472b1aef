"""A listener for queries of the source in Python: it logs their lag, and moves their last marks.

Spark tells a source that a batch was committed when the next one is planned. So a query that runs
one batch (`trigger(once=True)`), or ends for another reason, would leave its consumer's marks one
batch behind, and what `ack=committed` waits for unacknowledged. The listener moves them.
"""

from __future__ import annotations

import atexit
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from pyspark.sql.streaming.listener import StreamingQueryListener

from ackline.exceptions import SpoolError
from ackline.spark.behind import BEHIND, parsed, report_of
from ackline.spark.losses import Losses
from ackline.spark.offsets import Tracker, spans_of
from ackline.spark.spools import open_spools

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from ackline.spark.offsets import Offset

EVERY_SECONDS: Final = 10.0
"""Seconds between two lines of a query's lag."""

LAST_SECONDS: Final = 3.0
"""Seconds that the end of the process waits for queries that have ended."""

_log = logging.getLogger("ackline.spark")
_watched: WeakSet[SparkSession] = WeakSet()


def watch(spark: SparkSession) -> None:
    """Listen to the queries of a session; a second call for it does nothing."""
    if spark not in _watched:
        listener = Watch()
        spark.streams.addListener(listener)
        _watched.add(spark)
        atexit.register(leave, spark, listener)


def leave(spark: SparkSession, listener: Watch) -> None:
    """Stop listening before the process ends: Spark would log that nobody answers it.

    Queries that have ended just now are waited for, 3 s at most.
    """
    # The session or its JVM may be gone.
    with suppress(Exception):
        active = {str(query.runId) for query in spark.streams.active}
        listener.wait_ended(active, LAST_SECONDS)
    with suppress(Exception):
        spark.streams.removeListener(listener)


class Watch(StreamingQueryListener):
    """Logs how far queries are behind, and moves marks behind the last batch of one that ended."""

    def __init__(self) -> None:
        self._last: dict[str, list[tuple[Offset, Offset]]] = {}
        self._told: dict[str, float] = {}
        self._running: set[str] = set()

    def wait_ended(self, active: Collection[str], seconds: float) -> None:
        """Wait until all queries but the active ones are known to have ended, or time is over."""
        deadline = time.monotonic() + seconds
        while not self._running <= set(active) and time.monotonic() < deadline:
            time.sleep(0.01)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note that the query runs; Spark waits for this."""
        self._running.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Note what was committed, and log the lag."""
        progress, run = event.progress, str(event.progress.runId)
        found: list[tuple[Offset, Offset]] = []
        for source in progress.sources:
            report, end = report_of(source.latestOffset), parsed(source.endOffset)
            if report is not None and end is not None:
                found.append((report, end))
        if not found:
            return
        self._last[run] = found
        now = time.monotonic()
        if now - self._told.get(run, -EVERY_SECONDS) < EVERY_SECONDS:
            return
        self._told[run] = now
        for report, _ in found:
            for spool in report["spools"].values():
                _log.info(
                    "query %s is %d events and %.3f s behind the spool in %s code=spark.lag",
                    progress.name or progress.id,
                    spool[BEHIND],
                    spool["seconds_behind"],
                    spool["path"],
                )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Move the marks to the end of the last batch that was committed."""
        run = str(event.runId)
        self._told.pop(run, None)
        for report, end in self._last.pop(run, ()):
            try:
                settle(report, end)
            except (SpoolError, OSError) as error:
                # The next run of the query moves them.
                _log.info("marks were not moved: %s code=spark.mark_unmoved", error)
        self._running.discard(run)


def settle(report: Offset, end: Offset) -> None:
    """Move the marks of a query that has ended to the end of its last batch, never back.

    A mark that was moved or removed since the report stays as it is.

    Args:
        report: The latest offset of its last progress, which names the consumer and the spools.
        end: The end offset of its last progress.

    Raises:
        SpoolError: `spool.consumer_busy`: a query moves these marks again; or a spool cannot be
            read.
    """
    consumer, ended = report.get("consumer"), spans_of(end) or {}
    if consumer is None:
        return
    told = {uuid: spool for uuid, spool in report["spools"].items() if uuid in ended}
    group = report.get("group", False)
    spools = open_spools([spool["path"] for spool in told.values()], group=group)
    tracker = Tracker("committed", consumer, Losses(fail=True, consumer=consumer))
    try:
        tracker.settle(spools, ended, {uuid: spool["marked_at"] for uuid, spool in told.items()})
    finally:
        tracker.release()
