"""The sink to subscribers of Reactive Streams: each partition is a stream of a publisher.

A task connects to the subscriber, which listens, and publishes its rows as they are requested. It
ends well when the subscriber has said goodbye behind the completed stream and kept the rows.
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
    """Publish a partition's rows and return when the subscriber has kept them.

    Args:
        options: The sink's options.
        query: The id of the query or write, for the stamp.
        batch: The micro-batch, for the stamp.
        batches: The partition's rows.

    Raises:
        LinkLost: The subscriber could not be reached, subscribed to another publisher, went away,
            requested nothing for `timeout`, or said goodbye for another reason; the text says so.
        PeerCancelled: The subscriber wants no more rows.
        UsageError: A row cannot be sent.
    """
    partition = task().partitionId()
    sink = _core.ReactiveRows(options.url, native_of(options, query, batch, partition))
    return Sent(partition, finished(sink, batches), 0)
