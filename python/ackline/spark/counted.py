"""The sink to bpmux receivers: one sink of bpmux for each partition, closed with its count.

The opening payload names the query, batch and partition, so that a receiver recognises repeats; the
messages are the rows in their order. A task ends well when the receiver has acknowledged the close.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackline import _core
from ackline.spark.sink import Sent, finished, native_of, task

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ackline.spark.sink_options import SinkOptions


def send(options: SinkOptions, query: str, batch: int, batches: Iterator[pa.RecordBatch]) -> Sent:
    """Send a partition's rows and return when the receiver has acknowledged them.

    Args:
        options: The sink's options.
        query: The id of the query or write.
        batch: The micro-batch.
        batches: The partition's rows.

    Raises:
        LinkLost: The receiver could not be reached, went away, or took nothing for `timeout`.
        PeerCancelled: The receiver wants no more rows; the text gives the reason.
        UsageError: A row cannot be sent.
    """
    partition = task().partitionId()
    opening = f"query={query} batch={batch} partition={partition}"
    native = native_of(options, query, batch, partition) | {"opening": opening}
    sink = _core.BpmuxRows(options.url, native)
    return Sent(partition, finished(sink, batches), 0)
