"""The sink to bpmux receivers: one sink of bpmux for each partition, closed with its count.

It is opened with what it is of, so that a receiver recognises what comes again; its messages are
the rows in their order. A task ends well when the receiver has acknowledged the close.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackline import _core
from ackline.spark.sink import BatchSink, Sent, StreamSink, micro_batch, native_of, task

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ackline.spark.sink import SinkOptions


class BatchCounted(BatchSink):
    """Sends the rows of `df.write`.

    Args:
        options: What it was given.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send a partition's rows; returns when the receiver has acknowledged them."""
        return send(self._options, self._query, 0, iterator)


class StreamCounted(StreamSink):
    """Sends the rows of `df.writeStream`, micro-batch by micro-batch.

    Args:
        options: What it was given.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send a partition's rows; returns when the receiver has acknowledged them."""
        return send(self._options, *micro_batch(), iterator)


def send(options: SinkOptions, query: str, batch: int, batches: Iterator[pa.RecordBatch]) -> Sent:
    """Send a partition's rows and return when the receiver has acknowledged them.

    Args:
        options: The sink's.
        query: Identifies what is written.
        batch: The micro-batch.
        batches: The partition's rows.

    Raises:
        LinkLost: The receiver could not be reached, went away, or took nothing for `timeout`.
        PeerCancelled: The receiver wants no more of them; the text says why.
        UsageError: A row cannot be sent.
    """
    partition = task().partitionId()
    opening = f"query={query} batch={batch} partition={partition}"
    native = native_of(options, query, batch, partition) | {"opening": opening}
    sink = _core.BpmuxRows(options.url, native)
    try:
        for rows in batches:
            sink.write(rows)
        sent = sink.finish()
    except BaseException:
        sink.abort()
        raise
    return Sent(partition, sent, 0)
