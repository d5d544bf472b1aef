"""The sink to Relink receivers: one transaction for each partition and batch.

A task sends its rows, undecided, and hands its link over: it returns the link's state, a few dozen
bytes. The driver continues the links of all tasks and commits when it has them all. Until then the
receiver shows none of the rows to anybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from ackline import _core
from ackline.spark.sink import BatchSink, StreamSink, finished, native_of, task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ackline.spark.sink_options import SinkOptions


@dataclass(frozen=True, slots=True)
class Prepared(WriterCommitMessage):
    """The rows of a task that the driver is to decide on.

    Attributes:
        partition: The task's partition.
        rows: The number of rows, which the receiver has.
        state: The state of the link that the rows were sent on; None without a row.
    """

    partition: int
    rows: int
    state: bytes | None


class _Transactions:
    _options: SinkOptions

    def _send(self, query: str, batch: int, rows: Iterator[pa.RecordBatch]) -> Prepared:
        return prepare(self._options, query, batch, rows)


class BatchTransactions(_Transactions, BatchSink):
    """Sends the rows of `df.write`, and commits them when all tasks have sent theirs."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the rows that the tasks have sent."""
        commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Roll back the rows that the tasks have sent."""
        roll_back(self._options, messages)


class StreamTransactions(_Transactions, StreamSink):
    """Sends the rows of `df.writeStream`, and commits each micro-batch after all its tasks."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Commit the rows that the tasks of the batch have sent."""
        del batchId
        commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Roll back the rows that the tasks of the batch have sent."""
        del batchId
        roll_back(self._options, messages)


def prepare(
    options: SinkOptions, query: str, batch: int, batches: Iterator[pa.RecordBatch]
) -> Prepared:
    """Send a partition's rows and return when the receiver has all of them, undecided.

    Args:
        options: The sink's options.
        query: The id of the query or write, for the stamp.
        batch: The micro-batch, for the stamp.
        batches: The partition's rows.

    Raises:
        LinkLost: The receiver could not be reached, took nothing for `timeout`, or has no room for
            the transaction: the text has its reason.
        UsageError: A row cannot be sent, or the rows are too many for one transaction: the text
            has the limit, and the side that sets it.
    """
    partition = task().partitionId()
    sink = _core.RelinkSink(options.url, native_of(options, query, batch, partition))
    sent, state = finished(sink, batches)
    return Prepared(partition, sent, state)


def commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit the rows that tasks have prepared: all or, if some are gone by then, none.

    Raises:
        LinkLost: Not everything was committed; the text has the known outcomes.
    """
    prepared = _prepared(messages)
    if prepared:
        _core.RelinkSink.commit(options.url, dict(options.native), prepared)


def roll_back(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Roll back the rows that tasks have prepared; unreachable rows expire at the receiver."""
    prepared = _prepared(messages)
    if prepared:
        _core.RelinkSink.roll_back(options.url, dict(options.native), prepared)


def _prepared(messages: Sequence[WriterCommitMessage | None]) -> list[tuple[int, bytes]]:
    """Return the messages that have rows; a task that failed has sent no message."""
    return [
        (message.partition, message.state)
        for message in messages
        if isinstance(message, Prepared) and message.state is not None
    ]
