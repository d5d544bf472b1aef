"""The sink to peers of MicroMsg2: each row is a message with a destination and properties.

A task has a connection of its own. It ends well when the peer has acknowledged all of its messages.
Rows that a lost connection left unacknowledged are sent again over another one.
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
    """Send a partition's rows and return when the peer has acknowledged them.

    Args:
        options: The sink's options.
        query: The id of the query or write, for the stamp.
        batch: The micro-batch, for the stamp.
        batches: The partition's rows.

    Raises:
        LinkLost: The peer could not be reached, acknowledged nothing for `timeout`, or agrees on no
            acknowledgements; the text has the counts.
        UsageError: A row cannot be sent.
    """
    partition = task().partitionId()
    sink = _core.MicroMsgRows(options.url, native_of(options, query, batch, partition))
    return Sent(partition, *finished(sink, batches))
