"""Log lines of Spark's Python processes, with their time, level and query.

Spark configures no logging in these processes, so without this module a warning is a bare sentence
on standard error. A process that has configured the logger `ackline` by itself keeps its lines.

A process of Spark works for one query at a time, and the planner of a JVM for several, each on
threads of its own. So a thread has a query, and the process has one for all other threads.
"""

from __future__ import annotations

import logging
import sys
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ackline._terminal import escaped, lines_escaped

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark import TaskContext


_of_thread: ContextVar[str] = ContextVar("query", default="")


class QueryLines(logging.Formatter):
    """Writes `2026-11-21T16:00:00.123Z WARNING ackline.spark: TEXT [QUERY]`."""

    query: ClassVar[str] = ""
    """The queries of lines that a thread without a query of its own writes."""

    is_shared: ClassVar[bool] = False
    """Whether the process works for several queries at a time."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, which ends with the query."""
        return f"{super().format(record)} [{escaped(_of_thread.get() or self.query)}]"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Return the message, with everything escaped that a terminal would act on."""
        return escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802, ANN401 (logging's)
        """Return the traceback, with its lines escaped in the same way."""
        return lines_escaped(super().formatException(ei))


def log_to_stderr(query: str, level: int = logging.WARNING) -> None:
    """Name the query in the lines of the logger `ackline`, and write them to standard error.

    Does nothing if this process has configured logging by itself.

    Args:
        query: The words that name the query of this process, or of this thread if the process is
            shared.
        level: The lowest level that is written; a lower level that was set before is kept.
    """
    logger = logging.getLogger(_LOGGER)
    if QueryLines.is_shared:
        _of_thread.set(query)
    else:
        QueryLines.query = query
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(QueryLines())
        logger.addHandler(handler)
        logger.setLevel(level)
    elif any(isinstance(handler.formatter, QueryLines) for handler in logger.handlers):
        logger.setLevel(min(level, logger.level))


def share_lines(queries: Collection[str]) -> None:
    """Say that the process works for several queries, each on threads of its own.

    Args:
        queries: The words that name all of them, for the lines of other threads, such as those of
            native code.
    """
    QueryLines.is_shared = True
    QueryLines.query = "; ".join(queries) or "no query"


def stream_name(spools: Sequence[str], consumer: str | None) -> str:
    """Return the words that name a stream in the process that plans it.

    Spark tells that process neither the query's name nor its id.
    """
    reader = "no consumer" if consumer is None else f"consumer {consumer}"
    return f"query with {reader} of spool {', '.join(spools)}"


def task_name(context: TaskContext) -> str:
    """Return the words that name the query and the task's part of it.

    A batch query has no id; its stage is in Spark's own log.
    """
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    of = f"query {query} batch {batch}" if query else f"batch query, stage {context.stageId()}"
    return f"{of} partition {context.partitionId()} attempt {context.attemptNumber()}"


_LOGGER: Final = "ackline"
